"""Planning tasks: the same acts for the command `/schedule` and for the agent's tool.

Whoever plans sees and changes their own schedules only. A result goes back to where it was asked
for; only the owner may send it anywhere else.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any, Final

from tertulia import aio
from tertulia.agents.base import Tool
from tertulia.core.schedule import Misfire, describe
from tertulia.core.source import Source
from tertulia.core.target import ORIGIN
from tertulia.core.text.prompt_safe import plain
from tertulia.errors import AccessDenied, IllegalMove
from tertulia.records.people import ROLES, Role
from tertulia.records.schedules import RunsIn, Schedule
from tertulia.store import Store

MOST: Final = 50
_USAGE: Final = (
    "Say: /schedule add every 2h: look at the mail. Times: every 2h, in 20 min, at 09:00,"
    " at 2026-11-20 09:00, cron 0 9 * * MON-FRI."
)
# A colon with a space after it ends the time: those of the clock have none.
_ADD = re.compile(r"(?P<when>.+?)(?: to (?P<target>\S+?))?(?P<here> here)?:\s+(?P<task>.+)")


def said(store: Store, source: Source, role: Role, argument: str) -> str:
    """Do what follows /schedule."""
    name, _, rest = argument.partition(" ")
    if not name or name == "list":
        return listed(store, source)
    if name == "add":
        return _add_words(store, source, role, rest)
    act = _ACTS.get(name)
    if act is None:
        raise IllegalMove(f"{plain(name, 20)!r} is nothing to do with a schedule.", hint=_USAGE)
    return act(store, source, _number(rest))


def listed(store: Store, source: Source) -> str:
    """A person's schedules, a line each."""
    found = store.schedules.find(by=source, limit=MOST).items
    return "\n".join(map(line, found)) or f"Nothing is planned. {_USAGE}"


def line(schedule: Schedule) -> str:
    """A schedule in a line for people."""
    when = "" if schedule.next_at is None else f", next {schedule.next_at:%Y-%m-%d %H:%M} UTC"
    state = when if schedule.state == "active" else f", {schedule.state}"
    to = "" if schedule.target == ORIGIN else f", to {plain(schedule.target, 80)}"
    return f"{schedule.id}. {describe(schedule.rule)}{state}{to}: {plain(schedule.task, 80)}"


def add(
    store: Store,
    source: Source,
    role: Role,
    when: str,
    task: str,
    *,
    target: str = ORIGIN,
    session: RunsIn = "own",
    zone: str | None = None,
    misfire: Misfire = "once",
) -> Schedule:
    """Plan a task, as far as whoever asks may."""
    if target != ORIGIN and role != "owner":
        raise AccessDenied(
            "Only the owner may have results sent elsewhere.",
            hint="Leave the target out: the result comes to this chat.",
        )
    if len(store.schedules.find(by=source, limit=MOST).items) >= MOST:
        raise IllegalMove(f"There are {MOST} schedules already.", hint="Remove one first.")
    return store.schedules.create(
        source, when, task, zone=zone, target=target, session=session, misfire=misfire
    )


def tools(store: aio.Store, source: Source, role: Role) -> tuple[Tool, ...]:
    """The tools for who is answered: guests plan nothing."""
    if ROLES.index(role) > ROLES.index("member"):
        return ()

    async def call(arguments: dict[str, Any]) -> str:
        return await asyncio.to_thread(_called, store.sync, source, role, arguments)

    return (Tool("schedule", _DESCRIPTION, _PARAMETERS, call),)


def _called(store: Store, source: Source, role: Role, given: dict[str, Any]) -> str:
    action = given["action"]
    if action == "list":
        return listed(store, source)
    if action == "add":
        options = {name: given[name] for name in ("target", "session") if given.get(name)}
        return _planned(
            add(
                store,
                source,
                role,
                str(given.get("when", "")),
                str(given.get("task", "")),
                **options,
            )
        )
    if "id" not in given:
        raise IllegalMove("Which one?", hint="Give its id; action list shows them.")
    return _ACTS[action](store, source, given["id"])


def _add_words(store: Store, source: Source, role: Role, words: str) -> str:
    found = _ADD.fullmatch(words)
    if found is None:
        raise IllegalMove("A time, a colon, a space and a task are needed.", hint=_USAGE)
    return _planned(add(
        store, source, role, found["when"], found["task"],
        target=found["target"] or ORIGIN, session="origin" if found["here"] else "own",
    ))  # fmt: skip


def _planned(made: Schedule) -> str:
    return f"Planned: {line(made)}"


def _pause(store: Store, source: Source, number: int) -> str:
    return f"Paused: {line(store.schedules.pause(number, by=source))}"


def _resume(store: Store, source: Source, number: int) -> str:
    return f"It goes on: {line(store.schedules.resume(number, by=source))}"


def _remove(store: Store, source: Source, number: int) -> str:
    store.schedules.remove(number, by=source)
    return f"Schedule {number} is removed."


def _run(store: Store, source: Source, number: int) -> str:
    store.schedules.run_now(number, by=source)
    return f"Schedule {number} runs now."


def _number(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,12}", text):
        raise IllegalMove(f"{plain(text, 20)!r} is no number of a schedule.", hint="See /schedule.")
    return int(text)


_ACTS: Final[dict[str, Callable[[Store, Source, int], str]]] = {
    "pause": _pause,
    "resume": _resume,
    "remove": _remove,
    "run": _run,
}

_DESCRIPTION: Final = (
    "Plan tasks for later: you will be asked to do them then, and your answer is delivered to this"
    " chat. `when` is for example: every 2h, in 20 min, at 09:00, at 2026-11-20 09:00,"
    " cron 0 9 * * MON-FRI (in the person's time zone). Write `task` so that it can be understood"
    " without this conversation, or let it run in it with session origin."
)
_PARAMETERS: Final = {
    "type": "object",
    "properties": {
        "action": {"type": "string", "enum": ["list", "add", *_ACTS]},
        "when": {"type": "string"},
        "task": {"type": "string"},
        "target": {
            "type": "string",
            "description": "origin, local, a platform, or platform:chat; only for the owner.",
        },
        "session": {"type": "string", "enum": ["own", "origin"]},
        "id": {"type": "integer", "description": "For pause, resume, remove and run."},
    },
    "required": ["action"],
    "additionalProperties": False,
}

"""Actions on schedules: the same for the command `/schedule` and for the agent's tool.

A person sees and changes their own schedules only. A result goes back to the chat the schedule was
created in; only the owner may choose another target.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any, Final

from tertulia import aio
from tertulia.agents.base import Tool
from tertulia.core.schedule import Misfire, describe_rule
from tertulia.core.source import Source
from tertulia.core.target import ORIGIN
from tertulia.core.text.prompt_safe import clean_for_prompt
from tertulia.errors import AccessDenied, IllegalMove
from tertulia.gateway.command_arguments import parse_number
from tertulia.records.people import ROLES, Role
from tertulia.records.schedules import RunsIn, Schedule
from tertulia.store import Store

# The lowest role that may plan tasks, with the command or through the agent.
ROLE: Final[Role] = "member"
MAX_SCHEDULES: Final = 50
_USAGE: Final = (
    "Send for example: /schedule add weekdays at 9: look at the mail. Times: tomorrow at 9,"
    " in 20 min, every monday at 9:00, every 2h, at 2026-11-20 09:00, cron 0 9 * * MON-FRI."
)
# A colon followed by a space ends the time; the colon in 09:00 has no space after it.
_ADD = re.compile(r"(?P<when>.+?)(?: to (?P<target>\S+?))?(?P<here> here)?:\s+(?P<task>.+)")


def run_command(store: Store, source: Source, role: Role, argument: str) -> str:
    """Run the command `/schedule` with its argument; return the reply."""
    name, _, rest = argument.partition(" ")
    if not name or name == "list":
        return list_schedules(store, source)
    if name == "add":
        return _add_from_text(store, source, role, rest)
    action = _ACTIONS.get(name)
    if action is None:
        raise IllegalMove(f"/schedule has no action {clean_for_prompt(name, 20)!r}.", hint=_USAGE)
    return action(store, source, _number(rest))


def list_schedules(store: Store, source: Source) -> str:
    """Return the schedules of a person, one line each."""
    schedules = store.schedules.find(by=source, limit=MAX_SCHEDULES).items
    return "\n".join(map(line, schedules)) or f"Nothing is planned. {_USAGE}"


def line(schedule: Schedule) -> str:
    """Return one line that describes a schedule to people."""
    when = "" if schedule.next_at is None else f", next {schedule.next_at:%Y-%m-%d %H:%M} UTC"
    state = when if schedule.state == "active" else f", {schedule.state}"
    to = "" if schedule.target == ORIGIN else f", to {clean_for_prompt(schedule.target, 80)}"
    task = clean_for_prompt(schedule.task, 80)
    return f"{schedule.id}. {describe_rule(schedule.rule)}{state}{to}: {task}"


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
    """Create a schedule; raise `AccessDenied` or `IllegalMove` if the person may not."""
    if target != ORIGIN and role != "owner":
        raise AccessDenied(
            "Only the owner may have results sent to another chat.",
            hint="Leave the target out; then the result comes to this chat.",
        )
    if len(store.schedules.find(by=source, limit=MAX_SCHEDULES).items) >= MAX_SCHEDULES:
        raise IllegalMove(f"You have {MAX_SCHEDULES} schedules already.", hint="Remove one first.")
    return store.schedules.create(
        source, when, task, zone=zone, target=target, session=session, misfire=misfire
    )


def tools(store: aio.Store, source: Source, role: Role) -> tuple[Tool, ...]:
    """Return the schedule tool; guests get none, they cannot create schedules."""
    if ROLES.index(role) > ROLES.index(ROLE):
        return ()

    async def call(arguments: dict[str, Any]) -> str:
        return await asyncio.to_thread(_run_tool, store.sync, source, role, arguments)

    return (Tool("schedule", _DESCRIPTION, _PARAMETERS, call),)


def _run_tool(store: Store, source: Source, role: Role, arguments: dict[str, Any]) -> str:
    action = arguments["action"]
    if action == "list":
        return list_schedules(store, source)
    if action == "add":
        options = {name: arguments[name] for name in ("target", "session") if arguments.get(name)}
        return _planned(
            add(
                store,
                source,
                role,
                str(arguments.get("when", "")),
                str(arguments.get("task", "")),
                **options,
            )
        )
    if "id" not in arguments:
        raise IllegalMove(
            f"The action {action} needs the id of a schedule.",
            hint="Pass id; the action list shows the ids.",
        )
    return _ACTIONS[action](store, source, arguments["id"])


def _add_from_text(store: Store, source: Source, role: Role, text: str) -> str:
    match = _ADD.fullmatch(text)
    if match is None:
        raise IllegalMove("A time, a colon, a space and a task are needed.", hint=_USAGE)
    return _planned(add(
        store, source, role, match["when"], match["task"],
        target=match["target"] or ORIGIN, session="origin" if match["here"] else "own",
    ))  # fmt: skip


def _planned(schedule: Schedule) -> str:
    return f"Planned: {line(schedule)}"


def _pause(store: Store, source: Source, number: int) -> str:
    return f"Paused: {line(store.schedules.pause(number, by=source))}"


def _resume(store: Store, source: Source, number: int) -> str:
    return f"Resumed: {line(store.schedules.resume(number, by=source))}"


def _remove(store: Store, source: Source, number: int) -> str:
    store.schedules.remove(number, by=source)
    return f"Schedule {number} is removed."


def _run(store: Store, source: Source, number: int) -> str:
    store.schedules.run_now(number, by=source)
    return f"Schedule {number} runs now."


def _number(text: str) -> int:
    return parse_number(text, thing="a schedule", listed_by="/schedule")


_ACTIONS: Final[dict[str, Callable[[Store, Source, int], str]]] = {
    "pause": _pause,
    "resume": _resume,
    "remove": _remove,
    "run": _run,
}

_DESCRIPTION: Final = (
    "Plan tasks for later: you will be asked to do them then, and your answer is delivered to this"
    " chat. `when` is for example: tomorrow at 9, in 20 min, every 2h, weekdays at 8, at 09:00,"
    " at 2026-11-20 09:00, cron 0 9 * * MON-FRI (in the person's time zone). Write `task` so"
    " that it can be understood without this conversation, or let it run in it with session origin."
)
_PARAMETERS: Final = {
    "type": "object",
    "properties": {
        "action": {"type": "string", "enum": ["list", "add", *_ACTIONS]},
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

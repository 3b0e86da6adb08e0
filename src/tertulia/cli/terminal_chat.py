"""The terminal as a platform of `chat` and `run`: its adapter, input history and greeting."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import msgspec

from tertulia.agents.agent_options import CommandAgentOptions, ModelOptions
from tertulia.cli import errors, local_conversation, locations
from tertulia.cli.format import ago
from tertulia.cli.options import program_name
from tertulia.config.schema import AccountSection, AgentSection, Config
from tertulia.core.message import ASSISTANT, USER, text_of
from tertulia.core.source import LOCAL
from tertulia.core.text.display_safe import display_line
from tertulia.core.text.excerpt import one_line
from tertulia.core.text.prompt_safe import clean_for_prompt
from tertulia.errors import ConfigError
from tertulia.platforms import registry
from tertulia.platforms.base import REFUSAL_KEY
from tertulia.platforms.local import LocalSettings
from tertulia.platforms.terminal.markdown_rows import render, row_width
from tertulia.platforms.terminal.wrap import Row, Segment, row_text, text_width, wrap
from tertulia.records.machine_zone import machine_zone
from tertulia.storage.connect import public_name

if TYPE_CHECKING:
    from tertulia import aio
    from tertulia.core.media import Media
    from tertulia.core.session import Session
    from tertulia.platforms.terminal.adapter import TerminalAdapter
    from tertulia.store import Store

_POLL_SECONDS = 0.02
_PARROT = "The parrot is not a model: it shows the input that a model would get. To use a model:"
_FIRST_KEYS = "/help, ctrl-D leaves"
_HEAD_WIDTH = 79  # the hint stays near the name on a wide terminal
_EXCHANGE_SEARCH_LIMIT = 20  # newest messages among which the last exchange is searched
_EXCHANGE_ROWS = 3
_ANSWER_SEARCH_LIMIT = 200  # newest messages among which the answer to the last one is searched


def terminal_adapter(
    config: Config, store: aio.Store, *, is_plain: bool = False
) -> TerminalAdapter:
    """Return the adapter that reads from and prints to this terminal."""
    from tertulia.config.build import build_adapter
    from tertulia.platforms.terminal.adapter import TerminalAdapter

    section = config.platform(LOCAL)
    if is_plain:
        section = msgspec.structs.replace(section, plain=True)
    terminal = build_adapter(AccountSection(LOCAL, "", section), locations.platforms_folder())
    assert isinstance(terminal, TerminalAdapter)
    terminal.settled = _answer_waiter(store)
    max_bytes = int(config.gateway_settings.of(LOCAL, "").max_file_mb * 1e6)

    async def store_file(path: str) -> Media:
        if not await asyncio.to_thread(os.path.isfile, path):
            raise ConfigError(f"There is no file {display_line(path)}.", hint="Check the path.")
        return await store.media.put(path, max_bytes=max_bytes)

    terminal.attachments.store_file = store_file
    return terminal


async def print_greeting(
    store: aio.Store, config: Config, *, is_plain: bool = False, served: Sequence[str] = ()
) -> None:
    """Print which agent answers, where it is stored, and the last exchange, on a terminal.

    `served` are the names of the platforms that this program serves besides the terminal.
    """
    if not sys.stdin.isatty():
        return
    from tertulia.platforms.terminal.theme import terminal_theme

    width = row_width(shutil.get_terminal_size().columns)
    section = config.platform(LOCAL)
    theme = terminal_theme(section.style if isinstance(section, LocalSettings) else {})
    is_plain |= os.environ.get("TERM") == "dumb"
    is_plain |= isinstance(section, LocalSettings) and section.plain
    await store.nodes.forget_ended()  # so that it is known what is unanswered
    for row in await asyncio.to_thread(greeting_rows, store.sync, config, width, served):
        sys.stdout.write(f"{row_text(row) if is_plain else theme.escape(row)}\n")
    sys.stdout.flush()


def greeting_rows(
    store: Store, config: Config, width: int, served: Sequence[str] = ()
) -> list[Row]:
    """Return what stands above the first prompt, with an empty row at the end."""
    name, location = _agent_name(config.main_agent), _short_location(store)
    head = (Segment("bold", "Tertulia"), Segment("", f" · {name} · {location}"))
    room = min(width, _HEAD_WIDTH) - text_width(row_text(head)) - len(_FIRST_KEYS)
    if room >= len("  "):
        rows: list[Row] = [(*head, Segment("dim", f"{' ' * room}{_FIRST_KEYS}"))]
    else:
        rows = [*wrap(head, width), *wrap([Segment("dim", _FIRST_KEYS)], width)]
    if config.main_agent.kind == "parrot":
        rows += wrap([Segment("notice", f"{_PARROT} {program_name()} config init")], width)
    if served:
        names = ", ".join(dict.fromkeys(served))
        text = f"Serving {names}, and this terminal. State: {program_name()} platforms list"
        rows += wrap([Segment("", text)], width)
    rows += _describe_conversation(store, width)
    rows += _describe_waiting(store, width)
    return [*rows, ()]


def print_farewell(store: aio.Store) -> None:
    """Print where the conversation is stored, and how to continue it, on a terminal."""
    if sys.stdin.isatty() and sys.stdout.isatty():
        location = _short_location(store.sync)
        with suppress(OSError):  # the window may be closed
            text = f"Stored in {location}. Continue with: {_launch_command()}"
            width = row_width(shutil.get_terminal_size().columns)
            rows = wrap([Segment("", text)], width)
            sys.stdout.write("".join(f"{row_text(row)}\n" for row in rows))
            sys.stdout.flush()


def exit_code(terminal: TerminalAdapter) -> int:
    """Return the exit code of piped input: that of the first message without an answer."""
    if sys.stdin.isatty() or terminal.is_gone or not terminal.unanswered:
        return errors.OK
    return errors.DENIED if terminal.unanswered[0].startswith(REFUSAL_KEY) else errors.NO_ANSWER


async def has_unfinished_work(store: aio.Store) -> bool:
    """Return whether a message typed here is unanswered or an answer is not printed yet.

    The states are queried in the order in which work moves through them, so that an item that
    moves on between two queries is found by a later one.
    """
    keys = await asyncio.to_thread(local_conversation.all_keys, store.sync)
    for item_state in ("waiting", "taken"):
        for key in keys:
            if (await store.inbox.find(key=key, state=item_state, limit=1)).items:
                return True
    for state in ("waiting", "sending"):
        deliveries = (await store.outbox.find(state=state, limit=50)).items
        if any(delivery.platform == LOCAL for delivery in deliveries):
            return True
    return False


def _answer_waiter(store: aio.Store) -> Callable[[str | None], Awaitable[str | None]]:
    """Return a function that waits until everything is answered and returns the last answer."""

    async def wait(message_id: str | None) -> str | None:
        while await has_unfinished_work(store):  # noqa: ASYNC110  other nodes may do the work, too
            await asyncio.sleep(_POLL_SECONDS)
        return await asyncio.to_thread(_get_answer, store.sync, message_id) if message_id else None

    return wait


def _get_answer(store: Store, message_id: str) -> str | None:
    """Return the answer to a message that was just typed; None if it was a command."""
    for session in filter(None, map(store.sessions.current, local_conversation.all_keys(store))):
        newest = store.transcript(session.id).entries(newest=_ANSWER_SEARCH_LIMIT)
        turns = {message.turn for message in newest if message.body.get("message_id") == message_id}
        answers = [
            text_of(message.body)
            for message in newest
            if message.turn in turns and message.role == ASSISTANT
        ]
        if answers:
            return answers[-1]
    return None


def _agent_name(agent: AgentSection) -> str:
    if isinstance(agent, ModelOptions):
        return f"{agent.model} ({agent.kind})"
    if isinstance(agent, CommandAgentOptions):
        return f"the program {clean_for_prompt(os.path.basename(agent.command[0]), 60)}"
    return "an agent over HTTP" if agent.kind == "http" else f"the {agent.kind}"


def _describe_conversation(store: Store, width: int) -> list[Row]:
    """Return what the next message continues: the conversation and its last exchange."""
    sessions = store.sessions
    session = sessions.current(local_conversation.current_key(store))
    count = 0 if session is None else store.transcript(session.id).count()
    if session is None or (not count and session.title is None):
        return [(Segment("", "This is a new conversation."),)]
    title = session.title or sessions.suggest_title(session.id)
    name = f'"{clean_for_prompt(title, 60)}"' if title else session.id
    reason = _expiry_reason(store, session)
    if reason is not None:
        text = (
            f"{name} has ended ({reason}). Your next message starts a new conversation;"
            " /resume 1 goes back."
        )
        return wrap([Segment("notice", text)], width)
    messages = "1 message" if count == 1 else f"{count} messages"
    text = f"Continuing {name} ({messages}, {ago(session.updated_at, store.now())})"
    return [*wrap([Segment("", text)], width), *_last_exchange(store, session, width)]


def _describe_waiting(store: Store, width: int) -> list[Row]:
    """Return a notice if the last message of this conversation is not answered yet."""
    key = local_conversation.current_key(store)
    if store.inbox.find(key=key, state="taken", limit=1).items:
        seconds = round(store.settings.lease_seconds)
        text = (
            "Waiting for the answer to your last message: another program is writing it. If that"
            f" program was killed, this one begins again within {seconds} s."
        )
    elif store.inbox.find(key=key, state="waiting", limit=1).items:
        text = "Your last message was not answered. The answer comes now."
    else:
        return []
    return wrap([Segment("notice", text)], width)


def _expiry_reason(store: Store, session: Session) -> str | None:
    """Return why the policy ends the session with the next message, or None if it goes on."""
    zone = store.settings.zone
    policy = registry.policies(store.settings.policies).for_chat(LOCAL, session.origin.chat_type)
    return policy.decide(
        session, store.now(), zone=machine_zone() if zone is None else ZoneInfo(zone)
    )


def _last_exchange(store: Store, session: Session, width: int) -> list[Row]:
    """Return the last question and the first rows of its answer, dimmed."""
    newest = store.transcript(session.id).entries(newest=_EXCHANGE_SEARCH_LIMIT)
    questions = [message for message in newest if message.role == USER]
    if not questions:
        return []
    question = one_line(text_of(questions[-1].body), width - 4)
    answers = [
        text_of(message.body)
        for message in newest
        if message.role == ASSISTANT and message.seq > questions[-1].seq
    ]
    rows: list[Row] = [(Segment("dim", f"  › {display_line(question)}"),)]
    answer = render(answers[-1], width - 2) if answers else []
    rows += [
        (Segment("dim", f"  {row_text(row)}"),) for row in answer[:_EXCHANGE_ROWS]
    ]  # fmt: skip
    if len(answer) > _EXCHANGE_ROWS:
        rows.append((Segment("dim", f"  … ({len(answer) - _EXCHANGE_ROWS} more rows: /last)"),))
    return rows


def _short_location(store: Store) -> str:
    """Return where the store is, with ~ for the home folder."""
    location = display_line(public_name(store.path))
    home = os.path.join(os.path.expanduser("~"), "")
    return f"~/{location.removeprefix(home)}" if location.startswith(home) else location


def _launch_command() -> str:
    """Return the command that started this program."""
    if os.environ.get("MAKELEVEL"):
        return "make run"
    return display_line(f"{program_name()} {shlex.join(sys.argv[1:])}")

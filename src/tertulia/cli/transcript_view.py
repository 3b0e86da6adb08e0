"""Format the messages of a session for the terminal and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tertulia.cli import format
from tertulia.cli.output import (
    INDENT,
    display_json,
    display_line,
    display_text,
    print_indented,
)
from tertulia.cli.session_details import to_dict as session_to_dict
from tertulia.core.message import ASSISTANT, TOOL, USER, Message
from tertulia.core.session import Session
from tertulia.core.text.excerpt import cut
from tertulia.core.text.format import utc_text
from tertulia.platforms.terminal.markdown_rows import render, row_width
from tertulia.platforms.terminal.theme import Theme
from tertulia.platforms.terminal.wrap import Segment
from tertulia.records.machine_zone import machine_zone

if TYPE_CHECKING:
    from rich.console import Console

_COLORS = {USER: "cyan", ASSISTANT: "green", TOOL: "magenta"}

# Characters of one message that are printed without --all. Tool results are made for the model, so
# people see less of them.
_MAX_TEXT = 4_000
_MAX_TOOL_RESULT = 600
_MAX_ADDRESS = 60


def to_dict(session: Session, messages: Sequence[Message]) -> dict[str, Any]:
    """Return a session for JSON output, with its messages as stored and their positions."""
    return {
        **session_to_dict(session),
        "messages": [message.body for message in messages],
        "places": [
            {
                "seq": message.seq,
                "turn": message.turn,
                "kind": message.kind,
                "at": utc_text(message.at),
                "author": message.author,
            }
            for message in messages
        ],
    }


def print_messages(console: Console, messages: Sequence[Message], *, whole: bool) -> None:
    """Print messages, each under its number; long ones are cut unless `whole` is true.

    On a terminal the Markdown of answers is rendered; a pipe gets it as it is stored.
    """
    from rich.text import Text

    zone = machine_zone()
    for message in messages:
        color = _COLORS.get(message.role, "yellow")
        head = Text(f"\n#{message.seq} ", style="dim")
        head.append(_author(message), style=f"bold {color}")
        head.append(f"  {format.format_time(message.at, zone)}", style="dim")
        console.print(head)
        for whole_text, style in _paragraphs(message.body):
            text = whole_text if whole else _cut(whole_text, message.role)
            if console.is_terminal and message.role == ASSISTANT and not style:
                _print_rendered(console, text)
            else:
                print_indented(console, Text(display_text(text).strip("\n"), style=style))


def _print_rendered(console: Console, markdown: str) -> None:
    """Print an answer as the chat in the terminal shows it."""
    from rich.text import Text

    theme = Theme(has_colours=not console.no_color)
    for row in render(markdown, row_width(console.width - len(INDENT))):
        # Not wrapped again: a line of code may be wider than the terminal.
        console.print(Text.from_ansi(theme.escape((Segment("", INDENT), *row))), soft_wrap=True)


def _author(message: Message) -> str:
    name = message.author or message.body.get("name")
    parts = (message.role, name if isinstance(name, str) else None, message.kind)
    return display_line(" ".join(filter(None, parts)), 60)


def _paragraphs(body: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the parts of a message, each with its style; text of the author has no style."""
    reasoning = body.get("reasoning_content") or body.get("reasoning")
    if isinstance(reasoning, str):
        yield f"(thought) {reasoning}", "dim italic"
    content = body.get("content")
    for part in content if isinstance(content, list) else [content]:
        yield from _part(part)
    calls = body.get("tool_calls")
    for call in calls if isinstance(calls, list) else []:
        yield _tool_call(call), "blue"


def _part(part: Any) -> Iterator[tuple[str, str]]:
    if isinstance(part, Mapping) and isinstance(part.get("text"), str):
        part = part["text"]
    if isinstance(part, str):
        if part.strip():
            yield part, ""
    elif isinstance(part, Mapping):
        kind = part.get("type", "part")
        inner = part.get(kind) if isinstance(kind, str) else None
        address = inner.get("url") if isinstance(inner, Mapping) else None
        suffix = f": {display_line(address, _MAX_ADDRESS)}" if isinstance(address, str) else ""
        yield f"[{kind}{suffix}]", "dim"
    elif part is not None:
        yield display_json(part, indent=None), "dim"


def _tool_call(call: Any) -> str:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping):
        return f"→ {display_json(call, indent=None)}"
    arguments = function.get("arguments")
    if not isinstance(arguments, str):
        arguments = display_json(arguments, indent=None)
    return f"→ {function.get('name')}({arguments})"


def _cut(text: str, role: str) -> str:
    limit = _MAX_TOOL_RESULT if role == TOOL else _MAX_TEXT
    if len(text) <= limit:
        return text
    beginning = cut(text, limit)
    rest = len(text) - len(beginning)
    return f"{beginning.rstrip()} … ({rest:,} more characters; see --all)"

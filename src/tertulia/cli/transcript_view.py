"""The messages of a session on the screen and in files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tertulia.cli import (
    format,
    locations,
)
from tertulia.cli.output import harmless, one_line, show_indented, to_json
from tertulia.cli.session_view import to_dict as session_to_dict
from tertulia.core.message import ASSISTANT, TOOL, USER, Message
from tertulia.core.session import Session

if TYPE_CHECKING:
    from rich.console import Console

_COLORS = {USER: "cyan", ASSISTANT: "green", TOOL: "magenta"}

# How much of one message is shown where not all is asked for. What tools give is for the model.
_LONGEST = 4_000
_LONGEST_RESULT = 600
_LONGEST_ADDRESS = 60


def to_dict(session: Session, messages: Sequence[Message]) -> dict[str, Any]:
    """A session for programs, with its messages as they were given and where each one stands."""
    return {
        **session_to_dict(session),
        "messages": [message.body for message in messages],
        "places": [
            {
                "seq": message.seq,
                "turn": message.turn,
                "kind": message.kind,
                "at": message.at.isoformat().replace("+00:00", "Z"),
                "author": message.author,
            }
            for message in messages
        ],
    }


def print_messages(screen: Console, messages: Sequence[Message], *, whole: bool) -> None:
    """Show messages on a terminal, each under its number."""
    from rich.text import Text

    zone = locations.zone()
    for message in messages:
        color = _COLORS.get(message.role, "yellow")
        head = Text(f"\n#{message.seq} ", style="dim")
        head.append(_speaker(message), style=f"bold {color}")
        head.append(f"  {format.stamp(message.at, zone)}", style="dim")
        screen.print(head)
        for text, style in _paragraphs(message.body):
            shown = harmless(text if whole else _cut(text, message.role)).strip("\n")
            show_indented(screen, Text(shown, style=style))


def _speaker(message: Message) -> str:
    name = message.author or message.body.get("name")
    words = (message.role, name if isinstance(name, str) else None, message.kind)
    return one_line(" ".join(filter(None, words)), 60)


def _paragraphs(body: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What a message holds, part by part, with how it is shown; a style means: not its words."""
    reasoning = body.get("reasoning_content") or body.get("reasoning")
    if isinstance(reasoning, str):
        yield f"(thought) {reasoning}", "dim italic"
    content = body.get("content")
    for part in content if isinstance(content, list) else [content]:
        yield from _part(part)
    calls = body.get("tool_calls")
    for call in calls if isinstance(calls, list) else []:
        yield _call(call), "blue"


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
        where = f": {one_line(address, _LONGEST_ADDRESS)}" if isinstance(address, str) else ""
        yield f"[{kind}{where}]", "dim"
    elif part is not None:
        yield to_json(part, indent=None), "dim"


def _call(call: Any) -> str:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping):
        return f"→ {to_json(call, indent=None)}"
    given = function.get("arguments")
    arguments = given if isinstance(given, str) else to_json(given, indent=None)
    return f"→ {function.get('name')}({arguments})"


def _cut(text: str, role: str) -> str:
    longest = _LONGEST_RESULT if role == TOOL else _LONGEST
    if len(text) <= longest:
        return text
    return f"{text[:longest].rstrip()} … ({len(text) - longest:,} more characters; see --all)"

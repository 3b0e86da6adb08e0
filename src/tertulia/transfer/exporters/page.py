"""A session as people read it: who said what when, before it is Markdown or HTML.

Everything in here was written by strangers and is not escaped yet; each form does that itself, for
every text without exception.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime, tzinfo
from typing import Any, Literal, NamedTuple

from tertulia.core.history.content import (
    IMAGE,
    trace,
)
from tertulia.core.message import TOOL, Message, from_json
from tertulia.core.session import Session
from tertulia.core.text import format
from tertulia.core.text.display_safe import (
    one_line,
    to_json,
)
from tertulia.platforms import registry
from tertulia.transfer.exporters.redaction import Redaction

Kind = Literal["words", "code", "thought", "call", "result", "media"]

_NAME = 80
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})[ \t]*([^`\n]*)$")
# The only addresses that a page may show as a picture: nothing is fetched, nothing can act.
_PICTURE = re.compile(r"data:image/(?:png|jpeg|gif|webp);base64,[A-Za-z0-9+/]+={0,2}")


class Block(NamedTuple):
    """A part of what was said. `label` is the language of code, or the name of what was called."""

    kind: Kind
    text: str
    label: str = ""
    picture: str | None = None


class PageEntry(NamedTuple):
    """A message."""

    seq: int
    role: str
    speaker: str
    kind: str | None
    at: datetime
    blocks: list[Block]


class Page(NamedTuple):
    """A session with what is to be known of it, and its messages."""

    title: str
    facts: list[tuple[str, str]]
    zone: tzinfo
    entries: Iterator[PageEntry]


def page_of(
    session: Session,
    messages: Iterator[Message],
    count: int,
    veil: Redaction,
    *,
    zone: tzinfo,
) -> Page:
    """A session ready to be written down, as far as the veil shows it."""
    facts = [
        ("session", session.id),
        ("place", veil.name(f"{_platform(session)}, {session.origin.description}")),
        ("began", f"{format.stamp(session.created_at, zone)} ({zone})"),
        ("last active", format.stamp(session.updated_at, zone)),
        ("state", veil.name(format.state_of(session))),
        ("messages", f"{count:,}"),
        ("tokens", f"{session.usage.total:,}"),
        ("cost", format.cost(session.usage)),
    ]
    entries = (_entry(message, veil) for message in messages)
    return Page(one_line(veil.name(format.name_of(session)), 120), facts, zone, entries)


def _platform(session: Session) -> str:
    return registry.platform(session.origin.platform).title


def _entry(message: Message, veil: Redaction) -> PageEntry:
    blocks = list(_blocks(message, veil))
    speaker = one_line(_speaker(message, veil), _NAME)
    return PageEntry(message.seq, message.role, speaker, message.kind, message.at, blocks)


def _speaker(message: Message, veil: Redaction) -> str:
    """Always the role first: whoever calls themselves "assistant" is still a user."""
    if message.author is not None:
        author = from_json(message.author)
        name, who = author.get("name"), author.get("id")
        if isinstance(name, str) and name.strip():
            return f"{message.role} {veil.name(name)}"
        if isinstance(who, str):
            return f"{message.role} {veil.person(str(author.get('platform') or ''), who)}"
    name = message.body.get("name")
    if isinstance(name, str) and name.strip():
        return f"{message.role} {veil.name(name)}"
    return message.role


def _blocks(message: Message, veil: Redaction) -> Iterator[Block]:
    body = message.body
    for field in ("reasoning_content", "reasoning"):
        thought = body.get(field)
        if isinstance(thought, str) and thought.strip():
            yield Block("thought", veil.text(thought))
            break
    content = body.get("content")
    for part in content if isinstance(content, list) else [content]:
        yield from _part(part, message.role, veil)
    media = body.get("media")
    for item in media if isinstance(media, list) else [media]:
        if item is not None:
            yield Block("media", veil.text(_medium(item)))
    calls = body.get("tool_calls")
    for call in calls if isinstance(calls, list) else []:
        yield _call(call, veil)


def _part(part: Any, role: str, veil: Redaction) -> Iterator[Block]:
    if isinstance(part, Mapping) and isinstance(part.get("text"), str):
        part = part["text"]
    if isinstance(part, str):
        if not part.strip():
            return
        if role == TOOL:
            yield Block("result", veil.text(part))
        else:
            yield from split_code(veil.text(part))
    elif isinstance(part, Mapping) and isinstance(part.get("type"), str):
        if part["type"] != "text":
            yield Block("media", veil.text(trace(part)), picture=_picture(part))
    elif part is not None:
        yield Block("result" if role == TOOL else "words", veil.text(to_json(part, indent=None)))


def split_code(text: str) -> Iterator[Block]:
    """Words, and the code that stands between fences in them; a fence that is never closed counts
    to the end, as Markdown has it."""
    lines: list[str] = []
    fence, label = "", ""
    for line in text.split("\n"):
        found = _FENCE.match(line)
        closes = found and fence and found[1].startswith(fence) and not found[2].strip()
        if found and not fence:
            yield from _words(lines)
            lines, fence, label = [], found[1], found[2].strip()
        elif closes:
            yield Block("code", "\n".join(lines), label)
            lines, fence = [], ""
        else:
            lines.append(line)
    if fence:
        yield Block("code", "\n".join(lines), label)
    else:
        yield from _words(lines)


def _words(lines: list[str]) -> Iterator[Block]:
    text = "\n".join(lines).strip("\n")
    if text.strip():
        yield Block("words", text)


def _call(call: Any, veil: Redaction) -> Block:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping):
        return Block("call", veil.text(to_json(call, indent=None)), "?")
    given = function.get("arguments")
    arguments = given if isinstance(given, str) else to_json(given, indent=None)
    return Block("call", veil.text(arguments), one_line(str(function.get("name")), _NAME))


def _medium(item: Any) -> str:
    if isinstance(item, str):
        return f"[file: {one_line(item, 200)}]"
    place = ""
    if isinstance(item, Mapping):
        place = str(item.get("path") or item.get("url") or item.get("name") or "")
    return f"[file: {one_line(place, 200) or 'unknown'}]"


def _picture(part: Mapping[str, Any]) -> str | None:
    image = part.get(IMAGE)
    address = image.get("url") if isinstance(image, Mapping) else image
    if isinstance(address, str) and _PICTURE.fullmatch(address):
        return address
    return None

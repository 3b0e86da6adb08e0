"""A session as a page for people: speakers, times and texts, before it becomes Markdown or HTML.

Every text here may come from strangers and is not escaped yet; each format escapes every text
itself, without exception.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime, tzinfo
from typing import Any, Literal, NamedTuple

from tertulia.core.history.content import IMAGE, describe_part
from tertulia.core.message import TOOL, Message, from_json
from tertulia.core.session import Session
from tertulia.core.text import format
from tertulia.core.text.display_safe import display_json, display_line
from tertulia.platforms import registry
from tertulia.transfer.exporters.redaction import Redaction

Kind = Literal["words", "code", "thought", "call", "result", "media"]

_LONGEST_NAME = 80
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})[ \t]*([^`\n]*)$")
# The only addresses a page may show as an image: nothing is fetched, and no script can run.
_INLINE_IMAGE = re.compile(r"data:image/(?:png|jpeg|gif|webp);base64,[A-Za-z0-9+/]+={0,2}")


class PageBlock(NamedTuple):
    """A part of a message.

    `label` is the language of code, or the name of the called tool; `picture` a data address.
    """

    kind: Kind
    text: str
    label: str = ""
    picture: str | None = None


class PageEntry(NamedTuple):
    """A message on the page."""

    seq: int
    role: str
    speaker: str
    kind: str | None
    at: datetime
    blocks: list[PageBlock]


class SessionPage(NamedTuple):
    """A session: its title, a table of facts, and its messages."""

    title: str
    facts: list[tuple[str, str]]
    zone: tzinfo
    entries: Iterator[PageEntry]


def page_of(
    session: Session,
    messages: Iterator[Message],
    count: int,
    redaction: Redaction,
    *,
    zone: tzinfo,
) -> SessionPage:
    """Return the page of a session, with redacted texts."""
    facts = [
        ("session", session.id),
        ("place", redaction.name(f"{_platform(session)}, {session.origin.description}")),
        ("began", f"{format.format_time(session.created_at, zone)} ({zone})"),
        ("last active", format.format_time(session.updated_at, zone)),
        ("state", redaction.name(format.session_state(session))),
        ("messages", f"{count:,}"),
        ("tokens", f"{session.usage.total:,}"),
        ("cost", format.format_cost(session.usage)),
    ]
    entries = (_entry(message, redaction) for message in messages)
    return SessionPage(
        display_line(redaction.name(format.session_name(session)), 120), facts, zone, entries
    )


def _platform(session: Session) -> str:
    return registry.platform(session.origin.platform).title


def _entry(message: Message, redaction: Redaction) -> PageEntry:
    blocks = list(_blocks(message, redaction))
    speaker = display_line(_speaker(message, redaction), _LONGEST_NAME)
    return PageEntry(message.seq, message.role, speaker, message.kind, message.at, blocks)


def _speaker(message: Message, redaction: Redaction) -> str:
    """Return role and name, the role first: a user called "assistant" still shows as a user."""
    if message.author is not None:
        author = from_json(message.author)
        name, user_id = author.get("name"), author.get("id")
        if isinstance(name, str) and name.strip():
            return f"{message.role} {redaction.name(name)}"
        if isinstance(user_id, str):
            person = redaction.person(str(author.get("platform") or ""), user_id)
            return f"{message.role} {person}"
    name = message.body.get("name")
    if isinstance(name, str) and name.strip():
        return f"{message.role} {redaction.name(name)}"
    return message.role


def _blocks(message: Message, redaction: Redaction) -> Iterator[PageBlock]:
    body = message.body
    for field in ("reasoning_content", "reasoning"):
        thought = body.get(field)
        if isinstance(thought, str) and thought.strip():
            yield PageBlock("thought", redaction.text(thought))
            break
    content = body.get("content")
    for part in content if isinstance(content, list) else [content]:
        yield from _part(part, message.role, redaction)
    media = body.get("media")
    for item in media if isinstance(media, list) else [media]:
        if item is not None:
            yield PageBlock("media", redaction.text(_media_label(item)))
    calls = body.get("tool_calls")
    for call in calls if isinstance(calls, list) else []:
        yield _call(call, redaction)


def _part(part: Any, role: str, redaction: Redaction) -> Iterator[PageBlock]:
    if isinstance(part, Mapping) and isinstance(part.get("text"), str):
        part = part["text"]
    if isinstance(part, str):
        if not part.strip():
            return
        if role == TOOL:
            yield PageBlock("result", redaction.text(part))
        else:
            yield from split_code(redaction.text(part))
    elif isinstance(part, Mapping) and isinstance(part.get("type"), str):
        if part["type"] != "text":
            yield PageBlock(
                "media", redaction.text(describe_part(part)), picture=_inline_image(part)
            )
    elif part is not None:
        yield PageBlock(
            "result" if role == TOOL else "words", redaction.text(display_json(part, indent=None))
        )


def split_code(text: str) -> Iterator[PageBlock]:
    """Yield the blocks of prose and of fenced code in a text.

    A fence that is never closed extends to the end, as in Markdown.
    """
    lines: list[str] = []
    fence, label = "", ""
    for line in text.split("\n"):
        match = _FENCE.match(line)
        closes = match and fence and match[1].startswith(fence) and not match[2].strip()
        if match and not fence:
            yield from _prose(lines)
            lines, fence, label = [], match[1], match[2].strip()
        elif closes:
            yield PageBlock("code", "\n".join(lines), label)
            lines, fence = [], ""
        else:
            lines.append(line)
    if fence:
        yield PageBlock("code", "\n".join(lines), label)
    else:
        yield from _prose(lines)


def _prose(lines: list[str]) -> Iterator[PageBlock]:
    text = "\n".join(lines).strip("\n")
    if text.strip():
        yield PageBlock("words", text)


def _call(call: Any, redaction: Redaction) -> PageBlock:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping):
        return PageBlock("call", redaction.text(display_json(call, indent=None)), "?")
    arguments = function.get("arguments")
    if not isinstance(arguments, str):
        arguments = display_json(arguments, indent=None)
    return PageBlock(
        "call", redaction.text(arguments), display_line(str(function.get("name")), _LONGEST_NAME)
    )


def _media_label(item: Any) -> str:
    if isinstance(item, str):
        return f"[file: {display_line(item, 200)}]"
    name = ""
    if isinstance(item, Mapping):
        name = str(item.get("path") or item.get("url") or item.get("name") or "")
    return f"[file: {display_line(name, 200) or 'unknown'}]"


def _inline_image(part: Mapping[str, Any]) -> str | None:
    image = part.get(IMAGE)
    address = image.get("url") if isinstance(image, Mapping) else image
    if isinstance(address, str) and _INLINE_IMAGE.fullmatch(address):
        return address
    return None

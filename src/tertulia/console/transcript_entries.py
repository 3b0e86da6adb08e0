"""Messages of a transcript as the pages show them: who speaks, when, and in which parts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime
from typing import Any, Final, Literal

import msgspec
from markupsafe import Markup

from tertulia.console.environment import zone
from tertulia.console.markdown_html import plain_html, render_texts
from tertulia.console.page_definition import CONSOLE
from tertulia.core.history.content import describe_part
from tertulia.core.media import is_hash
from tertulia.core.message import ASSISTANT, SUMMARY, SYSTEM, TOOL, USER
from tertulia.core.text.display_safe import display_json, display_line
from tertulia.core.tool_result import whole_text
from tertulia.http.session_files import SHOWN_TYPES

Side = Literal["person", "agent", "tool", "note"]
BlockKind = Literal["words", "thought", "call", "result", "file"]

# Longer texts are cut, and the page says by how much.
MAX_SHOWN: Final = 4_000
_MAX_NAME: Final = 80
_MAX_PREVIEW: Final = 120
_SIDES: Final[dict[str, Side]] = {USER: "person", ASSISTANT: "agent", TOOL: "tool"}
_NAMES: Final = {
    USER: "Person", ASSISTANT: "Agent", TOOL: "Tool", SYSTEM: "System", SUMMARY: "Summary",
}  # fmt: skip


class EntryBlock(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a message. `left` is the number of characters that are not shown.

    `href` is the address of a file that is stored; `is_picture` if a browser can show it.
    """

    kind: BlockKind
    html: Markup
    label: str = ""
    preview: str = ""
    left: int = 0
    href: str = ""
    is_picture: bool = False


class TranscriptItem(msgspec.Struct, frozen=True, kw_only=True):
    """A message on a page; `day` is set if it is the first one of its day."""

    id: int
    turn: int
    role: str
    side: Side
    name: str
    kind: str | None
    at: datetime
    day: date | None
    blocks: tuple[EntryBlock, ...]
    text: str
    is_cut: bool


async def show_entries(
    messages: Sequence[Any],
    *,
    full: int | None = None,
    person: str | None = None,
    session: str | None = None,
    is_raw: bool = False,
) -> list[TranscriptItem]:
    """Return messages (`seq`, `turn`, `role`, `kind`, `at`, `author`, `body`) as entries.

    The message at position `full` is not cut. `person` is the name of whoever wrote the messages
    without an author of their own: in a private chat there is only one. The files of a `session`
    have an address. With `is_raw` the agent's Markdown is shown as it was written.
    """
    drafts = [(message, list(_parts(message))) for message in messages]
    limits = [None if message.seq == full else MAX_SHOWN for message, _ in drafts]
    agent_texts = [
        text[:limit]
        for (message, parts), limit in zip(drafts, limits, strict=True)
        for kind, _, text in parts
        if not is_raw and _is_markdown(message.role, kind)
    ]
    rendered = iter(await render_texts(agent_texts))
    entries, last_day = [], None
    for (message, parts), limit in zip(drafts, limits, strict=True):
        blocks = tuple(
            _block(
                kind,
                label,
                text,
                limit,
                next(rendered) if not is_raw and _is_markdown(message.role, kind) else None,
            )
            for kind, label, text in parts
        )
        blocks += tuple(_stored_files(message, session))
        day = message.at.astimezone(zone()).date()
        entries.append(_entry(message, blocks, parts, None if day == last_day else day, person))
        last_day = day
    return entries


def _is_markdown(role: str, kind: BlockKind) -> bool:
    return kind == "words" and role in (ASSISTANT, SUMMARY)


def _entry(
    message: Any,
    blocks: tuple[EntryBlock, ...],
    parts: list[tuple[BlockKind, str, str]],
    day: date | None,
    person: str | None,
) -> TranscriptItem:
    return TranscriptItem(
        id=message.seq,
        turn=message.turn,
        role=message.role,
        side=_SIDES.get(message.role, "note"),
        name=_speaker(message, person),
        kind=message.kind,
        at=message.at,
        day=day,
        blocks=blocks,
        text="\n".join(text for kind, _, text in parts if kind == "words"),
        is_cut=any(block.left for block in blocks),
    )


def _block(
    kind: BlockKind, label: str, text: str, limit: int | None, html: Markup | None
) -> EntryBlock:
    return EntryBlock(
        kind=kind,
        label=display_line(label, _MAX_NAME),
        html=html if html is not None else plain_html(text[:limit]),
        preview=display_line(text[: _MAX_PREVIEW * 4], _MAX_PREVIEW),
        left=0 if limit is None else max(0, len(text) - limit),
    )


def _speaker(message: Any, person: str | None) -> str:
    """Return the name of the author, else of the role; the agent is always called so."""
    author = message.author if isinstance(message.author, Mapping) else {}
    name = author.get("name") or author.get("id") or message.body.get("name")
    role = _NAMES.get(message.role, message.role)
    if message.role == USER and not name:
        name = person
    if not isinstance(name, str) or not name.strip() or message.role == ASSISTANT:
        return display_line(str(role), _MAX_NAME)
    return display_line(name, _MAX_NAME)


def _parts(message: Any) -> Iterator[tuple[BlockKind, str, str]]:
    """Yield kind, label and text of each part of a message."""
    body = message.body
    for field in ("reasoning_content", "reasoning"):
        thought = body.get(field)
        if isinstance(thought, str) and thought.strip():
            yield "thought", "Thought", thought
            break
    whole = whole_text(body) if message.role == TOOL else None
    content = body.get("content") if whole is None else whole
    for part in content if isinstance(content, list) else [content]:
        yield from _content_part(part, message)
    for item in _files(body):
        if not _is_stored(item):
            yield "file", "File", _file_text(item)
    calls = body.get("tool_calls")
    for call in calls if isinstance(calls, list) else []:
        function = call.get("function") if isinstance(call, Mapping) else None
        if isinstance(function, Mapping):
            arguments = function.get("arguments")
            text = arguments if isinstance(arguments, str) else display_json(arguments)
            yield "call", str(function.get("name")), text
        else:
            yield "call", "?", display_json(call)


def _stored_files(message: Any, session: str | None) -> Iterator[EntryBlock]:
    """Yield the files of a message whose bytes are stored, with their addresses."""
    for number, item in enumerate(_files(message.body)):
        if _is_stored(item):
            address = f"{CONSOLE}/files/{session}/{message.seq}/{number}"
            yield file_block(item, href="" if session is None else address)


def file_block(item: Mapping[str, Any], *, href: str = "") -> EntryBlock:
    """Return a stored file as a part of a message; `href` is its address, if it has one."""
    text = _file_text(item)
    return EntryBlock(
        kind="file",
        html=plain_html(text),
        label=display_line(text, _MAX_NAME),
        href=href,
        is_picture=item.get("type") in SHOWN_TYPES,
    )


def _files(body: Mapping[str, Any]) -> list[Any]:
    media = body.get("media")
    return media if isinstance(media, list) else []


def _is_stored(item: Any) -> bool:
    return isinstance(item, Mapping) and is_hash(item.get("hash"))


def _file_text(item: Any) -> str:
    """Return the name and the type of a file, and why it is not there."""
    if not isinstance(item, Mapping):
        return "unknown"
    name = str(item.get("name") or item.get("kind") or "file")
    text = f"{name} ({item.get('mime') or item.get('type') or 'unknown kind'})"
    return f"{text}: {item['problem']}" if item.get("problem") else text


def _content_part(part: Any, message: Any) -> Iterator[tuple[BlockKind, str, str]]:
    if isinstance(part, Mapping) and isinstance(part.get("text"), str):
        part = part["text"]
    if isinstance(part, str):
        if not part.strip():
            return
        if message.role == TOOL:
            yield "result", str(message.body.get("name") or ""), part
        else:
            yield "words", "", part
    elif isinstance(part, Mapping) and isinstance(part.get("type"), str):
        yield "file", "File", describe_part(part)
    elif part is not None:
        yield "words", "", display_json(part)

"""One entry of a transcript, and how it is written down.

A message is kept as it was given: a dict in the OpenAI chat form, unknown fields included. What is
large in it is kept apart by hash, so that reading a transcript does not read its pictures.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import Any

import msgspec

from tertulia.errors import IllegalMove

USER = "user"
ASSISTANT = "assistant"
TOOL = "tool"
SYSTEM = "system"
SUMMARY = "summary"

_ROLES = frozenset((USER, ASSISTANT, TOOL, SYSTEM, SUMMARY))

# What a message is besides its role. The model is shown neither commands nor internal rows.
COMMAND = "command"
INTERNAL = "internal"
DELIVERY = "delivery"
INTERRUPTED = "interrupted"

# A message below the first size stays whole. In a larger one, each text above the second goes away.
INLINE_SIZE = 32_768
PART_SIZE = 8_192

# Lists and dicts in one another: far more than anybody means, far less than any reader's stack.
NESTING = 100

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Path = tuple[str | int, ...]

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


class Message(msgspec.Struct, frozen=True):
    """A message with its place in the log."""

    session: int
    seq: int
    turn: int
    role: str
    kind: str | None
    micros: int
    author: str | None
    body: dict[str, Any]

    @property
    def at(self) -> datetime:
        """When it was stored."""
        return EPOCH + timedelta(microseconds=self.micros)


class ToolCall(msgspec.Struct, frozen=True):
    """A call of a tool: its id, its name, and its arguments as JSON text or as a dict."""

    id: str
    name: str
    arguments: str | Mapping[str, Any] = "{}"

    def to_dict(self) -> dict[str, Any]:
        """The call in the OpenAI form."""
        given = self.arguments
        arguments = given if isinstance(given, str) else to_json(given)
        function = {"name": self.name, "arguments": arguments}
        return {"id": self.id, "type": "function", "function": function}


class Blob(msgspec.Struct, frozen=True):
    """A large text, compressed, under the hash of what it was."""

    hash: str
    size: int
    data: bytes


class Draft(msgspec.Struct, frozen=True):
    """A message made ready to be stored."""

    role: str
    body: str
    away: str | None = None
    blobs: tuple[Blob, ...] = ()


def draft(message: Mapping[str, Any]) -> Draft:
    """Check a message and write it down; nothing that reads it later can fail on it."""
    given: object = message  # callers without a type checker hand in anything
    role = given.get("role") if isinstance(given, dict | Mapping) else None
    if not isinstance(role, str) or not role:
        raise IllegalMove(
            f"A message needs a 'role', this one is {_short(message)}.",
            hint="Give a dict such as {'role': 'user', 'content': 'hello'}.",
        )
    if role not in _ROLES:
        role = _clean(role)
    body = to_json(message)
    return Draft(role, body) if len(body) <= INLINE_SIZE else _apart(role, from_json(body))


def to_json(value: object) -> str:
    """JSON that can be stored anywhere: valid UTF-8, also where the value is not."""
    try:
        written = _written(value)
        if written.count("[") + written.count("{") > NESTING:
            _check_nesting(from_json(written))
    except (TypeError, ValueError, RecursionError) as problem:
        raise IllegalMove(
            f"This cannot be stored as JSON: {problem}.",
            hint="Give text, numbers, lists and dicts with text keys only.",
        ) from problem
    return written


def from_json(text: str) -> Any:
    try:
        return _decode(text)
    except msgspec.DecodeError:
        return json.loads(text)


def restore(body: str, away: str, fetch: Callable[[str], bytes]) -> dict[str, Any]:
    """The message with its large parts put back; `fetch` gives the data of a blob."""
    message = from_json(body)
    for path, name in from_json(away):
        holder = message
        for step in path[:-1]:
            holder = holder[step]
        holder[path[-1]] = zlib.decompress(fetch(name)).decode("utf-8", "surrogatepass")
    return message  # type: ignore[no-any-return]


def text_of(message: Mapping[str, Any]) -> str:
    """The words of a message: its content, or the text parts of it."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    texts = (part.get("text") for part in content if isinstance(part, Mapping))
    return "\n".join(text for text in texts if isinstance(text, str))


def _apart(role: str, message: dict[str, Any]) -> Draft:
    away: list[tuple[Path, str]] = []
    blobs: dict[str, Blob] = {}
    for holder, path, text in list(_large_texts(message, ())):
        raw = text.encode("utf-8", "surrogatepass")
        name = blake2b(raw, digest_size=20).hexdigest()
        blobs[name] = Blob(name, len(raw), zlib.compress(raw, 1))
        away.append((path, name))
        holder[path[-1]] = None
    written = to_json(away) if away else None
    return Draft(role, to_json(message), written, tuple(blobs.values()))


def _large_texts(holder: Any, path: Path) -> Iterator[tuple[Any, Path, str]]:
    items = holder.items() if isinstance(holder, dict) else enumerate(holder)
    for step, value in items:
        if isinstance(value, str):
            if len(value) > PART_SIZE:
                yield holder, (*path, step), value
        elif isinstance(value, dict | list):
            yield from _large_texts(value, (*path, step))


def _written(value: object) -> str:
    try:
        return _encode(value).decode()
    except UnicodeEncodeError:
        # Half a surrogate pair is not text, yet platforms deliver it. Escaped, it survives.
        return json.dumps(value, ensure_ascii=True, separators=(",", ":"), default=_plain)


def _plain(value: object) -> object:
    """What `json` does not know, as the other encoder would write it."""
    return msgspec.to_builtins(value, str_keys=True)


def _check_nesting(value: object) -> None:
    level = [value]
    for _ in range(NESTING + 1):
        level = [
            part
            for holder in level
            if isinstance(holder, dict | list)
            for part in (holder.values() if isinstance(holder, dict) else holder)
        ]
        if not level:
            return
    raise ValueError(f"it is nested more than {NESTING} levels deep")


def _clean(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def _short(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= 80 else f"{shown[:77]}…"

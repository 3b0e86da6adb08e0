"""One entry of a transcript, and its stored form.

A message is stored as the caller passed it: a dict in the OpenAI chat form, with unknown fields.
Large texts in it are stored separately by hash, so that reading a transcript does not read its
pictures.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import Any

import msgspec

from tertulia.core.media import hashes_of, to_dicts
from tertulia.core.text.excerpt import log_line, short_repr
from tertulia.core.text.storable import storable
from tertulia.errors import IllegalMove

USER = "user"
ASSISTANT = "assistant"
TOOL = "tool"
SYSTEM = "system"
SUMMARY = "summary"

_ROLES = frozenset((USER, ASSISTANT, TOOL, SYSTEM, SUMMARY))

# The kind of a message, besides its role. Commands and internal rows are not shown to the model.
COMMAND = "command"
INTERNAL = "internal"
DELIVERY = "delivery"
INTERRUPTED = "interrupted"

# A message up to the first size is stored inline. In a larger one, each text above the second size
# is stored separately.
INLINE_SIZE = 32_768
PART_SIZE = 8_192

_CALL_LENGTH = 200  # of a tool call that is shown in one line

# Levels of nested lists and dicts: far more than real messages have, far fewer than would overflow
# the stack of a JSON parser.
MAX_NESTING = 100

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

# The keys and indexes that lead to a value within a message.
Path = tuple[str | int, ...]

# In this order, and not as a union that would be built for every message: nearly all are dicts.
_DICTS = (dict, Mapping)

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


class Message(msgspec.Struct, frozen=True):
    """A stored message with its position in the log."""

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
        """Return the time when it was stored."""
        # By position: timedelta takes three times as long for an argument with a name.
        return EPOCH + timedelta(0, 0, self.micros)


class ToolCall(msgspec.Struct, frozen=True):
    """A call of a tool: its id, its name, and its arguments as JSON text or as a dict."""

    id: str
    name: str
    arguments: str | Mapping[str, Any] = "{}"

    def to_dict(self) -> dict[str, Any]:
        """Return the call in the OpenAI form."""
        arguments = self.arguments
        if not isinstance(arguments, str):
            arguments = to_json(arguments)
        function = {"name": self.name, "arguments": arguments}
        return {"id": self.id, "type": "function", "function": function}


def describe_call(call: ToolCall) -> str:
    """Return a tool call in one line for people: weather(city="Sevilla")."""
    arguments: object = call.arguments
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            return log_line(f"{call.name}({arguments})", _CALL_LENGTH)
    if not isinstance(arguments, Mapping):
        return log_line(f"{call.name}({arguments!r})", _CALL_LENGTH)
    values = (
        f"{name}={json.dumps(value, ensure_ascii=False, default=str)}"
        for name, value in arguments.items()
    )
    return log_line(f"{call.name}({', '.join(values)})", _CALL_LENGTH)


class Blob(msgspec.Struct, frozen=True, gc=False):
    """A large text, compressed, under the hash of its uncompressed bytes.

    `data` is None for a file that is stored already and only linked.
    """

    hash: str
    size: int
    data: bytes | None


class Draft(msgspec.Struct, frozen=True, gc=False):
    """A message in its stored form; `away` lists the paths of the texts that are in `blobs`."""

    role: str
    body: str
    away: str | None = None
    blobs: tuple[Blob, ...] = ()


def draft(message: Mapping[str, Any]) -> Draft:
    """Check a message and encode it, so that no later read can fail on it.

    Raise `IllegalMove` if it has no role or cannot be stored as JSON.
    """
    value: object = message  # callers without a type checker may pass anything
    role = value.get("role") if isinstance(value, _DICTS) else None
    if not isinstance(role, str) or not role:
        raise IllegalMove(
            f"The message has no 'role': {short_repr(message)}.",
            hint="Give a dict such as {'role': 'user', 'content': 'hello'}.",
        )
    if role not in _ROLES:
        role = storable(role)
    files: tuple[Blob, ...] = ()
    if "media" in message:
        message = {**message, "media": to_dicts(message["media"])}
        files = _linked_files(message["media"])
    body = to_json(message)
    if len(body) <= INLINE_SIZE:
        return Draft(role, body, None, files)
    stored = _draft_with_blobs(role, from_json(body))
    return msgspec.structs.replace(stored, blobs=(*stored.blobs, *files)) if files else stored


def blob_of_file(hash_: str) -> str:
    """Return the name of the blob with the bytes of a file."""
    return f"media:{hash_}"


def _linked_files(files: Any) -> tuple[Blob, ...]:
    """Return the files that a message names, to be linked with it."""
    if not isinstance(files, list | tuple):
        return ()
    hashes = {
        hash_: None for file in files if isinstance(file, Mapping) for hash_ in hashes_of(file)
    }
    return tuple(Blob(blob_of_file(hash_), 0, None) for hash_ in hashes)


def to_json(value: object) -> str:
    """Return JSON that every database can store: valid UTF-8 even if the value is not.

    Raise `IllegalMove` if the value cannot be written as JSON or is nested too deeply.
    """
    try:
        try:
            text = _encode(value).decode()
        except UnicodeEncodeError:
            # An unpaired surrogate is not valid text, yet platforms deliver it; escaped, it stays.
            text = json.dumps(value, ensure_ascii=True, separators=(",", ":"), default=_to_builtins)
        # Few messages contain a list or a second object; to look takes less time than to count.
        if "[" in text or text.find("{", 1) > 0:
            _check_nesting(text)
    except (TypeError, ValueError, RecursionError) as problem:
        raise IllegalMove(
            f"This cannot be stored as JSON: {problem}.",
            hint="Use only text, numbers, lists, and dicts with text keys.",
        ) from problem
    return text


def from_json(text: str) -> Any:
    """Return the value of JSON that `to_json` wrote, unpaired surrogates included."""
    try:
        return _decode(text)
    except msgspec.DecodeError:
        return json.loads(text)


def restore(body: str, away: str, fetch: Callable[[str], bytes]) -> dict[str, Any]:
    """Return the message with its large texts put back; `fetch` reads the data of a blob."""
    message = from_json(body)
    for path, name in from_json(away):
        holder = message
        for step in path[:-1]:
            holder = holder[step]
        holder[path[-1]] = zlib.decompress(fetch(name)).decode("utf-8", "surrogatepass")
    return message  # type: ignore[no-any-return]


def text_of(message: Mapping[str, Any]) -> str:
    """Return the text of a message: its content, or the text parts of it."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    texts = (part.get("text") for part in content if isinstance(part, Mapping))
    return "\n".join(text for text in texts if isinstance(text, str))


def _draft_with_blobs(role: str, message: dict[str, Any]) -> Draft:
    away: list[tuple[Path, str]] = []
    blobs: dict[str, Blob] = {}
    for holder, path, text in list(_large_texts(message, ())):
        raw = text.encode("utf-8", "surrogatepass")
        name = blake2b(raw, digest_size=20).hexdigest()
        blobs[name] = Blob(name, len(raw), zlib.compress(raw, 1))
        away.append((path, name))
        holder[path[-1]] = None
    paths = to_json(away) if away else None
    return Draft(role, to_json(message), paths, tuple(blobs.values()))


def _large_texts(holder: Any, path: Path) -> Iterator[tuple[Any, Path, str]]:
    items = holder.items() if isinstance(holder, dict) else enumerate(holder)
    for step, value in items:
        if isinstance(value, str):
            if len(value) > PART_SIZE:
                yield holder, (*path, step), value
        elif isinstance(value, dict | list):
            yield from _large_texts(value, (*path, step))


def _to_builtins(value: object) -> object:
    """Convert a value that `json` does not support, as the other encoder would."""
    return msgspec.to_builtins(value, str_keys=True)


def _check_nesting(text: str) -> None:
    """Raise ValueError if lists and dicts are nested too deeply in a JSON text."""
    if text.count("[") + text.count("{") <= MAX_NESTING:
        return
    level = [from_json(text)]
    for _ in range(MAX_NESTING + 1):
        level = [
            part
            for holder in level
            if isinstance(holder, dict | list)
            for part in (holder.values() if isinstance(holder, dict) else holder)
        ]
        if not level:
            return
    raise ValueError(f"it is nested more than {MAX_NESTING} levels deep")

"""What a model accepts, and how whatever was stored becomes that.

A history is a list of blocks. A block is what a person said, or one assistant message with exactly
one result for each of its tool calls, in the order of the calls. Written out block after block,
that is a sequence the OpenAI and the Anthropic API accept, and cutting between blocks leaves one.

`blocks` is total: any stored rows give legal blocks, and rows that are legal come out as they are.
Damage is mended where it stands, and nothing else is thrown away for it:

- commands, internal rows and rows of roles the model does not know are left out first;
- a result goes to the newest call before it that has its id, wherever the result stands;
- a second result for a call is dropped, and so is one without a call;
- a call without a result gets one that says so;
- a call id that was used before gets a mark, so that ids are unique;
- an assistant message that says and calls nothing is left out, a person's empty message is not.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from tertulia.core.message import (
    ASSISTANT,
    COMMAND,
    DELIVERY,
    INTERNAL,
    SUMMARY,
    TOOL,
    USER,
    Message,
)

INTERRUPTED_RESULT = "[interrupted: this call was cut off, its outcome is unknown]"
EMPTY_PERSON = "[empty message]"
UNNAMED_TOOL = "unnamed_tool"

HIDDEN = (COMMAND, INTERNAL)
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_NOT_IN_NAME = re.compile(r"[^A-Za-z0-9_-]")
_SURROGATE = re.compile("[\ud800-\udfff]")


class Result(msgspec.Struct):
    """The result of one call: the stored row, or None where it never came."""

    call_id: str
    row: Message | None = None


class Block(msgspec.Struct):
    """A person's message, or a step: an assistant message and the results of its calls."""

    row: Message
    calls: list[dict[str, Any]] = []
    results: list[Result] = []

    @property
    def is_person(self) -> bool:
        return self.row.role in (USER, SUMMARY)

    @property
    def is_delivery(self) -> bool:
        return self.row.kind == DELIVERY

    @property
    def size(self) -> int:
        """How many messages it is written as."""
        return 1 + len(self.results)


def blocks(rows: Iterable[Message]) -> list[Block]:
    """The legal blocks of stored rows."""
    found: list[Block] = []
    used: set[str] = set()
    open_calls: dict[str, Result] = {}
    step: Block | None = None
    early: dict[tuple[int, str], Message] = {}
    for row in rows:
        role = row.role
        if row.kind in HIDDEN:
            continue
        if role == TOOL:
            _place_result(row, open_calls, step, early)
        elif role in (USER, SUMMARY):
            found.append(Block(row))
        elif role == ASSISTANT:
            calls = row.body.get("tool_calls")
            if calls:
                step = _step(row, calls, used, open_calls, early)
                if step.calls or says_something(row.body):
                    found.append(step)
            elif says_something(row.body):
                found.append(Block(row))
    return found


def says_something(body: Mapping[str, Any]) -> bool:
    """Whether a message has content that is worth a message."""
    content = body.get("content")
    if isinstance(content, str):
        return bool(content.strip())
    if isinstance(content, list):
        return any(_part_says(part) for part in content)
    return content is not None and not isinstance(content, bool | list | dict)


def sound(text: str) -> str:
    """Valid Unicode: halves of surrogate pairs are replaced."""
    return _SURROGATE.sub("\ufffd", text) if not text.isascii() else text


def tool_name(name: object) -> str:
    """A name that every provider takes."""
    if not isinstance(name, str) or not name:
        return UNNAMED_TOOL
    return name if _NAME.fullmatch(name) else _NOT_IN_NAME.sub("_", name)[:64]


def _part_says(part: object) -> bool:
    if isinstance(part, str):
        return bool(part.strip())
    if not isinstance(part, Mapping):
        return False
    text = part.get("text")
    return bool(text.strip()) if isinstance(text, str) else part.get("type") != "text"


def _place_result(
    row: Message,
    open_calls: dict[str, Result],
    step: Block | None,
    early: dict[tuple[int, str], Message],
) -> None:
    call_id = row.body.get("tool_call_id")
    if not isinstance(call_id, str) or not call_id:
        # Without an id, the order tells: it is the first call of the last step without a result.
        waiting = [result for result in step.results if result.row is None] if step else []
        if waiting:
            waiting[0].row = row
        return
    result = open_calls.get(call_id)
    if result is None:
        early.setdefault((row.turn, call_id), row)
    elif result.row is None:
        result.row = row


def _step(
    row: Message,
    calls: object,
    used: set[str],
    open_calls: dict[str, Result],
    early: dict[tuple[int, str], Message],
) -> Block:
    step = Block(row, [], [])
    for call in calls if isinstance(calls, list) else []:
        if not isinstance(call, dict):
            continue
        given = call.get("id")
        wanted = given if isinstance(given, str) and given else f"call_{row.seq}_{len(step.calls)}"
        call_id = _unique(sound(wanted), used)
        result = Result(call_id)
        if isinstance(given, str):
            # A result that stands before its call, in the same turn.
            result.row = early.pop((row.turn, given), None)
            open_calls[given] = result
        step.calls.append(_sound_call(call, call_id))
        step.results.append(result)
    return step


def _unique(wanted: str, used: set[str]) -> str:
    found = wanted
    number = 2
    while found in used:
        found = f"{wanted}_{number}"
        number += 1
    used.add(found)
    return found


def _sound_call(call: dict[str, Any], call_id: str) -> dict[str, Any]:
    """The call in the OpenAI form; one that has it already is kept with all its fields."""
    function = call.get("function")
    if not isinstance(function, Mapping):
        function = {"name": call.get("name"), "arguments": call.get("arguments")}
    name, arguments = tool_name(function.get("name")), _arguments(function.get("arguments"))
    is_sound = name == function.get("name") and arguments == function.get("arguments")
    if is_sound and call_id == call.get("id") and call.get("type") == "function":
        return call
    kept = {key: value for key, value in call.items() if key not in ("name", "arguments")}
    return {
        **kept,
        "id": call_id,
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }


def _arguments(arguments: object) -> str:
    if isinstance(arguments, str):
        return sound(arguments) if arguments.strip() else "{}"
    if arguments is None:
        return "{}"
    return sound(json.dumps(arguments, ensure_ascii=False))

"""What a model accepts, and how whatever was stored becomes that.

A history is a list of blocks. A block is what a person said, or one assistant message with exactly
one result for each of its tool calls, in the order of the calls. Written out block after block,
that is a sequence the OpenAI and the Anthropic API accept, and cutting between blocks leaves one.

`blocks` is total: any stored rows give legal blocks, and rows that are legal come out as they are.
Damage is mended where it stands, and nothing else is thrown away for it:

- commands, internal rows and rows of roles the model does not know are left out first;
- a result goes to the newest call before it that has its id, wherever the result stands; one that
  stands before its call goes there if no other does;
- a second result for a call is dropped, and so is one without a call;
- a call without a result gets one that says so;
- an assistant message that says and calls nothing is left out, a person's empty message is not.

`unique` comes after the window was cut, so that a call id depends on nothing that is not shown: a
call id that was used before in what is shown gets a mark.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Any

import msgspec

from tertulia.core.history.content import (
    sound,
    sound_value,
    speaks,
)
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
PEOPLE = (USER, SUMMARY)
SHOWN = (USER, ASSISTANT, TOOL, SUMMARY)

# The chat completions API refuses a longer id.
LONGEST_ID = 40

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_NOT_IN_NAME = re.compile(r"[^A-Za-z0-9_-]")
# The fields of a call as other APIs write it, which have their place in `function` here.
_ELSEWHERE = ("name", "arguments", "input", "custom")


class Result(msgspec.Struct):
    """The result of one call: the stored row, or None where it never came."""

    call_id: str
    row: Message | None = None


class Block(msgspec.Struct):
    """A person's message, or a step: an assistant message and the results of its calls."""

    row: Message
    calls: list[dict[str, Any]] = []
    results: Sequence[Result] = ()

    @property
    def is_person(self) -> bool:
        return self.row.role in PEOPLE

    @property
    def is_delivery(self) -> bool:
        """Whether it is words that the agent sent unasked."""
        return self.row.kind == DELIVERY and not self.results and not self.is_person

    @property
    def size(self) -> int:
        """How many messages it is written as."""
        return 1 + len(self.results)


def blocks(rows: Iterable[Message]) -> list[Block]:
    """The legal blocks of stored rows; call ids are as they were given."""
    found: list[Block] = []
    callers: dict[str, Block] = {}
    early: list[Message] = []
    step: Block | None = None
    for row in rows:
        role = row.role
        if row.kind is not None and row.kind in HIDDEN:
            continue
        if role in PEOPLE:
            found.append(Block(row))
        elif role == ASSISTANT:
            calls = row.body.get("tool_calls")
            if calls and (made := _step(row, calls)).calls:
                found.append(step := made)
                for result in step.results:
                    callers[result.call_id] = step
            elif speaks(words_of(row.body)):
                found.append(Block(row))
        elif role == TOOL and not _has_placed(row, callers, step):
            early.append(row)
    if early:
        _place_early(early, found)
    return found


def unique(found: Iterable[Block]) -> None:
    """Give every call an id that no other has, and that every provider takes."""
    used: dict[str, int] = {}
    for block in found:
        for place, result in enumerate(block.results):
            wanted = result.call_id
            if wanted in used or len(wanted) > LONGEST_ID or not wanted.isascii():
                result.call_id = wanted = _unused(_fitting(wanted), used)
                block.calls[place] = {**block.calls[place], "id": wanted}
            used[wanted] = 1


def words_of(body: Mapping[str, Any]) -> Any:
    """The content of an assistant message; a refusal has a field of its own."""
    content = body.get("content")
    return body.get("refusal") if content is None else content


@lru_cache(maxsize=1024)
def tool_name(name: str) -> str:
    """A name that every provider takes."""
    if _NAME.fullmatch(name):
        return name
    return _NOT_IN_NAME.sub("_", name)[:64] or UNNAMED_TOOL


def _has_placed(row: Message, callers: Mapping[str, Block], last: Block | None) -> bool:
    """Give a result to its call; False if its call may still come."""
    call_id = _id(row.body.get("tool_call_id"))
    # Without an id the order tells: it is for the first call of the last step without a result.
    step = callers.get(call_id) if call_id else last
    if step is None:
        return not call_id
    for result in step.results:
        if result.row is None and (result.call_id == call_id or not call_id):
            result.row = row
            return True
    return not call_id or step.row.turn == row.turn


def _place_early(early: list[Message], found: Iterable[Block]) -> None:
    """Give results that stand before their call to it, within one turn."""
    waiting: dict[tuple[int, str], Message] = {}
    for row in early:
        waiting.setdefault((row.turn, _id(row.body.get("tool_call_id"))), row)
    for block in found:
        for result in block.results:
            if result.row is None:
                result.row = waiting.pop((block.row.turn, result.call_id), None)


def _step(row: Message, given: object) -> Block:
    calls: list[dict[str, Any]] = []
    results: list[Result] = []
    for call in given if isinstance(given, list) else [given]:
        if isinstance(call, dict):
            call_id = _id(call.get("id")) or f"call_{row.seq}_{len(calls)}"
            calls.append(call if _is_sound(call) else _sound_call(call, call_id))
            results.append(Result(call_id))
    return Block(row, calls, results)


def _id(given: object) -> str:
    if isinstance(given, str):
        return given
    return str(given) if isinstance(given, int) else ""


def _fitting(call_id: str) -> str:
    """The id in valid Unicode and short enough; a long one keeps its head and a hash of it all."""
    if len(call_id) > LONGEST_ID:
        raw = call_id.encode("utf-8", "surrogatepass")
        call_id = f"{call_id[: LONGEST_ID - 9]}_{blake2b(raw, digest_size=4).hexdigest()}"
    return sound(call_id)


def _unused(wanted: str, used: dict[str, int]) -> str:
    found = wanted
    while found in used:
        # How often it was used is remembered, for some providers call everything call_0.
        used[wanted] += 1
        mark = f"_{used[wanted]}"
        found = wanted[: LONGEST_ID - len(mark)] + mark
    return found


def _is_sound(call: dict[str, Any]) -> bool:
    """Whether a call is in the OpenAI form and nothing else: nearly all are."""
    function = call.get("function")
    if len(call) != 3 or type(function) is not dict or len(function) != 2:
        return False
    name, arguments, call_id = function.get("name"), function.get("arguments"), call.get("id")
    if not (type(name) is type(arguments) is type(call_id) is str) or not arguments:
        return False
    is_named = tool_name(name) == name and call_id != "" and call.get("type") == "function"
    return is_named and not arguments.isspace()


def _sound_call(call: dict[str, Any], call_id: str) -> dict[str, Any]:
    """The call in the OpenAI form, with whatever else its provider put there."""
    function = call.get("function") or call.get("custom")
    if not isinstance(function, Mapping):
        function = call
    name = function.get("name")
    kept = {key: value for key, value in call.items() if key not in _ELSEWHERE}
    return {
        **sound_value(kept),
        "id": call_id,
        "type": "function",
        "function": {
            "name": tool_name(name) if isinstance(name, str) else UNNAMED_TOOL,
            "arguments": _arguments(function.get("arguments", function.get("input"))),
        },
    }


def _arguments(arguments: object) -> str:
    if isinstance(arguments, str):
        return arguments if speaks(arguments) else "{}"
    return "{}" if arguments is None else json.dumps(arguments, ensure_ascii=False)

"""Repair of stored messages into a legal history that every model accepts.

A history is a list of blocks. A block is a message of a person, or one assistant message with
exactly one result for each of its tool calls, in the order of the calls. The OpenAI and the
Anthropic API accept such blocks written one after the other, and also after a cut between blocks.

`build_blocks` is total: any stored rows give legal blocks, and legal rows come out unchanged.
Damage is repaired in place, and nothing else is dropped because of it:

- commands, internal rows and rows of roles the model does not know are left out first;
- a result goes to the newest call before it that has its id, at any distance; a result before its
  call goes to that call if there is no other result for it;
- a result without an id goes to the first call of the step before it that no other result names;
- a second result for a call is dropped, and so is a result without a call;
- a call without a result gets one that says so;
- arguments that are not JSON become the only argument of the call;
- an assistant message without content and calls is left out, a person's empty message is not.

`make_call_ids_unique` runs after the window was cut, so that a call id depends only on messages in
the history: a call id that an earlier message of the history uses gets a suffix.
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
    has_content,
    is_json_object,
    make_json_safe,
    replace_invalid,
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
EMPTY_MESSAGE = "[empty message]"
UNNAMED_TOOL = "unnamed_tool"

HIDDEN_KINDS = (COMMAND, INTERNAL)
USER_ROLES = (USER, SUMMARY)
HISTORY_ROLES = (USER, ASSISTANT, TOOL, SUMMARY)

# The chat completions API refuses a longer id.
MAX_ID_LENGTH = 40

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_NOT_IN_NAME = re.compile(r"[^A-Za-z0-9_-]")
# The fields of a call in other APIs that belong into `function` here.
_FUNCTION_FIELDS = ("name", "arguments", "input", "custom")


class Result(msgspec.Struct):
    """The result of one call: the stored row, or None if there is none."""

    call_id: str
    row: Message | None = None


class Block(msgspec.Struct):
    """A person's message, or a step: an assistant message and the results of its calls."""

    row: Message
    calls: list[dict[str, Any]] = []
    results: Sequence[Result] = ()

    @property
    def is_person(self) -> bool:
        """Return whether it is a message of a person, or a summary, which models read as one."""
        return self.row.role in USER_ROLES

    @property
    def is_delivery(self) -> bool:
        """Return whether it is a message that the agent sent without a question."""
        return self.row.kind == DELIVERY and not self.results and not self.is_person

    @property
    def size(self) -> int:
        """Return the number of messages it is rendered as."""
        return 1 + len(self.results)


def build_blocks(rows: Iterable[Message]) -> list[Block]:
    """Return the legal blocks of stored rows; call ids stay as they were stored."""
    history: list[Block] = []
    callers: dict[str, Block] = {}
    early: list[Message] = []
    unnamed: list[tuple[Message, Block]] = []
    step: Block | None = None
    for row in rows:
        role = row.role
        if row.kind is not None and row.kind in HIDDEN_KINDS:
            continue
        if role in USER_ROLES:
            history.append(Block(row))
        elif role == ASSISTANT:
            calls = row.body.get("tool_calls")
            if calls and (block := _build_step(row, calls)).calls:
                history.append(step := block)
                for result in step.results:
                    callers[result.call_id] = step
            elif has_content(assistant_content(row.body)):
                history.append(Block(row))
        elif role == TOOL:
            call_id = _as_id(row.body.get("tool_call_id"))
            if not call_id and step is not None:
                unnamed.append((row, step))
            elif call_id and not _assign_result(row, call_id, callers):
                early.append(row)
    if early:
        _assign_early_results(early, history)
    for row, block in unnamed:
        _assign_unnamed_result(row, block)
    return history


def make_call_ids_unique(history: Iterable[Block]) -> None:
    """Give every call a unique id that every provider accepts."""
    used: dict[str, int] = {}
    for block in history:
        for index, result in enumerate(block.results):
            call_id = result.call_id
            if call_id in used or not is_legal_id(call_id):
                result.call_id = call_id = _find_unused_id(_shorten_id(call_id), used)
                block.calls[index] = {**block.calls[index], "id": call_id}
            used[call_id] = 1


def is_legal_id(call_id: str) -> bool:
    """Return whether an id of a call can stay as it is."""
    return len(call_id) <= MAX_ID_LENGTH and call_id.isascii() and "\0" not in call_id


def assistant_content(body: Mapping[str, Any]) -> Any:
    """Return the content of an assistant message; a refusal has a field of its own."""
    content = body.get("content")
    return body.get("refusal") if content is None else content


@lru_cache(maxsize=1024)
def tool_name(name: str) -> str:
    """Return the name in a form that every provider accepts."""
    if _NAME.fullmatch(name):
        return name
    return _NOT_IN_NAME.sub("_", name)[:64] or UNNAMED_TOOL


def _assign_result(row: Message, call_id: str, callers: Mapping[str, Block]) -> bool:
    """Assign a result to its call, or drop it; return False if its call may still come."""
    step = callers.get(call_id)
    if step is None:
        return False
    for result in step.results:
        if result.row is None and result.call_id == call_id:
            result.row = row
            return True
    return step.row.turn == row.turn


def _assign_unnamed_result(row: Message, step: Block) -> None:
    """Assign a result without an id to the first call of its step that has no result."""
    for result in step.results:
        if result.row is None:
            result.row = row
            return


def _assign_early_results(early: list[Message], history: Iterable[Block]) -> None:
    """Assign results that come before their call to it, within one turn."""
    waiting: dict[tuple[int, str], Message] = {}
    for row in early:
        waiting.setdefault((row.turn, _as_id(row.body.get("tool_call_id"))), row)
    for block in history:
        for result in block.results:
            if result.row is None:
                result.row = waiting.pop((block.row.turn, result.call_id), None)


def _build_step(row: Message, stored: object) -> Block:
    calls: list[dict[str, Any]] = []
    results: list[Result] = []
    for call in stored if isinstance(stored, list) else [stored]:
        if isinstance(call, dict):
            call_id = _as_id(call.get("id")) or f"call_{row.seq}_{len(calls)}"
            calls.append(call if is_legal_call(call) else _repair_call(call, call_id))
            results.append(Result(call_id))
    return Block(row, calls, results)


def _as_id(value: object) -> str:
    if isinstance(value, str):
        return value
    return str(value) if isinstance(value, int) else ""


def _shorten_id(call_id: str) -> str:
    """Return the id in valid Unicode and short enough: the head of a long one and its hash."""
    if len(call_id) > MAX_ID_LENGTH:
        raw = call_id.encode("utf-8", "surrogatepass")
        call_id = f"{call_id[: MAX_ID_LENGTH - 9]}_{blake2b(raw, digest_size=4).hexdigest()}"
    return replace_invalid(call_id)


def _find_unused_id(call_id: str, used: dict[str, int]) -> str:
    candidate = call_id
    while candidate in used:
        # The number of uses is remembered, because some providers name every call call_0.
        used[call_id] += 1
        suffix = f"_{used[call_id]}"
        candidate = call_id[: MAX_ID_LENGTH - len(suffix)] + suffix
    return candidate


def is_legal_call(call: dict[str, Any]) -> bool:
    """Return whether a call is in the OpenAI form and nothing else, as nearly all are."""
    function = call.get("function")
    if len(call) != 3 or type(function) is not dict or len(function) != 2:
        return False
    name, arguments, call_id = function.get("name"), function.get("arguments"), call.get("id")
    if not (type(name) is type(arguments) is type(call_id) is str) or not arguments:
        return False
    is_named = tool_name(name) == name and call_id != "" and call.get("type") == "function"
    return is_named and (arguments == "{}" or is_json_object(arguments))


def _repair_call(call: dict[str, Any], call_id: str) -> dict[str, Any]:
    """Return the call in the OpenAI form, with the extra fields of its provider."""
    function = call.get("function") or call.get("custom")
    if not isinstance(function, Mapping):
        function = call
    name = function.get("name")
    extra = {key: value for key, value in call.items() if key not in _FUNCTION_FIELDS}
    return {
        **make_json_safe(extra),
        "id": call_id,
        "type": "function",
        "function": {
            "name": tool_name(name) if isinstance(name, str) else UNNAMED_TOOL,
            "arguments": _arguments_text(function.get("arguments", function.get("input"))),
        },
    }


def _arguments_text(arguments: object) -> str:
    """Return the arguments of a call as a JSON object; servers refuse the request for others."""
    if arguments is None or (isinstance(arguments, str) and not has_content(arguments)):
        return "{}"
    if isinstance(arguments, str):
        text = replace_invalid(arguments)
    else:
        text = json.dumps(make_json_safe(arguments), ensure_ascii=False)
    return text if is_json_object(text) else json.dumps({"arguments": text}, ensure_ascii=False)

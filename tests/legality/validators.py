"""The documented rules of the providers, checked message by message.

Written from their documentation and the answers of their APIs, and from nothing else: no line of
the package is used here, so that a mistake there cannot be hidden here. Each function yields the
faults as sentences; an empty list means that the API would accept the messages.

- OpenAI chat completions: the reference of `messages`. An assistant message with `tool_calls` must
  be followed by tool messages responding to each `tool_call_id`; `content` is required unless there
  are calls; a tool message takes text only, an assistant message text and refusals. Ids have at
  most 40 characters and names match `^[a-zA-Z0-9_-]{1,64}$`.
- OpenAI responses: the reference of `input`. Each `function_call_output` needs its `function_call`
  before it, and each call its output; both go by `call_id`, of at most 64 characters.
- Anthropic messages: the reference of `messages` and "Handle tool calls". Roles alternate, a user
  begins; text blocks are not blank; each `tool_use` is answered by a `tool_result` in the very next
  message, and results come first there; `input` is an object; ids match `^[a-zA-Z0-9_-]+$` and are
  unique; thinking goes back signed, before other blocks, never as the last one; the last assistant
  message does not end in white space; pictures are of four types, or behind an https address.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

Messages = Sequence[Mapping[str, Any]]

NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
ANTHROPIC_ID = re.compile(r"[a-zA-Z0-9_-]+")
PICTURE_TYPES = ("image/jpeg", "image/png", "image/gif", "image/webp")
DETAILS = ("auto", "low", "high", "original")


def faults(form: str, messages: Messages) -> list[str]:
    """Return the reasons why the API of a format would refuse these messages."""
    return [*_check_json(messages), *CHECKS[form](messages)]


def _check_json(messages: Messages) -> Iterator[str]:
    """Check that the messages can be sent as JSON in UTF-8."""
    try:
        text = json.dumps(messages, ensure_ascii=False, allow_nan=False)
        text.encode("utf-8")
    except (TypeError, ValueError, RecursionError) as problem:
        yield f"it is no JSON in UTF-8: {problem}"
        return
    if "\\u0000" in text.replace("\\\\", ""):
        yield "it contains a NUL, at which some servers cut the prompt"


def _is_object(text: object) -> bool:
    """Return whether a text is a JSON object: some servers refuse other arguments of a call."""
    if not isinstance(text, str):
        return False
    try:
        return isinstance(json.loads(text, parse_constant=_refuse_constant), dict)
    except (ValueError, RecursionError):
        return False


def _refuse_constant(name: str) -> None:
    raise ValueError(name)


def _is_blank(text: object) -> bool:
    return not isinstance(text, str) or not text.strip()


def _extra(fields: Mapping[str, Any], allowed: str, where: str) -> Iterator[str]:
    unknown = set(fields) - set(allowed.split())
    if unknown:
        yield f"{where}: unknown fields {sorted(unknown)}"


def _is_image_url(url: object) -> bool:
    return isinstance(url, str) and url.startswith(("http://", "https://", "data:image/"))


# -- OpenAI chat completions

CHAT_FIELDS = {
    "user": "role content name",
    # `reasoning_content` is what DeepSeek and others that offer this API want back.
    "assistant": "role content name tool_calls reasoning_content refusal",
    "tool": "role content name tool_call_id",
}


def openai(messages: Messages) -> Iterator[str]:
    seen: set[str] = set()
    owed: list[str] = []
    for index, message in enumerate(messages):
        where = f"message {index}"
        role = message.get("role")
        if role not in CHAT_FIELDS:
            yield f"{where}: role {role!r}"
            continue
        yield from _extra(message, CHAT_FIELDS[role], where)
        if "name" in message and not _is_name(message["name"]):
            yield f"{where}: name {message['name']!r}"
        if role == "tool":
            call_id = message.get("tool_call_id")
            if call_id not in owed:
                yield f"{where}: result {call_id!r} without its call right before"
            else:
                owed.remove(call_id)
        elif owed:
            yield f"{where}: calls {owed} have no results before it"
            owed = []
        yield from _chat_content(role, message, where)
        if role == "assistant" and "tool_calls" in message:
            yield from _chat_calls(message["tool_calls"], seen, where)
            owed = [call["id"] for call in message["tool_calls"] if isinstance(call, Mapping)]
    if owed:
        yield f"at the end: calls {owed} have no results"


def _is_name(name: object) -> bool:
    return isinstance(name, str) and NAME.fullmatch(name) is not None


def _chat_content(role: str, message: Mapping[str, Any], where: str) -> Iterator[str]:
    content = message.get("content")
    has_calls = bool(message.get("tool_calls"))
    if content is None:
        if role != "assistant" or not has_calls:
            yield f"{where}: no content"
    elif isinstance(content, str):
        if _is_blank(content) and (role == "user" or (role == "assistant" and not has_calls)):
            yield f"{where}: blank content"
    elif isinstance(content, list) and content:
        for part in content:
            yield from _chat_part(role, part, where)
    else:
        yield f"{where}: content {content!r}"


def _chat_part(role: str, part: Any, where: str) -> Iterator[str]:
    kind = part.get("type") if isinstance(part, dict) else None
    if kind == "text":
        yield from _extra(part, "type text", where)
        if _is_blank(part.get("text")):
            yield f"{where}: blank text part"
    elif kind == "refusal" and role == "assistant":
        yield from _extra(part, "type refusal", where)
        if _is_blank(part.get("refusal")):
            yield f"{where}: blank refusal"
    elif kind == "image_url" and role == "user":
        image = part.get("image_url")
        if not isinstance(image, dict) or not _is_image_url(image.get("url")):
            yield f"{where}: picture {image!r}"
        elif image.get("detail", "auto") not in DETAILS:
            yield f"{where}: detail {image['detail']!r}"
        else:
            yield from _extra(image, "url detail", where)
    elif kind == "input_audio" and role == "user":
        audio = part.get("input_audio")
        if not isinstance(audio, dict) or not audio.get("data"):
            yield f"{where}: audio {audio!r}"
        elif audio.get("format") not in ("wav", "mp3"):
            yield f"{where}: audio format {audio.get('format')!r}"
    elif kind == "file" and role == "user":
        file = part.get("file")
        if not isinstance(file, dict) or not all(isinstance(v, str) for v in file.values()):
            yield f"{where}: file {file!r}"
        elif not file.get("file_id") and not file.get("file_data"):
            yield f"{where}: file without data"
    else:
        yield f"{where}: part {part!r} of {role}"


def _chat_calls(calls: Any, seen: set[str], where: str) -> Iterator[str]:
    if not isinstance(calls, list) or not calls:
        yield f"{where}: tool_calls {calls!r}"
        return
    for call in calls:
        if not isinstance(call, dict):
            yield f"{where}: call {call!r}"
            continue
        call_id, function = call.get("id"), call.get("function")
        if not isinstance(call_id, str) or not 1 <= len(call_id) <= 40:
            yield f"{where}: call id {call_id!r}"
        elif call_id in seen:
            yield f"{where}: call id {call_id!r} again"
        else:
            seen.add(call_id)
        if call.get("type") != "function":
            yield f"{where}: call of type {call.get('type')!r}"
        if not isinstance(function, dict) or not _is_name(function.get("name")):
            yield f"{where}: function {function!r}"
        elif not _is_object(function.get("arguments")):
            yield f"{where}: arguments {function.get('arguments')!r}"
        else:
            yield from _extra(function, "name arguments", where)


# -- OpenAI responses


def responses(items: Messages) -> Iterator[str]:
    called: set[str] = set()
    answered: set[str] = set()
    for index, item in enumerate(items):
        where = f"item {index}"
        kind = item.get("type", "message")
        if kind == "function_call":
            yield from _extra(item, "type call_id name arguments", where)
            yield from _new_call_id(item.get("call_id"), called, where)
            if not _is_name(item.get("name")) or not _is_object(item.get("arguments")):
                yield f"{where}: call {item!r}"
        elif kind == "function_call_output":
            yield from _extra(item, "type call_id output", where)
            if item.get("call_id") not in called:
                yield f"{where}: No tool call found for {item.get('call_id')!r}"
            yield from _new_call_id(item.get("call_id"), answered, where)
            output = item.get("output")
            if isinstance(output, list) and output:
                for part in output:
                    yield from _responses_part("user", part, where)
            elif not isinstance(output, str):
                yield f"{where}: output {output!r}"
        elif kind == "message":
            if called != answered:
                yield f"{where}: calls {called - answered} have no output before it"
            yield from _responses_message(item, where)
        else:
            yield f"{where}: item of type {kind!r}"
    if called != answered:
        yield f"at the end: No tool output found for {called - answered}"


def _new_call_id(call_id: Any, seen: set[str], where: str) -> Iterator[str]:
    if not isinstance(call_id, str) or not 1 <= len(call_id) <= 64 or call_id in seen:
        yield f"{where}: call_id {call_id!r}"
    else:
        seen.add(call_id)


def _responses_message(item: Mapping[str, Any], where: str) -> Iterator[str]:
    yield from _extra(item, "type role content", where)
    role, content = item.get("role"), item.get("content")
    if role not in ("user", "assistant"):
        yield f"{where}: role {role!r}"
    if isinstance(content, str):
        if _is_blank(content):
            yield f"{where}: blank content"
    elif isinstance(content, list) and content:
        for part in content:
            yield from _responses_part(role, part, where)
    else:
        yield f"{where}: content {content!r}"


def _responses_part(role: Any, part: Any, where: str) -> Iterator[str]:
    kind = part.get("type") if isinstance(part, dict) else None
    if kind == ("output_text" if role == "assistant" else "input_text"):
        if _is_blank(part.get("text")):
            yield f"{where}: blank text part"
    elif kind == "input_image" and role == "user":
        if not _is_image_url(part.get("image_url")) or part.get("detail") not in DETAILS:
            yield f"{where}: picture {part!r}"
    elif kind == "input_file" and role == "user":
        if not part.get("file_id") and not part.get("file_data"):
            yield f"{where}: file without data"
    else:
        yield f"{where}: part {part!r} of {role}"


# -- Anthropic messages


def anthropic(messages: Messages) -> Iterator[str]:
    seen: set[str] = set()
    owed: set[str] = set()
    expected = "user"
    for index, message in enumerate(messages):
        where = f"message {index}"
        yield from _extra(message, "role content", where)
        role, content = message.get("role"), message.get("content")
        if role != expected:
            yield f"{where}: role {role!r} instead of {expected!r}"
        expected = "assistant" if role == "user" else "user"
        if not isinstance(content, list) or not content:
            yield f"{where}: content {content!r}"
        elif role == "user":
            yield from _anthropic_user(content, owed, where)
            owed = set()
        else:
            yield from _anthropic_assistant(content, seen, where)
            owed = {block["id"] for block in content if block.get("type") == "tool_use"}
    if owed:
        yield f"at the end: tool_use {owed} without tool_result"
    if messages and messages[-1].get("role") == "assistant":
        text = messages[-1]["content"][-1].get("text", "")
        if text != text.rstrip():
            yield "the last assistant message ends in white space"


def _anthropic_user(content: list[Any], owed: set[str], where: str) -> Iterator[str]:
    answered: list[str] = []
    has_other = False
    for block in content:
        if block.get("type") == "tool_result":
            if has_other:
                yield f"{where}: tool_result after other content"
            yield from _extra(block, "type tool_use_id content is_error", where)
            answered.append(block.get("tool_use_id"))
            for inner in block.get("content", []):
                yield from _anthropic_block(inner, where)
            if block.get("content") == []:
                yield f"{where}: tool_result with an empty list"
        else:
            has_other = True
            yield from _anthropic_block(block, where)
    if len(answered) != len(set(answered)):
        yield f"{where}: multiple tool_result for one tool_use"
    if set(answered) != owed:
        yield f"{where}: results {answered} for calls {owed}"


def _anthropic_block(block: Any, where: str) -> Iterator[str]:
    kind = block.get("type")
    if kind == "text":
        yield from _extra(block, "type text", where)
        if _is_blank(block.get("text")):
            yield f"{where}: blank text"
    elif kind == "image":
        source = block.get("source", {})
        is_data = (
            source.get("type") == "base64"
            and source.get("media_type") in PICTURE_TYPES
            and re.fullmatch(r"[A-Za-z0-9+/]+=*", str(source.get("data"))) is not None
        )
        is_link = source.get("type") == "url" and str(source.get("url")).startswith("https://")
        if not is_data and not is_link:
            yield f"{where}: picture {source!r}"
    elif kind == "document":
        yield from _extra(block, "type source title", where)
        source = block.get("source", {})
        if (source.get("type"), source.get("media_type")) != ("base64", "application/pdf"):
            yield f"{where}: document {source!r}"
        if not isinstance(block.get("title"), str) or not 1 <= len(block["title"]) <= 500:
            yield f"{where}: title {block.get('title')!r}"
    else:
        yield f"{where}: block {block!r} of the user"


def _anthropic_assistant(content: list[Any], seen: set[str], where: str) -> Iterator[str]:
    for block in content:
        kind = block.get("type")
        if kind == "text":
            yield from _anthropic_block(block, where)
        elif kind == "thinking":
            yield from _extra(block, "type thinking signature", where)
            if not isinstance(block.get("thinking"), str) or _is_blank(block.get("signature")):
                yield f"{where}: thinking without a signature"
        elif kind == "redacted_thinking":
            yield from _extra(block, "type data", where)
            if _is_blank(block.get("data")):
                yield f"{where}: redacted thinking without data"
        elif kind == "tool_use":
            yield from _tool_use(block, seen, where)
        else:
            yield f"{where}: block {block!r} of the assistant"
    if content[-1].get("type") in ("thinking", "redacted_thinking"):
        yield f"{where}: the final block cannot be thinking"


def _tool_use(block: Mapping[str, Any], seen: set[str], where: str) -> Iterator[str]:
    yield from _extra(block, "type id name input", where)
    call_id = block.get("id")
    if not isinstance(call_id, str) or not ANTHROPIC_ID.fullmatch(call_id):
        yield f"{where}: tool_use id {call_id!r}"
    elif call_id in seen:
        yield f"{where}: tool_use ids must be unique: {call_id!r}"
    else:
        seen.add(call_id)
    if not _is_name(block.get("name")):
        yield f"{where}: tool name {block.get('name')!r}"
    if not isinstance(block.get("input"), dict):
        yield f"{where}: input {block.get('input')!r}"


# -- plain text


def text(messages: Messages) -> Iterator[str]:
    """Check that each message has one role and one text."""
    for index, message in enumerate(messages):
        role, content = message.get("role"), message.get("content")
        if set(message) != {"role", "content"} or role not in CHAT_FIELDS:
            yield f"message {index}: {message!r}"
        elif not isinstance(content, str) or (_is_blank(content) and role != "tool"):
            yield f"message {index}: content {content!r} of {role}"


CHECKS: dict[str, Callable[[Messages], Iterator[str]]] = {
    "openai": openai,
    "responses": responses,
    "anthropic": anthropic,
    "text": text,
}

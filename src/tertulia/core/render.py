"""A history in the words of a provider.

    openai      messages of the chat completions API
    responses   input items of the OpenAI responses API
    anthropic   messages of the Anthropic API
    text        one plain text per message, for people and for simple programs

A message that is legal in the OpenAI form leaves as it came, with the fields that API knows.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

from tertulia.core import tokens
from tertulia.core.grammar import (
    EMPTY_PERSON,
    INTERRUPTED_RESULT,
    Block,
    Result,
    says_something,
    sound,
)
from tertulia.core.inert import inert, plain
from tertulia.core.message import SUMMARY, Message, from_json, text_of
from tertulia.core.window import shortened

Timestamps = Literal["none", "user", "all"]
Format = Literal["openai", "responses", "anthropic", "text"]
FORMATS: tuple[Format, ...] = ("openai", "responses", "anthropic", "text")
TIMESTAMPS: tuple[Timestamps, ...] = ("none", "user", "all")

_FIELDS = frozenset(("role", "content", "tool_calls", "tool_call_id", "name", "reasoning_content"))
_DELIVERY_HEAD = "[You had written this before, unasked]"
_SUMMARY_HEAD = "[Summary of the conversation so far]\n"
_ID_FOR_ANTHROPIC = re.compile(r"[^A-Za-z0-9_-]|_(?=x[0-9a-f]+_)")
# Lines that only a rendering may write. In a person's text they are indented, so nobody can
# pretend to be somebody else or to have written at another time.
_FORGED = re.compile(r"^(?=\[(?:Message Time|From): )", re.MULTILINE)


class Style(NamedTuple):
    """How to render: what is put before the words, and how ids of people are shown."""

    timestamps: Timestamps = "none"
    authors: bool = False
    author_id: Callable[[str], str] = str
    result_limit: int | None = None


def render(blocks: list[Block], form: Format, style: Style) -> list[dict[str, Any]]:
    """The messages of a history in one of the formats."""
    if form == "openai":
        return [message for block in blocks for message in _openai(block, style)]
    if form == "responses":
        return [item for block in blocks for item in _responses(block, style)]
    if form == "anthropic":
        found = [message for block in blocks for message in _anthropic(block, style)]
        return _merged(_led_by_user(found))
    return [message for block in blocks for message in _plain(block, style)]


def weigh(block: Block, limit: int | None) -> int:
    """About how many tokens a block is, with its results shortened to `limit` characters."""
    body = block.row.body
    total = tokens.PER_MESSAGE + _weight_of(body.get("content"), None)
    if reasoning := body.get("reasoning_content"):
        total += tokens.estimate(str(reasoning))
    for call in block.calls:
        function = call["function"]
        total += tokens.PER_MESSAGE + tokens.estimate(function["name"] + function["arguments"])
    for result in block.results:
        content = result.row.body.get("content") if result.row else INTERRUPTED_RESULT
        total += tokens.PER_MESSAGE + _weight_of(content, limit)
    return total


def _weight_of(content: Any, limit: int | None) -> int:
    if isinstance(content, str):
        return tokens.estimate(content if limit is None else shortened(content, limit))
    if isinstance(content, list):
        return sum(_weight_of_part(part, limit) for part in content)
    return 0 if content is None else tokens.estimate(json.dumps(content))


def _weight_of_part(part: Any, limit: int | None) -> int:
    text = part.get("text") if isinstance(part, Mapping) else part
    if isinstance(text, str):
        return _weight_of(text, limit)
    is_media = isinstance(part, Mapping) and part.get("type") != "text"
    return tokens.PER_IMAGE if is_media else tokens.estimate(json.dumps(part))


# -- the OpenAI chat form, from which the others are made


def _openai(block: Block, style: Style) -> list[dict[str, Any]]:
    if block.is_person:
        return [_person(block.row, style)]
    if not block.results:
        return [_assistant(block, style)]
    return [_assistant(block, style), *(_result(result, style) for result in block.results)]


def _leaves_as_it_came(body: Mapping[str, Any]) -> bool:
    """Whether a message is plain text in the OpenAI form: nearly all are."""
    content = body.get("content")
    return (
        type(content) is str
        and content.isascii()
        and not content.isspace()
        and content != ""
        and body.keys() <= _FIELDS
    )


def _person(row: Message, style: Style) -> dict[str, Any]:
    body = row.body
    is_bare = style.timestamps == "none" and row.author is None and row.role == body["role"]
    if is_bare and _leaves_as_it_came(body):
        return body
    content = _content(body.get("content"))
    trace = _media_trace(body.get("media"))
    if row.role == SUMMARY:
        return {"role": "user", "content": _SUMMARY_HEAD + sound(text_of(body))}
    if not says_something({"content": content}) and not trace:
        content = EMPTY_PERSON
    head = _head(row, style, wants_time=style.timestamps != "none")
    if head:
        content = _guarded(content)
    content = _around(content, head, trace)
    if content is body.get("content") and body.keys() <= _FIELDS and row.role == body["role"]:
        return body
    return _kept(body, "user", content)


def _assistant(block: Block, style: Style) -> dict[str, Any]:
    row, body = block.row, block.row.body
    if (
        style.timestamps != "all"
        and block.calls == body.get("tool_calls", [])
        and _leaves_as_it_came(body)
    ):
        return body
    content = _content(body.get("content"))
    if content is not None and not says_something({"content": content}):
        content = None if block.calls else ""
    if style.timestamps == "all" and content:
        content = _around(content, _time(row), "")
    if (
        content is body.get("content")
        and block.calls == body.get("tool_calls", [])
        and body.keys() <= _FIELDS
    ):
        return body
    message = _kept(body, "assistant", content)
    message.pop("tool_calls", None)
    if block.calls:
        message["tool_calls"] = block.calls
    return message


def _result(result: Result, style: Style) -> dict[str, Any]:
    if result.row is None:
        return {"role": "tool", "tool_call_id": result.call_id, "content": INTERRUPTED_RESULT}
    body = result.row.body
    if (
        style.result_limit is None
        and body.get("tool_call_id") == result.call_id
        and _leaves_as_it_came(body)
    ):
        return body
    content = _content(body.get("content"))
    if content is None:
        content = ""
    if style.result_limit is not None:
        content = _short(content, style.result_limit)
    if (
        content is body.get("content")
        and body.get("tool_call_id") == result.call_id
        and body.keys() <= _FIELDS
    ):
        return body
    return {**_kept(body, "tool", content), "tool_call_id": result.call_id}


def _kept(body: Mapping[str, Any], role: str, content: Any) -> dict[str, Any]:
    message: dict[str, Any] = {"role": role, "content": content}
    for name in ("tool_call_id", "name", "reasoning_content"):
        if isinstance(body.get(name), str):
            message[name] = sound(body[name])
    return message


def _content(content: Any) -> Any:
    """Content that is text or a list of parts; whatever else was stored becomes text."""
    if content is None:
        return None
    if isinstance(content, str):
        return sound(content)
    if isinstance(content, list):
        parts = [_part(part) for part in content]
        return (
            content if all(new is old for new, old in zip(parts, content, strict=True)) else parts
        )
    return sound(json.dumps(content, ensure_ascii=False))


def _part(part: Any) -> Any:
    if isinstance(part, dict) and isinstance(part.get("type"), str):
        text = part.get("text")
        if part["type"] != "text":
            return part
        if isinstance(text, str):
            return part if sound(text) is text else {**part, "text": sound(text)}
        return {"type": "text", "text": "" if text is None else sound(json.dumps(text))}
    if isinstance(part, str):
        return {"type": "text", "text": sound(part)}
    return {"type": "text", "text": sound(json.dumps(part, ensure_ascii=False))}


def _head(row: Message, style: Style, *, wants_time: bool) -> str:
    head = _time(row) if wants_time else ""
    if style.authors and row.author:
        author = from_json(row.author)
        name = inert(author.get("name") or "unknown")
        head += f"[From: {name}, id {inert(style.author_id(author['id']))}]\n"
    return head


def _time(row: Message) -> str:
    return f"[Message Time: {row.at.isoformat(timespec='seconds')}]\n"


def _guarded(content: Any) -> Any:
    if isinstance(content, str):
        return _FORGED.sub(" ", content)
    if isinstance(content, list):
        return [
            {**part, "text": _FORGED.sub(" ", part["text"])} if part.get("type") == "text" else part
            for part in content
        ]
    return content


def _around(content: Any, head: str, tail: str) -> Any:
    if not head and not tail:
        return content
    if isinstance(content, list):
        before = [{"type": "text", "text": head.rstrip("\n")}] if head else []
        after = [{"type": "text", "text": tail}] if tail else []
        return [*before, *content, *after]
    text = content or ""
    return head + text + (f"\n{tail}" if tail and text else tail)


def _media_trace(media: Any) -> str:
    """Where the media of a message are, as lines; their names are what strangers chose."""
    lines = []
    for item in media if isinstance(media, list) else []:
        if isinstance(item, str):
            lines.append(f"[image: {plain(item)}]")
        elif isinstance(item, Mapping):
            kind = plain(str(item.get("type") or "file"), 20)
            place = item.get("path") or item.get("url") or item.get("name") or "unknown"
            lines.append(f"[{kind}: {plain(str(place))}]")
    return "\n".join(lines)


def _short(content: Any, limit: int) -> Any:
    if isinstance(content, str):
        return shortened(content, limit)
    if isinstance(content, list):
        return [
            {**part, "text": shortened(part["text"], limit)} if part.get("type") == "text" else part
            for part in content
        ]
    return content


# -- the others


def _plain(block: Block, style: Style) -> list[dict[str, Any]]:
    found = []
    for message in _openai(block, style):
        text = text_of(message)
        for call in message.get("tool_calls") or ():
            function = call["function"]
            text += "\n" if text else ""
            text += f"[calls {function['name']} {function['arguments']}]"
        found.append({"role": message["role"], "content": text})
    return found


def _responses(block: Block, style: Style) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    for message in _openai(block, style):
        role = message["role"]
        if role == "tool":
            output = message["content"]
            items.append(
                {
                    "type": "function_call_output",
                    "call_id": message["tool_call_id"],
                    "output": output if isinstance(output, str) else text_of(message),
                }
            )
            continue
        if says_something(message):
            items.append({"role": role, "content": _responses_content(message["content"], role)})
        items += (
            {
                "type": "function_call",
                "call_id": call["id"],
                "name": call["function"]["name"],
                "arguments": call["function"]["arguments"],
            }
            for call in message.get("tool_calls") or ()
        )
    return items


def _responses_content(content: Any, role: str) -> Any:
    if isinstance(content, str):
        return content
    kind = "input_text" if role == "user" else "output_text"
    parts = []
    for part in content:
        if part["type"] == "text":
            parts.append({"type": kind, "text": part["text"]})
        elif part["type"] == "image_url" and role == "user":
            image = part.get("image_url")
            url = image.get("url") if isinstance(image, Mapping) else image
            parts.append({"type": "input_image", "image_url": url, "detail": "auto"})
        else:
            parts.append({"type": kind, "text": f"[{plain(part['type'], 40)}]"})
    return parts


def _anthropic(block: Block, style: Style) -> list[dict[str, Any]]:
    if block.is_person:
        content = _anthropic_parts(_person(block.row, style)["content"])
        return [{"role": "user", "content": content}]
    message = _assistant(block, style)
    parts: list[dict[str, Any]] = _thinking(block.row.body)
    if says_something(message):
        parts += [p for p in _anthropic_parts(message["content"]) if p["type"] == "text"]
    parts += (_tool_use(call) for call in block.calls)
    found = [{"role": "assistant", "content": parts}]
    if block.results:
        results = [_tool_result(_result(result, style)) for result in block.results]
        found.append({"role": "user", "content": results})
    return found


def _thinking(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Thinking blocks go back signed or not at all; the API refuses any other."""
    stored = body.get("thinking_blocks")
    return [
        dict(block)
        for block in (stored if isinstance(stored, list) else [])
        if isinstance(block, Mapping)
        and (
            (block.get("type") == "thinking" and block.get("thinking") and block.get("signature"))
            or (block.get("type") == "redacted_thinking" and block.get("data"))
        )
    ]


def _anthropic_parts(content: Any) -> list[dict[str, Any]]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content.strip() else []
    parts: list[dict[str, Any]] = []
    for part in content:
        if part["type"] == "text":
            if part["text"].strip():
                parts.append({"type": "text", "text": part["text"]})
        elif part["type"] == "image_url":
            parts.append(_anthropic_image(part.get("image_url")))
        else:
            parts.append({"type": "text", "text": f"[{plain(part['type'], 40)}]"})
    return parts


def _anthropic_image(image: Any) -> dict[str, Any]:
    url = image.get("url") if isinstance(image, Mapping) else image
    if not isinstance(url, str):
        return {"type": "text", "text": "[image]"}
    found = re.fullmatch(r"data:(image/(?:png|jpeg|gif|webp));base64,([A-Za-z0-9+/=]+)", url)
    if found:
        source = {"type": "base64", "media_type": found[1], "data": found[2]}
        return {"type": "image", "source": source}
    if url.startswith(("https://", "http://")):
        return {"type": "image", "source": {"type": "url", "url": url}}
    return {"type": "text", "text": f"[image: {plain(url)}]"}


def _tool_use(call: Mapping[str, Any]) -> dict[str, Any]:
    arguments = call["function"]["arguments"]
    try:
        given = from_json(arguments)
    except ValueError:
        given = arguments
    # The API takes an object only; what the model wrote instead is still shown to it.
    value = given if isinstance(given, dict) else {"arguments": arguments}
    return {
        "type": "tool_use",
        "id": _anthropic_id(call["id"]),
        "name": call["function"]["name"],
        "input": value,
    }


def _tool_result(message: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "tool_result",
        "tool_use_id": _anthropic_id(message["tool_call_id"]),
        "content": _anthropic_parts(message["content"]),
    }


def _anthropic_id(call_id: str) -> str:
    """Ids of letters, digits, _ and -: each other character by its number, so they stay unique."""
    return _ID_FOR_ANTHROPIC.sub(lambda found: f"_x{ord(found[0]):x}_", call_id)


def _led_by_user(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The API wants a user's message first, so a delivery that leads is told to the model."""
    if not messages or messages[0]["role"] == "user":
        return messages
    head = {"type": "text", "text": _DELIVERY_HEAD}
    return [{"role": "user", "content": [head, *messages[0]["content"]]}, *messages[1:]]


def _merged(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Neighbours of one role as one message: roles alternate."""
    found: list[dict[str, Any]] = []
    for message in messages:
        if found and found[-1]["role"] == message["role"]:
            found[-1] = {**message, "content": found[-1]["content"] + message["content"]}
        else:
            found.append(message)
    return found

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
from collections.abc import Mapping, Sequence
from functools import lru_cache
from operator import is_
from typing import Any, Literal, NamedTuple

import msgspec

from tertulia.core.history import tokens
from tertulia.core.history.content import (
    FROM_ASSISTANT,
    FROM_PERSON,
    IMAGE,
    Part,
    flat,
    said,
    sound,
    sound_value,
    speaks,
    trace,
)
from tertulia.core.history.repair import (
    EMPTY_PERSON,
    INTERRUPTED_RESULT,
    PEOPLE,
    Block,
    Result,
    tool_name,
    unique,
    words_of,
)
from tertulia.core.history.window import (
    Weigh,
    shortened,
)
from tertulia.core.message import ASSISTANT, NESTING, SUMMARY, TOOL, USER, Message, from_json
from tertulia.core.text.prompt_safe import (
    inert,
    plain,
)
from tertulia.core.text.redact import Redactor

Timestamps = Literal["none", "user", "all"]
Format = Literal["openai", "responses", "anthropic", "text"]
FORMATS: tuple[Format, ...] = ("openai", "responses", "anthropic", "text")
TIMESTAMPS: tuple[Timestamps, ...] = ("none", "user", "all")

_DELIVERY_HEAD = "[You had written this before, unasked]"
_SUMMARY_HEAD = "[Summary of the conversation so far]\n"
_ID_FOR_ANTHROPIC = re.compile(r"[^A-Za-z0-9_-]|_(?=x[0-9a-f]+_)")
_PICTURE = re.compile(r"data:(image/(?:png|jpeg|gif|webp));base64,([A-Za-z0-9+/=]+)")
# What only a rendering may write. In a person's text the bracket is changed, wherever it stands, so
# nobody can pretend to be somebody else or to have written at another time.
_FORGED = re.compile(r"\[(?=\s*(?:message\s+time|from)\s*:)", re.IGNORECASE)

_THINKING = (("thinking", "thinking", "signature"), ("redacted_thinking", "data"))

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


class Style(NamedTuple):
    """How to render: what is put before the words, and how ids of people are shown."""

    timestamps: Timestamps = "none"
    authors: bool = False
    redactor: Redactor | None = None
    # Whether a result may hold pictures: of the formats, only Anthropic's has a place for them.
    pictures: bool = False
    # How long results and arguments may be, where they had to be shortened.
    result_limit: int | None = None


def render(blocks: Sequence[Block], form: Format, style: Style) -> list[dict[str, Any]]:
    """The messages of a history in one of the formats."""
    unique(blocks)
    if form == "openai":
        found = _openai(blocks, style)
    elif form == "responses":
        found = [item for message in _openai(blocks, style) for item in _responses(message)]
    elif form == "anthropic":
        messages = [message for block in blocks for message in _anthropic(block, style)]
        found = _merged(_led_by_user(messages))
    else:
        found = [_plain(message) for message in _openai(blocks, style)]
    try:
        # One look over all of it is cheaper than one at each text, and leaves nothing out.
        _encode(found)
    except UnicodeEncodeError:
        return [sound_value(message) for message in found]
    return found


def weigher(style: Style) -> Weigh:
    """About how many tokens a block is in this style, by what is shown of it."""

    def weigh(block: Block, limit: int | None) -> int:
        shown = style if limit is None else style._replace(result_limit=limit)
        return sum([_weight(message) for message in _openai([block], shown)])

    return weigh


def _weight(message: Mapping[str, Any]) -> int:
    content = message.get("content")
    if isinstance(content, str):
        total = tokens.PER_MESSAGE + tokens.estimate(content)
    else:
        total = tokens.PER_MESSAGE + sum(_weight_of_part(part) for part in content or ())
    for call in message.get("tool_calls", ()):
        function = call["function"]
        total += tokens.PER_MESSAGE + tokens.estimate(function["name"] + function["arguments"])
    if reasoning := message.get("reasoning_content"):
        total += tokens.estimate(reasoning)
    return total


def _weight_of_part(part: Mapping[str, Any]) -> int:
    text = part.get("text") or part.get("refusal")
    return tokens.PER_IMAGE if text is None else tokens.estimate(text)


# -- the OpenAI chat form, from which the others are made


def _openai(blocks: Sequence[Block], style: Style) -> list[dict[str, Any]]:
    found = []
    is_bare = style.timestamps == "none"
    for block in blocks:
        row = block.row
        body = row.body
        # Words and nothing else, which nearly all messages are, leave as they came.
        if is_bare and len(body) == 2 and row.author is None and row.role != SUMMARY:
            content = body.get("content")
            if type(content) is str and content and not content.isspace():
                found.append(body)
                continue
        if row.role in PEOPLE:
            found.append(_person(row, style))
        else:
            found.append(_assistant(block, style))
            found += [_result(result, style) for result in block.results]
    return found


def _person(row: Message, style: Style) -> dict[str, Any]:
    body = row.body
    if row.role == SUMMARY:
        return {
            "role": USER,
            "content": _SUMMARY_HEAD + (flat(body.get("content")) or EMPTY_PERSON),
        }
    shown = said(body.get("content"), FROM_PERSON)
    tail = _media_trace(body.get("media"))
    if not speaks(shown):
        shown = "" if tail else EMPTY_PERSON
    head = _head(row, style)
    shown = _around(_guarded(shown) if head else shown, head, tail)
    return _named({"role": USER, "content": shown}, body)


def _assistant(block: Block, style: Style) -> dict[str, Any]:
    body, calls, limit = block.row.body, block.calls, style.result_limit
    if calls and style.timestamps != "all" and _leaves_as_it_came(body, calls, limit):
        return body
    shown = said(words_of(body), FROM_ASSISTANT)
    if style.timestamps == "all" and speaks(shown):
        shown = _around(shown, _time(block.row))
    message: dict[str, Any] = {"role": ASSISTANT, "content": shown}
    if calls:
        message["tool_calls"] = calls if limit is None else [_short_call(c, limit) for c in calls]
    reasoning = body.get("reasoning_content")
    if isinstance(reasoning, str) and reasoning:
        message["reasoning_content"] = reasoning
    return _named(message, body)


def _leaves_as_it_came(
    body: Mapping[str, Any], calls: Sequence[Mapping[str, Any]], limit: int | None
) -> bool:
    """Whether a message with calls is in the OpenAI form and nothing else: nearly all are."""
    content, given = body.get("content"), body.get("tool_calls")
    return (
        limit is None
        and (content is None or type(content) is str)
        and len(body) == (3 if "content" in body else 2)
        and type(given) is list
        and len(given) == len(calls)
        and all(map(is_, given, calls))
    )


def _result(result: Result, style: Style) -> dict[str, Any]:
    if result.row is None:
        return {"role": TOOL, "tool_call_id": result.call_id, "content": INTERRUPTED_RESULT}
    body, limit = result.row.body, style.result_limit
    content = body.get("content")
    if type(content) is str and (limit is None or len(content) <= limit):
        if len(body) == 3 and body.get("tool_call_id") == result.call_id:
            return body
    else:
        content = _short_content(said(content, (IMAGE,) if style.pictures else ()) or "", limit)
    return _named({"role": TOOL, "tool_call_id": result.call_id, "content": content}, body)


def _named(message: dict[str, Any], body: Mapping[str, Any]) -> dict[str, Any]:
    name = body.get("name")
    if isinstance(name, str) and name:
        message["name"] = tool_name(name)
    return message


def _short_content(content: str | list[Part], limit: int | None) -> str | list[Part]:
    if limit is None:
        return content
    text = flat(content)
    return content if len(text) <= limit else shortened(text, limit)


def _short_call(call: dict[str, Any], limit: int) -> dict[str, Any]:
    """The call with its long arguments shortened; they stay an object in JSON."""
    arguments = call["function"]["arguments"]
    if len(arguments) <= limit:
        return call
    given = _as_object(arguments)
    texts = {
        key: shortened(value, limit) if isinstance(value, str) else value
        for key, value in (given or {}).items()
    }
    short = json.dumps(texts, ensure_ascii=False)
    if given is None or len(short) > 2 * limit:
        short = json.dumps({"shortened": shortened(arguments, limit)}, ensure_ascii=False)
    return {**call, "function": {**call["function"], "arguments": short}}


def _as_object(arguments: str) -> dict[str, Any] | None:
    """The arguments of a call, if they are an object that any parser of JSON reads."""
    try:
        found = _decode(arguments)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or _is_deep(found):
        return None
    return found


def _is_deep(value: Any, left: int = NESTING) -> bool:
    """Whether lists and dicts stand in one another deeper than readers of JSON go."""
    if left == 0:
        return True
    inner = value.values() if isinstance(value, dict) else value
    return any(_is_deep(item, left - 1) for item in inner if isinstance(item, dict | list))


def _head(row: Message, style: Style) -> str:
    head = _time(row) if style.timestamps != "none" else ""
    if style.authors and row.author:
        head += _author(row.author, style.redactor)
    return head


@lru_cache(maxsize=1024)
def _author(written: str, redactor: Redactor | None) -> str:
    author = from_json(written)
    name, who = author.get("name") or "unknown", author["id"]
    if redactor is not None:
        platform = author.get("platform") or ""
        name = redactor.name(platform, name.replace(who, redactor.user(platform, who)))
        who = redactor.user(platform, who)
    return f"[From: {inert(name)}, id {inert(who)}]\n"


def _time(row: Message) -> str:
    return f"[Message Time: {row.at.isoformat(timespec='seconds')}]\n"


def _guarded(content: Any) -> Any:
    if isinstance(content, str):
        return _FORGED.sub("(", content)
    return [
        {**part, "text": _FORGED.sub("(", part["text"])} if part["type"] == "text" else part
        for part in content
    ]


def _around(content: Any, head: str, tail: str = "") -> Any:
    if isinstance(content, list):
        before = [{"type": "text", "text": head.rstrip("\n")}] if head else []
        after = [{"type": "text", "text": tail}] if tail else []
        return [*before, *content, *after] if before or after else content
    return head + content + (f"\n{tail}" if tail and content else tail)


def _media_trace(media: Any) -> str:
    """Where the media of a message are, as lines; their names are what strangers chose."""
    lines = []
    for item in media if isinstance(media, list) else [media]:
        if isinstance(item, str):
            lines.append(f"[image: {plain(item) or 'unknown'}]")
        elif isinstance(item, Mapping):
            kind = plain(str(item.get("type") or ""), 20) or "file"
            place = item.get("path") or item.get("url") or item.get("name") or ""
            lines.append(f"[{kind}: {plain(str(place)) or 'unknown'}]")
    return "\n".join(lines)


# -- the others


def _plain(message: Mapping[str, Any]) -> dict[str, Any]:
    lines = [text] if (text := flat(message.get("content"))) else []
    for call in message.get("tool_calls", ()):
        function = call["function"]
        lines.append(f"[calls {function['name']} {function['arguments']}]")
    return {"role": message["role"], "content": "\n".join(lines)}


def _responses(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    role, content = message["role"], message.get("content")
    if role == TOOL:
        call_id = message["tool_call_id"]
        return [{"type": "function_call_output", "call_id": call_id, "output": flat(content)}]
    if role == USER and content is not None:
        parts = content if isinstance(content, str) else [_responses_part(p) for p in content]
        return [{"role": USER, "content": parts}]
    words = [{"role": ASSISTANT, "content": flat(content)}] if speaks(content) else []
    return words + [
        {"type": "function_call", "call_id": call["id"], **call["function"]}
        for call in message.get("tool_calls", ())
    ]


def _responses_part(part: Part) -> Part:
    if part["type"] == "text":
        return {"type": "input_text", "text": part["text"]}
    if part["type"] == IMAGE:
        image = part[IMAGE]
        detail = image.get("detail", "auto")
        return {"type": "input_image", "image_url": image["url"], "detail": detail}
    if part["type"] == "file":
        return {"type": "input_file", **part["file"]}
    return {"type": "input_text", "text": trace(part)}


def _anthropic(block: Block, style: Style) -> list[dict[str, Any]]:
    if block.is_person:
        content = _person(block.row, style)["content"]
        return [{"role": "user", "content": _anthropic_parts(content)}]
    message = _assistant(block, style)
    # The API refuses a last message of the assistant that ends in white space. None does, so that
    # a message looks the same while it is the last one and later.
    text = flat(message.get("content")).rstrip()
    parts = _thinking(block.row.body)
    parts += [{"type": "text", "text": text}] if text else []
    parts += [_tool_use(call) for call in message.get("tool_calls", ())]
    found = [{"role": "assistant", "content": parts}]
    if block.results:
        results = [_tool_result(result, style) for result in block.results]
        found.append({"role": "user", "content": results})
    return found


def _thinking(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Thinking blocks go back signed and unchanged or not at all; the API refuses any other."""
    stored = body.get("thinking_blocks")
    found = []
    for block in stored if isinstance(stored, list) else []:
        for kind, *names in _THINKING:
            if isinstance(block, Mapping) and block.get("type") == kind:
                kept = {name: block.get(name) for name in names}
                # The thought itself may be empty: some models give its signature only.
                if _are_texts(kept) and speaks(kept[names[-1]]):
                    found.append({"type": kind, **kept})
    return found


def _are_texts(fields: Mapping[str, Any]) -> bool:
    return all(isinstance(text, str) and sound(text) == text for text in fields.values())


def _anthropic_parts(content: str | list[Part]) -> list[Part]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [part if part["type"] == "text" else _anthropic_image(part) for part in content]


def _anthropic_image(part: Part) -> Part:
    url = part[IMAGE]["url"] if part["type"] == IMAGE else ""
    if found := _PICTURE.fullmatch(url):
        source = {"type": "base64", "media_type": found[1], "data": found[2]}
        return {"type": "image", "source": source}
    if url.startswith("https://"):
        return {"type": "image", "source": {"type": "url", "url": url}}
    return {"type": "text", "text": trace(part)}


def _tool_use(call: Mapping[str, Any]) -> dict[str, Any]:
    arguments = call["function"]["arguments"]
    given = _as_object(arguments)
    return {
        "type": "tool_use",
        "id": _anthropic_id(call["id"]),
        "name": call["function"]["name"],
        # The API takes an object only; what the model wrote instead is still shown to it.
        "input": {"arguments": arguments} if given is None else given,
    }


def _tool_result(result: Result, style: Style) -> dict[str, Any]:
    found = {"type": "tool_result", "tool_use_id": _anthropic_id(result.call_id)}
    content = _result(result, style)["content"]
    return {**found, "content": _anthropic_parts(content)} if speaks(content) else found


def _anthropic_id(call_id: str) -> str:
    """Ids of letters, digits, _ and -: each other character by its number, so they stay unique."""
    return _ID_FOR_ANTHROPIC.sub(lambda found: f"_x{ord(found[0]):x}_", call_id)


def _led_by_user(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The API wants a user's message first, so a delivery that leads is told to the model."""
    if not messages or messages[0]["role"] == "user":
        return messages
    head = {"type": "text", "text": _DELIVERY_HEAD}
    words = [part for part in messages[0]["content"] if part["type"] == "text"]
    return [{"role": "user", "content": [head, *words]}, *messages[1:]]


def _merged(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Neighbours of one role as one message: roles alternate."""
    found: list[dict[str, Any]] = []
    for message in messages:
        if found and found[-1]["role"] == message["role"]:
            found[-1] = {**message, "content": found[-1]["content"] + message["content"]}
        else:
            found.append(message)
    return found

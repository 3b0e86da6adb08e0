"""Rendering of a history in the message format of a provider.

    openai      messages of the chat completions API
    responses   input items of the OpenAI responses API
    anthropic   messages of the Anthropic API
    text        one plain text per message, for people and for simple programs

A message that is legal in the OpenAI form is rendered unchanged, with the fields that API knows.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, tzinfo
from functools import lru_cache
from operator import is_
from typing import Any, Literal, NamedTuple

import msgspec

from tertulia.core.history import tokens
from tertulia.core.history.content import (
    ASSISTANT_PARTS,
    IMAGE,
    USER_PARTS,
    Part,
    describe_media,
    describe_part,
    flatten_content,
    has_content,
    make_json_safe,
    normalise_content,
    parse_object,
    replace_invalid,
)
from tertulia.core.history.model_traits import ModelTraits
from tertulia.core.history.repair import (
    EMPTY_MESSAGE,
    INTERRUPTED_RESULT,
    USER_ROLES,
    Block,
    Result,
    assistant_content,
    make_call_ids_unique,
    tool_name,
)
from tertulia.core.history.shortening import shorten_call, shorten_content
from tertulia.core.history.shown_media import MAX_TEXT, MediaView, count_media_tokens
from tertulia.core.history.window import CountTokens
from tertulia.core.message import ASSISTANT, SUMMARY, TOOL, USER, Message, from_json
from tertulia.core.text import heads
from tertulia.core.text.prompt_safe import quote_text
from tertulia.core.text.redact import Redactor
from tertulia.core.text.time_head import time_head

Timestamps = Literal["none", "user", "all", "local"]
Format = Literal["openai", "responses", "anthropic", "text"]
FORMATS: tuple[Format, ...] = ("openai", "responses", "anthropic", "text")

# Characters that an id of a call must not have there, and an underscore that looks like an escape.
_NOT_IN_ANTHROPIC_ID = re.compile(r"[^A-Za-z0-9_-]|_(?=x[0-9a-f]+_)")
_IMAGE_DATA = re.compile(r"data:(image/(?:png|jpeg|gif|webp));base64,([A-Za-z0-9+/=]+)")

_PDF_DATA = "data:application/pdf;base64,"

# How JSON writes the character NUL. A text with these six characters themselves costs a check that
# changes nothing.
_NUL = b"\\u0000"
# The kinds of thinking blocks and their fields; the last one must not be empty.
_THINKING = (("thinking", "thinking", "signature"), ("redacted_thinking", "data"))

_encode = msgspec.json.Encoder().encode


class Style(NamedTuple):
    """Options of a rendering: the headers of messages, and the redaction of people's ids."""

    timestamps: Timestamps = "none"
    authors: bool = False
    redactor: Redactor | None = None
    # True if a tool result may contain images.
    allow_images: bool = False
    # The model that reads it; None keeps everything that the format has a place for.
    model: ModelTraits | None = None
    # The files that this model is shown; None describes all files in words.
    media: MediaView | None = None
    # The time zone of the conversation, for the timestamps "local".
    zone: tzinfo = UTC
    # The maximum length of results and arguments, if they have to be shortened.
    result_limit: int | None = None


def render(blocks: Sequence[Block], form: Format, style: Style) -> list[dict[str, Any]]:
    """Return the messages of a history in one of the formats."""
    make_call_ids_unique(blocks)
    if form == "openai":
        messages = _render_openai(blocks, style, moves_images=style.media is not None)
    elif form == "responses":
        openai_messages = _render_openai(blocks, style)
        messages = [item for message in openai_messages for item in _to_responses(message)]
    elif form == "anthropic":
        unmerged = [message for block in blocks for message in _render_anthropic(block, style)]
        messages = _merge_roles(_start_with_user(unmerged))
    else:
        messages = to_text(_render_openai(blocks, style))
    try:
        # One check of the whole list is cheaper than one of each text, and misses nothing.
        is_valid = _NUL not in _encode(messages)
    except UnicodeEncodeError:
        is_valid = False
    return messages if is_valid else [make_json_safe(message) for message in messages]


def token_counter(style: Style, *, text_limit: int = MAX_TEXT) -> CountTokens:
    """Return a function that estimates the tokens of a block as rendered in this style."""
    model = style.model

    def count_tokens(block: Block, limit: int | None) -> int:
        limited = style if limit is None else style._replace(result_limit=limit)
        total = sum([_count_message(message) for message in _render_openai([block], limited)])
        if model is not None and "media" in block.row.body:
            total += count_media_tokens(block.row, model, text_limit)
        return total

    return count_tokens


def _count_message(message: Mapping[str, Any]) -> int:
    content = message.get("content")
    if isinstance(content, str):
        total = tokens.PER_MESSAGE + tokens.estimate_tokens(content)
    else:
        total = tokens.PER_MESSAGE + sum(_count_part(part) for part in content or ())
    for call in message.get("tool_calls", ()):
        function = call["function"]
        total += tokens.PER_MESSAGE + tokens.estimate_tokens(
            function["name"] + function["arguments"]
        )
    if reasoning := message.get("reasoning_content"):
        total += tokens.estimate_tokens(reasoning)
    return total


def _count_part(part: Mapping[str, Any]) -> int:
    """Return the estimated tokens of a part: of its text, or of an image."""
    text = part.get("text") or part.get("refusal")
    return tokens.PER_IMAGE if text is None else tokens.estimate_tokens(text)


# -- the OpenAI chat format; the others are made from it


def _render_openai(
    blocks: Sequence[Block], style: Style, *, moves_images: bool = False
) -> list[dict[str, Any]]:
    messages = []
    has_no_times = style.timestamps == "none"
    has_all_times = style.timestamps == "all"
    for block in blocks:
        row = block.row
        body = row.body
        # Messages with text and nothing else, as nearly all are, are rendered unchanged, or with
        # the time before the text.
        if row.author is None and (text := _only_text(row)) is not None:
            if row.role == USER:
                header = "" if has_no_times else _time_header(row, style)
                content = header + heads.guard_heads(text) if header else text
                messages.append({"role": USER, "content": content})
                continue
            if not has_all_times:
                messages.append(body)
                continue
        if row.role in USER_ROLES:
            messages.append(_render_person(row, style))
        else:
            messages.append(_render_assistant(block, style))
            results = [_render_result(result, style) for result in block.results]
            messages += _move_images_after(results) if moves_images else results
    return messages


def _only_text(row: Message) -> str | None:
    """Return the text of a user's or an assistant's message that has nothing else to show."""
    body = row.body
    # The platform's id of a message is stored with it, and shown to no model.
    is_alone = len(body) == 2 or (len(body) == 3 and row.role == USER and "message_id" in body)
    content = body.get("content")
    if not is_alone or type(content) is not str or row.role not in (USER, ASSISTANT):
        return None
    return content if content and not content.isspace() else None


def _move_images_after(results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Move the images of a step's results into a message of the user after them.

    The chat completions API accepts no images in the result of a tool.
    """
    images: list[Part] = []

    def move(part: Part) -> Part:
        if part["type"] != IMAGE:
            return part
        images.append(part)
        return {"type": "text", "text": f"[image {len(images)}, shown below]"}

    moved = [
        {**result, "content": [move(part) for part in result["content"]]}
        if isinstance(result["content"], list)
        else result
        for result in results
    ]
    if not images:
        return results
    head = {"type": "text", "text": heads.IMAGES_HEAD}
    return [*moved, {"role": USER, "content": [head, *images]}]


def _render_person(row: Message, style: Style) -> dict[str, Any]:
    body = row.body
    if row.role == SUMMARY:
        # A summary repeats what people said, and a model may have written it: no head in it counts.
        text = heads.guard_heads(flatten_content(body.get("content"))) or EMPTY_MESSAGE
        return {"role": USER, "content": f"{heads.SUMMARY_HEAD}\n{text}"}
    view = style.media
    raw = body.get("content")
    content = normalise_content(raw if view is None else view.hide_parts(row, raw), USER_PARTS)
    parts = [] if view is None else view.parts(row)
    media = describe_media(body.get("media")) if style.model is None else _join_texts(parts)
    if not has_content(content):
        content = "" if media or parts else EMPTY_MESSAGE
    header = _header(row, style)
    # Without heads there is nothing to imitate: in a direct chat a text is shown as it was written.
    content = _guard(content) if header else content
    if parts and not media:
        content = _add_parts(_surround(content, header), parts)
    else:
        content = _surround(content, header, media)
    return _with_name({"role": USER, "content": content}, body)


def _render_assistant(block: Block, style: Style) -> dict[str, Any]:
    body, calls, limit = block.row.body, block.calls, style.result_limit
    if calls and style.timestamps != "all" and _is_unchanged(body, calls, limit):
        return body
    content = normalise_content(assistant_content(body), ASSISTANT_PARTS)
    if style.timestamps == "all" and has_content(content):
        content = _surround(content, _time_header(block.row, style))
    message: dict[str, Any] = {"role": ASSISTANT, "content": content}
    if calls:
        message["tool_calls"] = (
            calls if limit is None else [shorten_call(call, limit) for call in calls]
        )
    reasoning = body.get("reasoning_content") if _is_own(body, style) else None
    if isinstance(reasoning, str) and reasoning:
        message["reasoning_content"] = reasoning
    return _with_name(message, body)


def _is_unchanged(
    body: Mapping[str, Any], calls: Sequence[Mapping[str, Any]], limit: int | None
) -> bool:
    """Return whether a message with calls is rendered as it is stored, as nearly all are.

    It is then in the OpenAI form and nothing else, and nothing has to be shortened.
    """
    content, stored = body.get("content"), body.get("tool_calls")
    return (
        limit is None
        and (content is None or type(content) is str)
        and len(body) == (3 if "content" in body else 2)
        and type(stored) is list
        and len(stored) == len(calls)
        and all(map(is_, stored, calls))
    )


def _render_result(result: Result, style: Style) -> dict[str, Any]:
    if result.row is None:
        return {"role": TOOL, "tool_call_id": result.call_id, "content": INTERRUPTED_RESULT}
    body, limit = result.row.body, style.result_limit
    content = body.get("content")
    if style.media is not None:
        content = style.media.hide_parts(result.row, content)
    if type(content) is str and (limit is None or len(content) <= limit):
        if len(body) == 3 and body.get("tool_call_id") == result.call_id:
            return body
    else:
        kinds = (IMAGE,) if style.allow_images else ()
        content = shorten_content(normalise_content(content, kinds) or "", limit)
    return _with_name({"role": TOOL, "tool_call_id": result.call_id, "content": content}, body)


def _with_name(message: dict[str, Any], body: Mapping[str, Any]) -> dict[str, Any]:
    name = body.get("name")
    if isinstance(name, str) and name:
        message["name"] = tool_name(name)
    return message


def _header(row: Message, style: Style) -> str:
    header = _time_header(row, style) if style.timestamps != "none" else ""
    if style.authors and row.author:
        header += _author_header(row.author, style.redactor)
    return header


@lru_cache(maxsize=1024)
def _author_header(author_json: str, redactor: Redactor | None) -> str:
    author = from_json(author_json)
    name, user_id = author.get("name") or "unknown", author["id"]
    if redactor is not None:
        platform = author.get("platform") or ""
        name = redactor.name(platform, name.replace(user_id, redactor.user(platform, user_id)))
        user_id = redactor.user(platform, user_id)
    return f"{heads.AUTHOR_HEAD}{quote_text(name)}, id {quote_text(user_id)}]\n"


def _time_header(row: Message, style: Style) -> str:
    return time_head(row.at, style.zone if style.timestamps == "local" else None)


def _guard(content: Any) -> Any:
    """Return the content with every head made inert that a person wrote into it."""
    if isinstance(content, str):
        return heads.guard_heads(content)
    return [
        {**part, "text": heads.guard_heads(part["text"])} if part["type"] == "text" else part
        for part in content
    ]


def _join_texts(parts: Sequence[Part]) -> str:
    """Return the parts as one text; an empty one if any of them is not a text."""
    if any(part["type"] != "text" for part in parts):
        return ""
    return "\n".join(part["text"] for part in parts)


def _add_parts(content: Any, parts: Sequence[Part]) -> list[Part]:
    """Return the content as parts, with these after it."""
    if isinstance(content, list):
        return [*content, *parts]
    text = content.rstrip("\n")
    return [*([{"type": "text", "text": text}] if text else []), *parts]


def _surround(content: Any, header: str, tail: str = "") -> Any:
    """Return text or parts with a header before them and another text after them."""
    if isinstance(content, list):
        before = [{"type": "text", "text": header.rstrip("\n")}] if header else []
        after = [{"type": "text", "text": tail}] if tail else []
        return [*before, *content, *after] if before or after else content
    return header + content + (f"\n{tail}" if tail and content else tail)


# -- the other formats


def to_text(messages: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return messages in the OpenAI form as messages with nothing but text."""
    return [_to_text(message) for message in messages]


def _to_text(message: Mapping[str, Any]) -> dict[str, Any]:
    if len(message) == 2 and type(message.get("content")) is str:
        return {"role": message["role"], "content": message["content"]}
    lines = [text] if (text := flatten_content(message.get("content"))) else []
    for call in message.get("tool_calls", ()):
        function = call["function"]
        lines.append(f"[calls {function['name']} {function['arguments']}]")
    return {"role": message["role"], "content": "\n".join(lines)}


def _to_responses(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    role, content = message["role"], message.get("content")
    if role == TOOL:
        output: Any = flatten_content(content)
        if isinstance(content, list) and any(part["type"] == IMAGE for part in content):
            output = [_responses_part(part) for part in content]
        call_id = message["tool_call_id"]
        return [{"type": "function_call_output", "call_id": call_id, "output": output}]
    if role == USER and content is not None:
        parts = content if isinstance(content, str) else [_responses_part(p) for p in content]
        return [{"role": USER, "content": parts}]
    text = (
        [{"role": ASSISTANT, "content": flatten_content(content)}] if has_content(content) else []
    )
    return text + [
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
    return {"type": "input_text", "text": describe_part(part)}


def _render_anthropic(block: Block, style: Style) -> list[dict[str, Any]]:
    if block.is_person:
        content = _render_person(block.row, style)["content"]
        return [{"role": "user", "content": _anthropic_parts(content)}]
    message = _render_assistant(block, style)
    # The API refuses a last message of the assistant that ends in white space. It is removed from
    # every message, so that a message is the same while it is the last one and later.
    text = flatten_content(message.get("content")).rstrip()
    body = block.row.body
    parts = _thinking_blocks(body) if _is_own(body, style) else []
    parts += [{"type": "text", "text": text}] if text else []
    parts += [_tool_use(call) for call in message.get("tool_calls", ())]
    messages = [{"role": "assistant", "content": parts}]
    if block.results:
        results = [_tool_result(result, style) for result in block.results]
        messages.append({"role": "user", "content": results})
    return messages


def _is_own(body: Mapping[str, Any], style: Style) -> bool:
    """Return whether the model that reads the history wrote this message.

    Reasoning is given back to no other model: its signature would be refused.
    """
    return style.model is None or body.get("model") == style.model.name


def _thinking_blocks(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the thinking blocks that are signed and unchanged; the API refuses any other."""
    stored = body.get("thinking_blocks")
    blocks = []
    for block in stored if isinstance(stored, list) else []:
        for kind, *names in _THINKING:
            if isinstance(block, Mapping) and block.get("type") == kind:
                fields = {name: block.get(name) for name in names}
                # The thinking text may be empty: some models give its signature only.
                if _are_texts(fields) and has_content(fields[names[-1]]):
                    blocks.append({"type": kind, **fields})
    return blocks


def _are_texts(fields: Mapping[str, Any]) -> bool:
    return all(isinstance(text, str) and replace_invalid(text) == text for text in fields.values())


def _anthropic_parts(content: str | list[Part]) -> list[Part]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [part if part["type"] == "text" else _anthropic_file(part) for part in content]


def _anthropic_file(part: Part) -> Part:
    if part["type"] == "file":
        name, data = part["file"].get("filename"), part["file"].get("file_data") or ""
        if name and data.startswith(_PDF_DATA):
            source = {"type": "base64", "media_type": "application/pdf"}
            source["data"] = data.removeprefix(_PDF_DATA)
            return {"type": "document", "source": source, "title": name}
    url = part[IMAGE]["url"] if part["type"] == IMAGE else ""
    if match := _IMAGE_DATA.fullmatch(url):
        source = {"type": "base64", "media_type": match[1], "data": match[2]}
        return {"type": "image", "source": source}
    if url.startswith("https://"):
        return {"type": "image", "source": {"type": "url", "url": url}}
    return {"type": "text", "text": describe_part(part)}


def _tool_use(call: Mapping[str, Any]) -> dict[str, Any]:
    arguments = call["function"]["arguments"]
    fields = parse_object(arguments)
    return {
        "type": "tool_use",
        "id": _anthropic_id(call["id"]),
        "name": call["function"]["name"],
        # The API accepts only an object; any other text of the model is put into one.
        "input": {"arguments": arguments} if fields is None else fields,
    }


def _tool_result(result: Result, style: Style) -> dict[str, Any]:
    block = {"type": "tool_result", "tool_use_id": _anthropic_id(result.call_id)}
    content = _render_result(result, style)["content"]
    return {**block, "content": _anthropic_parts(content)} if has_content(content) else block


def _anthropic_id(call_id: str) -> str:
    """Return an id of letters, digits, _ and -; other characters become their code point.

    Different ids stay different.
    """
    return _NOT_IN_ANTHROPIC_ID.sub(lambda match: f"_x{ord(match[0]):x}_", call_id)


def _start_with_user(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Turn a leading delivery into a user message; the API requires one at the start."""
    if not messages or messages[0]["role"] == "user":
        return messages
    head = {"type": "text", "text": heads.DELIVERY_HEAD}
    texts = [part for part in messages[0]["content"] if part["type"] == "text"]
    return [{"role": "user", "content": [head, *texts]}, *messages[1:]]


def _merge_roles(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Merge adjacent messages of one role, so that roles alternate."""
    merged: list[dict[str, Any]] = []
    for message in messages:
        if merged and merged[-1]["role"] == message["role"]:
            merged[-1] = {**message, "content": merged[-1]["content"] + message["content"]}
        else:
            merged.append(message)
    return merged

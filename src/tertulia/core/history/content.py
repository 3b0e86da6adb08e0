"""The content of a message: a text, or a list of parts.

Providers accept a few kinds of parts, fewer from the assistant than from a person, and refuse the
whole request for one unknown part. Here any stored content becomes text or accepted parts, and a
part that is not accepted is described in words. Content that is valid already stays the same
object.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from tertulia.core.message import MAX_NESTING
from tertulia.core.text.prompt_safe import clean_for_prompt

IMAGE = "image_url"
REFUSAL = "refusal"
# The parts besides text that the OpenAI API accepts from a person and from the assistant.
USER_PARTS = (IMAGE, "input_audio", "file")
ASSISTANT_PARTS = (REFUSAL,)

_REASONING = ("thinking", "redacted_thinking", "reasoning")
_DETAILS = ("auto", "low", "high", "original")
_IMAGE_URL_PREFIXES = ("https://", "http://", "data:image/")
_INVALID = re.compile("[\x00\ud800-\udfff]")

Part = dict[str, Any]

_decode = msgspec.json.Decoder().decode


def normalise_content(content: Any, kinds: Sequence[str] = ()) -> str | list[Part] | None:
    """Return content as text, or as text parts and parts of `kinds`; None if it is empty."""
    if isinstance(content, str) or content is None:
        return content
    if not isinstance(content, list):
        return json.dumps(content, ensure_ascii=False)
    parts = [new for part in content if (new := _normalise_part(part, kinds)) is not None]
    if len(parts) == len(content) and all(new is old for new, old in zip(parts, content)):  # noqa: B905
        return content or None
    return parts or None


def has_content(content: Any) -> bool:
    """Return whether content is not empty: not blank text and not an empty list of parts."""
    if isinstance(content, str):
        return content != "" and not content.isspace()
    return normalise_content(content) is not None


def flatten_content(content: Any) -> str:
    """Return content as one text."""
    text = normalise_content(content, ASSISTANT_PARTS)
    if isinstance(text, list):
        return "\n".join(part.get("text") or part[REFUSAL] for part in text)
    return text or ""


def describe_part(part: Mapping[str, Any]) -> str:
    """Describe a part in words, for formats that do not accept the part itself."""
    kind = str(part.get("type"))
    if kind != IMAGE:
        return f"[{clean_for_prompt(kind, 40)}]"
    url = _image_url(part)
    if not isinstance(url, str) or url.startswith("data:"):
        return "[image]"
    return f"[image: {clean_for_prompt(url)}]"


def describe_media(media: Any) -> str:
    """Describe the media of a message, one per line; strangers chose their names."""
    lines = []
    for item in media if isinstance(media, list) else [media]:
        if isinstance(item, str):
            lines.append(f"[image: {clean_for_prompt(item) or 'unknown'}]")
        elif isinstance(item, Mapping) and "hidden_text" not in item:
            kind = clean_for_prompt(_media_kind(item.get("type")), 20) or "file"
            location = item.get("path") or item.get("url") or item.get("name") or ""
            problem = clean_for_prompt(str(item.get("problem") or ""), 80)
            note = f", not received: {problem}" if problem else ""
            lines.append(f"[{kind}: {clean_for_prompt(str(location)) or 'unknown'}{note}]")
    return "\n".join(lines)


def _media_kind(media_type: Any) -> str:
    """Return `image` for `image/png`, also of audio and video; another type as it is."""
    text = str(media_type or "")
    kind = text.partition("/")[0]
    return kind if kind in ("image", "audio", "video") else text


def replace_invalid(text: str) -> str:
    """Return the text with unpaired surrogates and NUL replaced.

    Unpaired surrogates are not valid Unicode, and some servers cut a prompt at a NUL.
    """
    return text if text.isascii() and "\x00" not in text else _INVALID.sub("\ufffd", text)


def is_json_object(text: str) -> bool:
    """Return whether every JSON parser reads a text as an object, if it allows the nesting."""
    try:
        return isinstance(_decode(text), dict)
    except (ValueError, RecursionError):
        return False


def parse_object(text: str) -> dict[str, Any] | None:
    """Return the JSON object in a text, or None if not every JSON parser accepts it as one."""
    try:
        fields = _decode(text)
    except (ValueError, RecursionError):
        return None
    return fields if isinstance(fields, dict) and not _is_deep(fields) else None


def _is_deep(value: Any, left: int = MAX_NESTING) -> bool:
    """Return whether lists and dicts are nested more deeply than JSON parsers accept."""
    if left == 0:
        return True
    inner = value.values() if isinstance(value, dict) else value
    return any(_is_deep(item, left - 1) for item in inner if isinstance(item, dict | list))


def make_json_safe(value: Any) -> Any:
    """Return the value with every nested value changed to valid JSON in UTF-8."""
    if isinstance(value, str):
        return replace_invalid(value)
    if isinstance(value, list):
        return [make_json_safe(item) for item in value]
    if isinstance(value, dict):
        return {replace_invalid(key): make_json_safe(item) for key, item in value.items()}
    # NaN and the infinities are not JSON; for them alone `value - value` is not 0.
    return None if isinstance(value, float) and value - value != 0 else value


def _normalise_part(part: Any, kinds: Sequence[str]) -> Part | None:
    if not isinstance(part, dict):
        return None if part is None else _text(part)
    kind = part.get("type")
    if isinstance(kind, str) and kind in kinds and (new := _READERS[kind](part)) is not None:
        return new
    text = part.get("text")
    if kind == "text" and len(part) == 2 and isinstance(text, str) and has_content(text):
        return part
    if kind in _REASONING or (kind == "text" and text is None):
        return None
    if kind == "text" or isinstance(text, str):
        return _text(text)
    return _text(describe_part(part) if isinstance(kind, str) else part)


def _text(value: Any) -> Part | None:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return {"type": "text", "text": text} if has_content(text) else None


def _image_url(part: Mapping[str, Any]) -> Any:
    image = part.get(IMAGE)
    return image.get("url") if isinstance(image, Mapping) else image


def _read_image(part: Part) -> Part | None:
    url = _image_url(part)
    if not isinstance(url, str) or not url.startswith(_IMAGE_URL_PREFIXES):
        return None
    original = part[IMAGE]
    detail = original.get("detail") if isinstance(original, Mapping) else None
    image = {"url": url, "detail": detail} if detail in _DETAILS else {"url": url}
    return part if len(part) == 2 and image == original else {"type": IMAGE, IMAGE: image}


def _read_audio(part: Part) -> Part | None:
    fields = _texts(part.get("input_audio"), ("data", "format"))
    if "data" not in fields or fields.get("format") not in ("wav", "mp3"):
        return None
    return {"type": "input_audio", "input_audio": fields}


def _read_file(part: Part) -> Part | None:
    fields = _texts(part.get("file"), ("file_id", "file_data", "filename"))
    if "file_id" not in fields and not ("file_data" in fields and "filename" in fields):
        return None
    return {"type": "file", "file": fields}


def _read_refusal(part: Part) -> Part | None:
    text = part.get(REFUSAL)
    return {"type": REFUSAL, REFUSAL: text} if isinstance(text, str) and has_content(text) else None


def _texts(value: Any, names: Sequence[str]) -> dict[str, str]:
    """Return those fields of a mapping that are non-empty text."""
    fields = value if isinstance(value, Mapping) else {}
    texts = {name: fields.get(name) for name in names}
    return {name: text for name, text in texts.items() if isinstance(text, str) and text}


_READERS: dict[str, Callable[[Part], Part | None]] = {
    IMAGE: _read_image,
    "input_audio": _read_audio,
    "file": _read_file,
    REFUSAL: _read_refusal,
}

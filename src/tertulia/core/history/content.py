"""What a message says: a text, or a list of parts.

Providers take a few kinds of parts, fewer from the assistant than from a person, and refuse the
whole request for one they do not know. Here any stored content becomes text or such parts, and what
has no place in it leaves a trace in words. Content that is fit already stays the same object.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tertulia.core.text.prompt_safe import plain

IMAGE = "image_url"
REFUSAL = "refusal"
# The parts besides text that the OpenAI API takes from a person and from the assistant.
FROM_PERSON = (IMAGE, "input_audio", "file")
FROM_ASSISTANT = (REFUSAL,)

_THOUGHTS = ("thinking", "redacted_thinking", "reasoning")
_DETAILS = ("auto", "low", "high", "original")
_PICTURE_PLACES = ("https://", "http://", "data:image/")
_SURROGATE = re.compile("[\ud800-\udfff]")

Part = dict[str, Any]


def said(content: Any, kinds: Sequence[str] = ()) -> str | list[Part] | None:
    """Content as text, or as text parts and parts of `kinds`; None if it has nothing to say."""
    if isinstance(content, str) or content is None:
        return content
    if not isinstance(content, list):
        return json.dumps(content, ensure_ascii=False)
    parts = [found for part in content if (found := _part(part, kinds)) is not None]
    if len(parts) == len(content) and all(new is old for new, old in zip(parts, content)):  # noqa: B905
        return content or None
    return parts or None


def speaks(content: Any) -> bool:
    """Whether content is worth a message."""
    if isinstance(content, str):
        return content != "" and not content.isspace()
    return said(content) is not None


def flat(content: Any) -> str:
    """Content as one text."""
    found = said(content, FROM_ASSISTANT)
    if isinstance(found, list):
        return "\n".join(part.get("text") or part[REFUSAL] for part in found)
    return found or ""


def trace(part: Mapping[str, Any]) -> str:
    """A part in words, for where it cannot stand itself."""
    kind = str(part.get("type"))
    if kind != IMAGE:
        return f"[{plain(kind, 40)}]"
    place = _place(part)
    if not isinstance(place, str) or place.startswith("data:"):
        return "[image]"
    return f"[image: {plain(place)}]"


def sound(text: str) -> str:
    """Valid Unicode: halves of surrogate pairs are replaced."""
    return text if text.isascii() else _SURROGATE.sub("\ufffd", text)


def sound_value(value: Any) -> Any:
    """A value that is valid JSON in UTF-8 to its last leaf."""
    if isinstance(value, str):
        return sound(value)
    if isinstance(value, list):
        return [sound_value(item) for item in value]
    if isinstance(value, dict):
        return {sound(key): sound_value(item) for key, item in value.items()}
    # NaN and the infinities are not JSON; they alone differ from themselves minus themselves.
    return None if isinstance(value, float) and value - value != 0 else value


def _part(part: Any, kinds: Sequence[str]) -> Part | None:
    if not isinstance(part, dict):
        return None if part is None else _text(part)
    kind = part.get("type")
    if isinstance(kind, str) and kind in kinds and (found := _READERS[kind](part)) is not None:
        return found
    text = part.get("text")
    if kind == "text" and len(part) == 2 and isinstance(text, str) and speaks(text):
        return part
    if kind in _THOUGHTS or (kind == "text" and text is None):
        return None
    if kind == "text" or isinstance(text, str):
        return _text(text)
    return _text(trace(part) if isinstance(kind, str) else part)


def _text(value: Any) -> Part | None:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return {"type": "text", "text": text} if speaks(text) else None


def _place(part: Mapping[str, Any]) -> Any:
    image = part.get(IMAGE)
    return image.get("url") if isinstance(image, Mapping) else image


def _image(part: Part) -> Part | None:
    place = _place(part)
    if not isinstance(place, str) or not place.startswith(_PICTURE_PLACES):
        return None
    given = part[IMAGE]
    detail = given.get("detail") if isinstance(given, Mapping) else None
    image = {"url": place, "detail": detail} if detail in _DETAILS else {"url": place}
    return part if len(part) == 2 and image == given else {"type": IMAGE, IMAGE: image}


def _audio(part: Part) -> Part | None:
    given = part.get("input_audio")
    fields = _texts(given, ("data", "format"))
    if "data" not in fields or fields.get("format") not in ("wav", "mp3"):
        return None
    return {"type": "input_audio", "input_audio": fields}


def _file(part: Part) -> Part | None:
    fields = _texts(part.get("file"), ("file_id", "file_data", "filename"))
    if "file_id" not in fields and not ("file_data" in fields and "filename" in fields):
        return None
    return {"type": "file", "file": fields}


def _refusal(part: Part) -> Part | None:
    given = part.get(REFUSAL)
    return {"type": REFUSAL, REFUSAL: given} if isinstance(given, str) and speaks(given) else None


def _texts(given: Any, names: Sequence[str]) -> dict[str, str]:
    found = given if isinstance(given, Mapping) else {}
    return {name: found[name] for name in names if isinstance(found.get(name), str) and found[name]}


_READERS: dict[str, Callable[[Part], Part | None]] = {
    IMAGE: _image,
    "input_audio": _audio,
    "file": _file,
    REFUSAL: _refusal,
}

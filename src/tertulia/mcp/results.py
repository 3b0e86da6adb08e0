"""Results of MCP tools as content for a model: nothing else than text and images.

How much of a text a model is shown is limited for all tools alike, where they are run.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from tertulia.agents.base import Content
from tertulia.core.text.excerpt import shorten

_MAX_IMAGE: Final = 1_000_000  # characters of Base64
_MAX_IMAGES: Final = 8
_IMAGE_TYPES: Final = ("image/png", "image/jpeg", "image/gif", "image/webp")
INPUT_DECLINED: Final = (
    "Error: the server asked for more input from the person, which was declined."
    " Call the tool with everything that it needs."
)


def to_content(result: Mapping[str, Any]) -> Content:
    """Return the result of `tools/call` for the model."""
    if result.get("resultType") == "input_required":
        return INPUT_DECLINED
    parts = result.get("content")
    texts: list[str] = []
    images: list[dict[str, Any]] = []
    for part in parts if isinstance(parts, list) else []:
        if not isinstance(part, Mapping):
            continue
        image = _image(part) if len(images) < _MAX_IMAGES else None
        if image is not None:
            images.append(image)
        else:
            texts.append(_text(part))
    if not texts and not images and result.get("structuredContent") is not None:
        texts.append(json.dumps(result["structuredContent"], ensure_ascii=False))
    text = "\n".join(filter(None, texts)) or ("" if images else "The tool returned nothing.")
    if result.get("isError") is True:
        text = f"Error: {text}"
    if not images:
        return text
    return [*([{"type": "text", "text": text}] if text else []), *images]


def _image(part: Mapping[str, Any]) -> dict[str, Any] | None:
    data, kind = part.get("data"), part.get("mimeType")
    is_image = part.get("type") == "image" and kind in _IMAGE_TYPES and isinstance(data, str)
    if not is_image or len(str(data)) > _MAX_IMAGE:
        return None
    return {"type": "image_url", "image_url": {"url": f"data:{kind};base64,{data}"}}


def _text(part: Mapping[str, Any]) -> str:
    """Return the text of a part, or a note in brackets about a part that cannot be shown."""
    kind = str(part.get("type") or "")
    if kind == "text":
        return str(part.get("text") or "")
    if kind == "resource":
        resource = part.get("resource")
        fields = resource if isinstance(resource, Mapping) else {}
        text = fields.get("text")
        return str(text) if isinstance(text, str) else f"[resource {_name(fields)}]"
    if kind == "resource_link":
        return f"[link to the resource {_name(part)}]"
    return f"[{shorten(kind, 20) or 'part'} that cannot be shown here]"


def _name(fields: Mapping[str, Any]) -> str:
    return shorten(str(fields.get("uri") or fields.get("name") or "without a name"), 200)

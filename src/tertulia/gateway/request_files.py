"""Files inside the requests of API clients: stored like the files of a chat app."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from tertulia import aio
from tertulia.core.media import Media
from tertulia.core.message import USER, text_of

_DATA_URL: Final = re.compile(r"data:([a-z0-9.+/-]+);base64,(.*)", re.IGNORECASE | re.DOTALL)
_NOT_FOLLOWED: Final = "only files inside the request are accepted, links are not followed"
_NOT_READABLE: Final = "its data is not valid"


async def store_files(store: aio.Store, parts: Sequence[Any]) -> list[Any]:
    """Return the content parts of a request as files: image_url, file and input_audio.

    The bytes of a data URL are stored; a link is not followed.
    """
    return [await _store_file(store, part) for part in parts]


async def store_files_of(store: aio.Store, message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message of a request with its files stored apart from its text."""
    content = message.get("content")
    if message.get("role") != USER or not isinstance(content, list):
        return dict(message)
    parts = [part for part in content if isinstance(part, dict) and part.get("type") != "text"]
    if not parts:
        return dict(message)
    files = await store_files(store, parts)
    return {**message, "content": text_of(message), "media": files}


async def _store_file(store: aio.Store, part: Any) -> Any:
    if not isinstance(part, dict):
        return part
    match part.get("type"):
        case "image_url":
            image = part.get("image_url")
            url = image.get("url") if isinstance(image, dict) else image
            return await _store_url(store, url, Media(type="image"))
        case "file" if isinstance(part.get("file"), dict):
            file = part["file"]
            name = file.get("filename")
            media = Media(type="file", name=name if isinstance(name, str) else None)
            return await _store_url(store, file.get("file_data"), media)
        case "input_audio" if isinstance(part.get("input_audio"), dict):
            audio = part["input_audio"]
            url = f"data:audio/{audio.get('format')};base64,{audio.get('data')}"
            return await _store_url(store, url, Media(type="audio"))
    return part


def read_data_url(image: Any) -> bytes | None:
    """Return the bytes of an image part's data URL; None if it has none or they are not valid."""
    url = image.get("url") if isinstance(image, dict) else image
    match = _DATA_URL.fullmatch(url) if isinstance(url, str) else None
    return None if match is None else _decode(match[2])


def _decode(text: str) -> bytes | None:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None


async def _store_url(store: aio.Store, url: Any, media: Media) -> dict[str, Any]:
    match = _DATA_URL.fullmatch(url) if isinstance(url, str) else None
    if match is None:
        return Media(type=media.type, name=media.name, problem=_NOT_FOLLOWED).to_dict()
    content = _decode(match[2])
    if content is None:
        return Media(type=media.type, name=media.name, problem=_NOT_READABLE).to_dict()
    stored = await store.media.put(content, name=media.name, type=match[1])
    return stored.to_dict()

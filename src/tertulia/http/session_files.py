"""The files of messages: their bytes, for whoever may read the message."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

from starlette.responses import Response

from tertulia.core.media import Media
from tertulia.errors import NotFound
from tertulia.http.routing import SESSION_PATH, ApiCall, Operation

# Pictures that a browser shows. Others are only saved: an SVG, for example, can contain a script.
SHOWN_TYPES: Final = ("image/png", "image/jpeg", "image/gif", "image/webp")


async def read_file(call: ApiCall) -> Response:
    transcript = await call.scope.require_transcript(call.path["id"])
    window = await transcript.window(around=_number(call, "seq"), limit=1)
    files = window.messages[0].body.get("media") if window.messages else None
    number = _number(call, "number")
    file: Any = files[number] if isinstance(files, list) and number < len(files) else None
    media = Media.from_dict(dict(file)) if isinstance(file, Mapping) else Media()
    content = await call.api.store.media.get(media.hash or "")
    if content is None:
        raise NotFound("There is no such file.", hint="It may have been deleted since.")
    is_shown = media.type in SHOWN_TYPES
    name = quote(media.name or "file", safe="")
    disposition = "inline" if is_shown else "attachment"
    return Response(
        content,
        media_type=media.type if is_shown else "application/octet-stream",
        headers={
            "Content-Disposition": f"{disposition}; filename*=UTF-8''{name}",
            "X-Content-Type-Options": "nosniff",
            "Content-Security-Policy": "default-src 'none'; sandbox",
        },
    )


def _number(call: ApiCall, name: str) -> int:
    text = call.path[name]
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise NotFound("There is no such file.", hint="A message lists its files.")
    return int(text)


TABLE = (
    Operation(
        method="GET", path=SESSION_PATH + "/messages/{seq}/files/{number}", act=read_file,
        kind="application/octet-stream",
        summary="Read a file of a message, by its position in the list of its files.",
    ),
)  # fmt: skip

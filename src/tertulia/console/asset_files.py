"""The style and the script of the pages, each under an address that contains its hash.

htmx, its extension for event streams and our script are joined into one file. As separate files
htmx would begin before its extension is there, and nothing would be live, without an error.
"""

from __future__ import annotations

import gzip
import hashlib
from functools import cache
from importlib import resources
from typing import Final, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

_FOLDER: Final = resources.files("tertulia.console").joinpath("assets")
_SCRIPTS: Final = ("htmx.js", "hx-sse.js", "console.js")


class Asset(NamedTuple):
    """A file as it is sent."""

    name: str
    kind: str
    data: bytes
    packed: bytes


@cache
def assets() -> dict[str, Asset]:
    """Return the files by their kind: `css`, `js` and `guest`."""
    script = b";\n".join(_FOLDER.joinpath(name).read_bytes() for name in _SCRIPTS)
    style = _FOLDER.joinpath("console.css").read_bytes()
    return {
        "css": _asset("console", "css", "text/css", style),
        "js": _asset("console", "js", "text/javascript", script),
        "guest": _asset(
            "guest", "js", "text/javascript", _FOLDER.joinpath("guest.js").read_bytes()
        ),
    }


def _asset(name: str, suffix: str, kind: str, data: bytes) -> Asset:
    digest = hashlib.blake2b(data, digest_size=8).hexdigest()
    return Asset(f"{name}-{digest}.{suffix}", f"{kind}; charset=utf-8", data, gzip.compress(data))


async def send_asset(request: Request) -> Response:
    """Send a file; its address changes with its content, so a browser may keep it for ever."""
    name = request.path_params["name"]
    for asset in assets().values():
        if asset.name == name:
            headers = {
                "Cache-Control": "public, max-age=31536000, immutable",
                "Vary": "Accept-Encoding",
            }
            if "gzip" in request.headers.get("accept-encoding", ""):
                headers["Content-Encoding"] = "gzip"
                return Response(asset.packed, media_type=asset.kind, headers=headers)
            return Response(asset.data, media_type=asset.kind, headers=headers)
    return Response(status_code=404)

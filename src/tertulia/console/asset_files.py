"""The style and the script of the pages, each under an address that contains its hash.

htmx, its extension for event streams and our script are joined into one file. As separate files
htmx would begin before its extension is there, and nothing would be live, without an error. Our
files are sent without comments and indentation; the chat has a script of its own, which other pages
need not load.
"""

from __future__ import annotations

import gzip
import hashlib
import re
from functools import cache
from importlib import resources
from typing import Final, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

_FOLDER: Final = resources.files("tertulia.console").joinpath("assets")
_VENDORED: Final = ("htmx.js", "hx-sse.js")


class Asset(NamedTuple):
    """A file as it is sent."""

    name: str
    kind: str
    data: bytes
    packed: bytes


@cache
def assets() -> dict[str, Asset]:
    """Return the files by name: `css` and `js` of all pages, the others of one of them."""
    vendored = [_read(name) for name in _VENDORED]
    script = ";\n".join((*vendored, compact_script(_read("console.js"))))
    return {
        "css": _asset("console", "css", "text/css", compact_style(_read("console.css"))),
        "js": _asset("console", "js", "text/javascript", script),
        "chat_css": _asset("chat", "css", "text/css", compact_style(_read("chat.css"))),
        "prompt_css": _asset("prompt", "css", "text/css", compact_style(_read("prompt.css"))),
        "chat": _asset("chat", "js", "text/javascript", compact_script(_read("chat.js"))),
        "guest": _asset("guest", "js", "text/javascript", compact_script(_read("guest.js"))),
    }


def compact_style(text: str) -> str:
    """Return a style sheet without comments and without spaces that mean nothing.

    Spaces before `:` and around `+` and `-` stay: in selectors and in `calc` they do. Texts in
    quotes stay as they are.
    """
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    text = re.sub(r'("[^"]*")|\s+', lambda match: match[1] or " ", text)
    text = re.sub(
        r'("[^"]*")|(?<=:) | ?([{};,>]) ?', lambda match: match[1] or match[2] or "", text
    )
    return text.replace(";}", "}").strip()


def compact_script(text: str) -> str:
    """Return a script without indentation and without lines that are only a comment.

    Its lines stay lines, and no text of our scripts goes over several lines, so it means the same.
    """
    text = re.sub(r"\A/\*.*?\*/", "", text, flags=re.DOTALL)
    lines = (line.strip() for line in text.splitlines())
    return "\n".join(line for line in lines if line and not line.startswith("//"))


def _read(name: str) -> str:
    return _FOLDER.joinpath(name).read_text("utf-8")


def _asset(name: str, suffix: str, kind: str, text: str) -> Asset:
    data = text.encode()
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

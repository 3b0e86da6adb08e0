"""A chat for guests, to be put into the page of another site as a frame.

The address of the frame is `/console/guest#TOKEN`, with a token whose role is guest. A browser does
not send the part after `#`; the script of the page uses it for requests of the HTTP API, as
`docs/console.md` describes. Only sites in `http.frames` may show it.
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from tertulia.console.asset_files import assets
from tertulia.console.environment import render_template
from tertulia.console.page_definition import CONSOLE
from tertulia.http.app import Api


async def show_guest_page(api: Api, request: Request) -> Response:
    """Return the page; its own policy lets the configured sites show it in a frame."""
    context = {
        "css": f"{CONSOLE}/assets/{assets()['css'].name}",
        "chat_css": f"{CONSOLE}/assets/{assets()['chat_css'].name}",
        "js": f"{CONSOLE}/assets/{assets()['guest'].name}",
        "has_web": api.web is not None,
        "title": request.query_params.get("title", "Chat"),
    }
    ancestors = " ".join(("'self'", *api.settings.frames))
    policy = (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:;"
        f" connect-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors {ancestors};"
        " require-trusted-types-for 'script'; trusted-types 'none'"
    )
    headers = {"Content-Security-Policy": policy}
    return HTMLResponse(render_template("guest.html", context), headers=headers)

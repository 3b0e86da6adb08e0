"""Checks that protect a person's browser: the Host and Origin of requests, and what a page may do.

A page of another site can make this machine's browser send requests here. Its requests name its own
site as their origin. If it has pointed its own domain name at this machine (DNS rebinding), they
name that domain as the host. A cookie's SameSite rule is not enough: another port of this machine
is the same site.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tertulia.errors import AccessDenied
from tertulia.http.errors import error_response
from tertulia.http.settings import HttpSettings

_SAFE_METHODS = ("GET", "HEAD")
_WEB_PATHS = "/web/"
# A page loads scripts, styles and data from this server only. A script can turn text into markup
# only through the Trusted Types policy `htmx`, which the script of the pages declares.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:;"
    " connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none';"
    " require-trusted-types-for 'script'; trusted-types htmx"
)
HEADERS: Mapping[str, str] = {
    "content-security-policy": _POLICY,
    "cache-control": "no-store",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


class SitePermission:
    """Lets pages of the sites in `http.frames` use the addresses of the web platform, by CORS."""

    def __init__(self, app: ASGIApp, sites: Sequence[str]) -> None:
        self._app = app
        names = (
            "Authorization",
            "Content-Type",
            "Idempotency-Key",
            "Last-Event-ID",
            "X-Visitor-Id",
        )
        self._permitting = CORSMiddleware(
            app, allow_origins=sites, allow_methods=("GET", "POST"), allow_headers=names
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_web = scope["type"] == "http" and scope["path"].startswith(_WEB_PATHS)
        await (self._permitting if is_web else self._app)(scope, receive, send)


class BrowserGuard:
    """Puts the checks and the headers around the pages of the console.

    A response that sets one of the headers itself keeps its own value, such as a script that may be
    cached.
    """

    def __init__(self, app: ASGIApp, settings: HttpSettings) -> None:
        self._app = app
        self._settings = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            check_host(scope, self._settings)
            check_origin(scope)
        except AccessDenied as problem:
            response: Response = error_response(problem)
            await response(scope, receive, send_with_headers)
            return
        await self._app(scope, receive, send_with_headers)


def check_host(scope: Scope, settings: HttpSettings) -> None:
    """Raise `AccessDenied` unless the request names this server as its host."""
    server = scope.get("server") or ("", None)
    if not settings.is_own_host(Headers(scope=scope).get("host", ""), server[0]):
        raise AccessDenied(
            "This server does not answer to that host name.",
            hint="Use 127.0.0.1 or localhost, or add the name to http.hosts.",
        )


def check_origin(scope: Scope) -> None:
    """Raise `AccessDenied` for a request that may change something and is not from an own page.

    Browsers tell with `Sec-Fetch-Site`; those that do not, with `Origin`. Without either it is
    refused.
    """
    if scope["method"] in _SAFE_METHODS:
        return
    headers = Headers(scope=scope)
    site = headers.get("sec-fetch-site")
    own = f"{scope.get('scheme', 'http')}://{headers.get('host', '')}"
    if not (site == "same-origin" if site is not None else headers.get("origin") == own):
        raise AccessDenied(
            "This request was not sent by a page of the console.",
            hint="Open the console in this browser and try again there. A proxy that speaks TLS"
            " must send X-Forwarded-Proto.",
        )

"""Signed-in browsers: operations that list and end them, and the cookie of the console's pages.

The cookie is sent to `/console` only; the operations of the API never read it.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from tertulia.core.session import Page
from tertulia.http.auth import Caller, Unauthorized
from tertulia.http.parameters import Count, Cursor
from tertulia.http.routing import ApiCall, Operation
from tertulia.records.browsers import CODE_LIFETIME, LIFETIME, Browser, SignedIn

if TYPE_CHECKING:
    from tertulia.http.app import Api

CONSOLE_PATH = "/console"


class BrowserQuery(msgspec.Struct, frozen=True, kw_only=True):
    limit: Count = 50
    cursor: Cursor | None = None


class BrowserCode(msgspec.Struct, frozen=True, kw_only=True):
    """A code that signs one browser in, with the rights of the token that asked for it."""

    code: str
    until: datetime


class SignedOut(msgspec.Struct, frozen=True):
    """How many browsers were signed out."""

    browsers: int


class BrowserCookies:
    """The cookie by which the pages of the console know a browser again.

    Cookies ignore the port, so its name has the port: two gateways on one machine have two.
    """

    def __init__(self, api: Api) -> None:
        self._api = api

    async def sign_in(self, request: Request, code: str) -> SignedIn:
        """Sign the browser of a request in by a one-time code; `set_cookie` tells it.

        Raises `NotFound` for a wrong or old code, `AccessDenied` after five, `TooManyRequests`.
        """
        self._api.authenticator.count_stranger()
        return await self._api.store.browsers.sign_in(
            code,
            address="" if request.client is None else request.client.host,
            agent=request.headers.get("user-agent", ""),
        )

    async def sign_in_by_token(self, request: Request, secret: str) -> SignedIn:
        """Sign the browser of a request in with the secret of a token; raise `Unauthorized`."""
        if not self._api.settings.tokens:
            raise Unauthorized(
                "This server has no tokens.", hint="Use a code: tertulia console makes one."
            )
        caller = self._api.authenticator.authenticate({"authorization": f"Bearer {secret}"})
        agent = request.headers.get("user-agent", "")
        return await self._api.store.browsers.sign_in_as(caller.name, agent=agent)

    async def browser(self, request: Request) -> Browser:
        """Return the signed-in browser of a request; raise `Unauthorized` if it is not.

        Call it for each request, and in a stream at each sign of life.
        """
        secret = request.cookies.get(self._name(request), "")
        browser = await self._api.store.browsers.get(secret) if secret else None
        if browser is None or browser.name not in self._api.settings.token_roles:
            raise Unauthorized(
                "This browser is not signed in.", hint="Run tertulia console and open its link."
            )
        return browser

    async def caller(self, request: Request) -> Caller:
        """Return who uses the browser of a request, with the role of their token as of now."""
        browser = await self.browser(request)
        return Caller(browser.name, self._api.settings.token_roles[browser.name])

    def set_cookie(self, request: Request, response: Response, secret: str) -> None:
        """Let a response give the browser its secret."""
        response.set_cookie(
            self._name(request),
            secret,
            max_age=int(LIFETIME.total_seconds()),
            path=CONSOLE_PATH,
            secure=request.url.scheme == "https",
            httponly=True,
            samesite="strict",
        )

    def delete_cookie(self, request: Request, response: Response) -> None:
        """Let a response take the secret from the browser."""
        response.delete_cookie(
            self._name(request),
            path=CONSOLE_PATH,
            secure=request.url.scheme == "https",
            httponly=True,
            samesite="strict",
        )

    def _name(self, request: Request) -> str:
        port = request.url.port or (443 if request.url.scheme == "https" else 80)
        return f"tertulia_{port}"


async def list_browsers(call: ApiCall) -> Page[Browser]:
    name = None if call.caller.is_owner else call.caller.name
    query: BrowserQuery = call.query
    return await call.api.store.browsers.find(name=name, limit=query.limit, cursor=query.cursor)


async def create_browser_code(call: ApiCall) -> BrowserCode:
    code = await call.api.store.browsers.request_code(call.caller.name)
    return BrowserCode(code=code, until=call.api.store.now() + CODE_LIFETIME)


async def sign_out_browser(call: ApiCall) -> None:
    name = None if call.caller.is_owner else call.caller.name
    number = call.number("browser", "GET /browsers")
    await call.api.store.browsers.sign_out(number, name=name)


async def sign_out_browsers(call: ApiCall) -> SignedOut:
    name = None if call.caller.is_owner else call.caller.name
    return SignedOut(await call.api.store.browsers.sign_out_all(name=name))


TABLE = (
    Operation(
        method="GET", path="/browsers", act=list_browsers, role="guest", query=BrowserQuery,
        answer=Page[Browser],
        summary="List signed-in browsers, newest first: your own, or all for the owner.",
    ),
    Operation(
        method="POST", path="/browsers/codes", act=create_browser_code, role="guest",
        answer=BrowserCode,
        summary="Make a code that signs a browser in with your rights, once, within two minutes.",
    ),
    Operation(
        method="DELETE", path="/browsers/{id}", has_number=True,
        act=sign_out_browser, role="guest",
        summary="Sign a browser out.",
    ),
    Operation(
        method="DELETE", path="/browsers", act=sign_out_browsers, role="guest", answer=SignedOut,
        summary="Sign out all browsers: your own, or all for the owner.",
    ),
)  # fmt: skip

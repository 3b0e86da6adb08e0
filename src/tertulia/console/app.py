"""The application below `/console`: pages, their streams, the actions of their buttons, sign-in."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import lru_cache, partial
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Match, Route

from tertulia.console import (
    chat_page,
    delivery_pages,
    form_actions,
    now_page,
    people_page,
    prompt_page,
    search_page,
    session_pages,
    system_pages,
    usage_page,
)
from tertulia.console.asset_files import assets, send_asset
from tertulia.console.change_watch import ChangeWatch
from tertulia.console.environment import load_macro, render_template, zone
from tertulia.console.guest_page import show_guest_page
from tertulia.console.last_look import LastLook
from tertulia.console.live_stream import MAX_ROWS, LivePage, live_events
from tertulia.console.page_definition import (
    CONSOLE,
    ROW_SEPARATOR,
    ConsolePage,
    LoadedPage,
    PageCall,
    load_page,
    partials,
)
from tertulia.console.problem_counts import load_counts
from tertulia.console.sections import Section, sections_for
from tertulia.errors import AccessDenied, Error, NotFound
from tertulia.http.app import Api
from tertulia.http.auth import Caller, TooManyRequests, Unauthorized
from tertulia.http.errors import error_detail, status_of
from tertulia.http.event_stream import EventStream
from tertulia.http.routing import read_body
from tertulia.http.web import VISITOR, is_own_visitor
from tertulia.version import __version__

log = logging.getLogger("tertulia.console")

PAGES: tuple[ConsolePage, ...] = (
    *now_page.PAGES,
    *session_pages.PAGES,
    *prompt_page.PAGES,
    *search_page.PAGES,
    *delivery_pages.PAGES,
    *people_page.PAGES,
    *usage_page.PAGES,
    *system_pages.PAGES,
    *chat_page.PAGES,
)
_THEMES = ("light", "dark")
_VISITOR_COOKIE = "tertulia_visitor"
# How often an open chat asks whether its browser is still signed in.
_CHECK_SECONDS = 5.0


def console_pages(api: Api) -> Starlette:
    """Return the application of the console; `tertulia.http.serve` takes this as its `pages`."""
    return Starlette(
        routes=Console(api).routes(),
        middleware=[Middleware(GZipMiddleware, minimum_size=1000)],  # it leaves streams alone
        exception_handlers={HTTPException: _lost, Exception: _broken},
    )


class Console:
    """Answers the requests of signed-in browsers."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._watch = ChangeWatch(api.store.count_changes, lambda: api.is_draining)
        self._page_routes = [
            (Route(page.path, _no_endpoint, methods=["GET"]), page) for page in PAGES
        ]

    def routes(self) -> list[Route]:
        """Return all routes, without the prefix /console."""
        return [
            Route("/enter", self.enter, methods=["GET", "POST"]),
            Route("/guest", partial(show_guest_page, self._api), methods=["GET"]),
            Route("/leave", self.leave, methods=["POST"]),
            Route("/assets/{name}", send_asset, methods=["GET"]),
            Route("/live", self.live, methods=["GET"]),
            Route("/counts", self.counts, methods=["GET"]),
            Route("/do/{action}", self.act, methods=["POST"]),
            Route("/chat/events", self.chat_events, methods=["GET"]),
            Route("/files/{id}/{seq}/{number}", self.file, methods=["GET"]),
            Route("/export/{id}", self.export, methods=["GET"]),
            *(Route(page.path, self._page_endpoint(page), methods=["GET"]) for page in PAGES),
            Route("/{address:path}", self.lost, methods=["GET"]),
        ]

    # -- pages

    def _page_endpoint(self, page: ConsolePage) -> Callable[[Request], Any]:
        async def endpoint(request: Request) -> Response:
            try:
                caller = await self._api.cookies.caller(request)
            except Unauthorized:
                return _to_sign_in(request)
            query = dict(request.query_params)
            look = LastLook.of(request, self._api.store.now()) if page.path == "/" else None
            if look is not None and look.before is not None:
                query.setdefault("look", look.before.isoformat())
            call = self._call(request, caller, request.path_params, query)
            try:
                await self._count(caller)
                if caller.role == "guest" and page.role != "guest" and page.path == "/":
                    return RedirectResponse(f"{CONSOLE}/chat", 303)
                response = await self._page(page, call)
            except Error as problem:
                return self._error(request, caller, page, problem)
            if look is not None:
                look.keep(request, response)
            return response

        return endpoint

    async def _count(self, caller: Caller) -> None:
        """Count a request of a browser; raise `TooManyRequests` if there are too many."""
        try:
            self._api.authenticator.count_browser(caller)
        except TooManyRequests:
            await self._api.refusals.wait()
            raise

    async def _page(self, page: ConsolePage, call: PageCall) -> Response:
        loaded = await load_page(page, call)
        shared = self._shared(call.request, call.caller, page)
        if page.part and call.query.get("part") == page.part:
            return _html(loaded.regions(shared)[f"live_{page.part}"])
        response = _html(loaded.render(shared))
        await self._name_visitor(call, response)
        return response

    def _call(
        self, request: Request, caller: Caller, path: dict[str, Any], query: dict[str, str]
    ) -> PageCall:
        values = {name: str(value) for name, value in path.items()}
        visitor = request.cookies.get(_VISITOR_COOKIE, "")
        # A browser may have the cookie of another token, or of another server of this machine.
        if caller.role == "guest" and is_own_visitor(self._api, caller, visitor):
            headers = [*request.scope["headers"], (VISITOR.lower().encode(), visitor.encode())]
            request = Request({**request.scope, "headers": headers}, request.receive)
        return PageCall(api=self._api, caller=caller, request=request, path=values, query=query)

    async def _name_visitor(self, call: PageCall, response: Response) -> None:
        """Give the browser of a guest its own visitor id: many share a guest's token."""
        is_guest = call.caller.role == "guest" and call.api.web is not None
        if not is_guest or VISITOR in call.request.headers:
            return
        visitor = await call.operate("create_visitor")
        response.set_cookie(
            _VISITOR_COOKIE, visitor.visitor, path=CONSOLE, httponly=True, samesite="strict",
            secure=call.request.url.scheme == "https", max_age=30 * 86_400,
        )  # fmt: skip

    def _shared(self, request: Request, caller: Caller, page: ConsolePage | None) -> dict[str, Any]:
        """Return what every template may use."""
        theme = request.cookies.get("tertulia_theme", "")
        section, sections = "" if page is None else page.section, sections_for(caller)
        return {
            "caller": caller,
            "sections": sections,
            "section": section,
            "navigation": _navigation(sections, section),
            "heading": "" if page is None else page.title,
            "zone": str(zone()),
            "theme": theme if theme in _THEMES else "",
            "keys": request.cookies.get("tertulia_keys") != "off",
            "css": f"{CONSOLE}/assets/{assets()['css'].name}",
            "js": f"{CONSOLE}/assets/{assets()['js'].name}",
            "version": __version__,
            "now": self._api.store.now(),
            "notice": form_actions.NOTICES.get(request.query_params.get("note", "")),
            "is_owner": caller.is_owner,
            "live_address": None,
            "is_live_chat": False,
        }

    def _error(
        self, request: Request, caller: Caller, page: ConsolePage | None, problem: Error
    ) -> Response:
        """Return the frame of the page with the reason and a way on."""
        if isinstance(problem, AccessDenied) and page is not None:
            # Another person's page is not found, just as one that does not exist.
            problem = _no_such_page()
        status, _ = status_of(problem)
        context = self._shared(request, caller, page) | {
            "problem": error_detail(problem),
            "address": _own_address(request),
            "heading": "Not found" if isinstance(problem, NotFound) else "That did not work",
        }
        headers = (
            None if problem.retry_after is None else {"Retry-After": f"{problem.retry_after:.0f}"}
        )
        return _html(render_template("problem.html", context), status, headers)

    async def lost(self, request: Request) -> Response:
        """Tell that there is no page at this address, in the frame of whoever is signed in."""
        try:
            caller = await self._api.cookies.caller(request)
            await self._count(caller)
        except Unauthorized:
            raise HTTPException(404) from None
        except Error as problem:
            return self._error(request, caller, None, problem)
        return self._error(request, caller, None, _no_such_page())

    # -- live

    async def counts(self, request: Request) -> Response:
        """Return how much waits for the owner, for the navigation of a page without a stream."""
        try:
            caller = await self._api.cookies.caller(request)
            await self._count(caller)
            parts = await load_counts(self._call(request, caller, {}, {}))
        except Error as problem:
            return Response(problem.code, status_of(problem)[0], media_type="text/plain")
        return _html(partials(parts))

    async def live(self, request: Request) -> Response:
        """Return the stream of a page."""
        try:
            caller = await self._api.cookies.caller(request)
            await self._count(caller)
            page, path, query = self._page_at(request.query_params.get("at", ""))
            self._api.streams.check(f"console/{caller.name}")
        except Error as problem:
            return Response(problem.code, status_of(problem)[0], media_type="text/plain")
        ids = request.query_params.get("rows", "").split(ROW_SEPARATOR)
        rows = [row for row in ids if row][:MAX_ROWS]
        since = request.headers.get("last-event-id") or request.query_params.get("since", "")

        live_page = LivePage(
            address=request.query_params.get("at", ""),
            rows=rows,
            shared=self._shared(request, caller, page),
            ages=page.ages,
            check=lambda: self._api.cookies.caller(request),
            load=lambda current: load_page(page, self._call(request, current, path, query)),
            load_counts=lambda current: load_counts(self._call(request, current, {}, {})),
        )
        return EventStream(
            live_events(live_page, caller, self._watch, since),
            seconds=self._api.settings.stream_seconds,
            counted=self._api.streams.open(f"console/{caller.name}"),
        )  # fmt: skip

    def _page_at(self, address: str) -> tuple[ConsolePage, dict[str, Any], dict[str, str]]:
        """Return the page at an address, with the values in its path and query."""
        parts = urlsplit(address)
        path = parts.path.removeprefix(CONSOLE) or "/"
        scope = {"type": "http", "method": "GET", "path": path, "root_path": ""}
        for route, page in self._page_routes:
            match, child = route.matches(scope)
            if match is Match.FULL and not parts.netloc:
                return page, child["path_params"], dict(parse_qsl(parts.query))
        raise NotFound(f"There is no page at {address[:80]!r}.")

    # -- actions

    async def act(self, request: Request) -> Response:
        """Run the operation that a button asks for, and return the page as it is then."""
        is_script = request.headers.get("hx-request") == "true"
        try:
            caller = await self._api.cookies.caller(request)
        except Unauthorized:
            signed_out = render_template("_signed_out.html", {})
            return _html(signed_out, 401) if is_script else _to_sign_in(request)
        try:
            await self._count(caller)
            fields = await self._form(request, caller)
            # A field called `id` would hide the id of its form from the script, which then replaces
            # the form at each update, with what was typed in it.
            if "which" in fields:
                fields["id"] = fields.pop("which")
            back = fields.pop("back", f"{CONSOLE}/")
            page, path, query = self._page_at(back)
            call = self._call(request, caller, path, query)
            result = await form_actions.run_action(request.path_params["action"], call, fields)
        except Error as problem:
            if not is_script:
                return self._error(request, caller, None, problem)
            notice = render_template(
                "_notice.html", {"notice": None, "problem": error_detail(problem)}
            )
            return _html(partials({"notice": notice}), status_of(problem)[0])
        target = result.leads_to
        if not is_script:
            return RedirectResponse(target or _with_note(back, result.note), 303)
        html = "" if target else self._refreshed(request, await load_page(page, call), result)
        return _html(html, headers={"HX-Redirect": target} if target else None)

    def _refreshed(
        self, request: Request, loaded: LoadedPage, result: form_actions.ActionResult
    ) -> str:
        """Return the changing parts of a page after an action, and the notice of the action."""
        shared = self._shared(request, loaded.call.caller, loaded.page)
        context = {"notice": result, "problem": None, "address": loaded.address}
        parts = loaded.regions(shared) | {"notice": render_template("_notice.html", context)}
        html = partials(parts)
        if loaded.page.is_live:
            # The stream has to follow the rows that are here now, and may have sent newer parts.
            stream = {"live_address": loaded.live_address(shared)}
            html += partials({"live": render_template("_live.html", stream)}, swap="outerHTML")
        return html

    async def _form(self, request: Request, caller: Caller | None) -> dict[str, str]:
        role = None if caller is None else caller.role
        data = await read_body(request, self._api.settings, role)
        text = data.decode("utf-8", "replace")
        return dict(parse_qsl(text, keep_blank_values=True, max_num_fields=1000))

    # -- signing in and out

    async def enter(self, request: Request) -> Response:
        """Show the page to sign in at, or sign a browser in by a code or a token."""
        context: dict[str, Any] = {
            **self._shared(request, Caller("", "guest"), None),
            "problem": None, "to": _safe_target(request.query_params.get("to", "")),
        }  # fmt: skip
        if request.method != "POST":
            return _html(render_template("enter.html", context))
        try:
            fields = await self._form(request, None)
            context["to"] = _safe_target(fields.get("to", ""))
            cookies, token = self._api.cookies, fields.get("token", "").strip()
            if token:
                signed_in = await cookies.sign_in_by_token(request, token)
            else:
                signed_in = await cookies.sign_in(request, fields.get("code", "").strip() or "-")
        except Error as problem:
            page = render_template("enter.html", context | {"problem": error_detail(problem)})
            return _html(page, status_of(problem)[0])
        response = RedirectResponse(context["to"], 303)
        cookies.set_cookie(request, response, signed_in.secret)
        return response

    async def leave(self, request: Request) -> Response:
        """Sign this browser out."""
        response = RedirectResponse(f"{CONSOLE}/enter", 303)
        try:
            browser = await self._api.cookies.browser(request)
            caller = await self._api.cookies.caller(request)
            call = self._call(request, caller, {}, {})
            await call.operate("sign_out_browser", path={"id": str(browser.id)})
        except Error:
            log.debug("a browser signed out that was not signed in")
        self._api.cookies.delete_cookie(request, response)
        return response

    # -- the chat, and files of messages

    async def file(self, request: Request) -> Response:
        """Return a file of a message, to whoever may read the message."""
        return await self._download(request, lambda call: call.operate("read_file", path=call.path))

    async def export(self, request: Request) -> Response:
        """Return a session as a file, to whoever may read it."""
        return await self._download(
            request,
            lambda call: call.operate(
                "export_session", path=call.path, query=call.choose("format", "redact")
            ),
        )

    async def _download(
        self, request: Request, read: Callable[[PageCall], Awaitable[Response]]
    ) -> Response:
        try:
            caller = await self._api.cookies.caller(request)
            query = dict(request.query_params)
            await self._count(caller)
            response = await read(self._call(request, caller, request.path_params, query))
        except Unauthorized:
            return _to_sign_in(request)
        except Error as problem:
            return self._error(request, caller, None, problem)
        return response

    async def chat_events(self, request: Request) -> Response:
        """Return the events of this person's chat, as the web platform sends them."""
        try:
            caller = await self._api.cookies.caller(request)
            await self._count(caller)
            call = self._call(request, caller, {}, dict(request.query_params))
            stream = await chat_page.read_chat_events(call)
        except Error as problem:
            return Response(problem.code, status_of(problem)[0], media_type="text/plain")
        stream.end_when_refused(partial(self._api.cookies.browser, request), seconds=_CHECK_SECONDS)
        return stream


def _html(text: str, status: int = 200, headers: dict[str, str] | None = None) -> HTMLResponse:
    return HTMLResponse(text.encode("utf-8", "replace"), status, headers)


@lru_cache(maxsize=200)
def _navigation(sections: tuple[Section, ...], section: str) -> str:
    """Return the navigation as HTML; it is the same for all people of a role."""
    return load_macro("_navigation.html", "navigation_html")(sections, section)


def _own_address(request: Request) -> str:
    query = request.url.query
    return request.url.path + (f"?{query}" if query else "")


def _to_sign_in(request: Request) -> Response:
    target = urlencode({"to": _own_address(request)}) if request.method == "GET" else ""
    return RedirectResponse(f"{CONSOLE}/enter" + (f"?{target}" if target else ""), 303)


def _safe_target(address: str) -> str:
    """Return an address of the console to go to after signing in, whatever was asked for."""
    is_own = address.startswith(f"{CONSOLE}/") and not {"\\", "\n", "\r"} & set(address)
    return address if is_own and not address.startswith(f"{CONSOLE}/enter") else f"{CONSOLE}/"


def _with_note(address: str, note: str) -> str:
    separator = "&" if "?" in address else "?"
    return f"{address}{separator}{urlencode({'note': note})}"


def _no_such_page() -> NotFound:
    return NotFound("There is no such page.", hint="The navigation lists yours.")


async def _no_endpoint(request: Request) -> Response:
    raise AssertionError("this route is only matched")


async def _lost(request: Request, problem: Any) -> Response:
    context = {
        "title": "There is no such page",
        "text": "The address is wrong, or it is not yours.",
    }
    return _html(_bare(context), problem.status_code)


async def _broken(request: Request, problem: Exception) -> Response:
    context = {
        "title": "The console made a mistake",
        "text": "The log of the gateway has the details. Nothing was changed by this page.",
    }
    return _html(_bare(context), 500)


def _bare(context: dict[str, str]) -> str:
    css = f"{CONSOLE}/assets/{assets()['css'].name}"
    return render_template("bare.html", context | {"css": css, "console": CONSOLE})

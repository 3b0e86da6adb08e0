"""The ASGI application of a gateway, built from the tables of operations."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from types import MappingProxyType
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Match, Mount, Route
from starlette.types import ASGIApp

from tertulia import aio
from tertulia.gateway.app import Gateway
from tertulia.gateway.request_reply import Responder
from tertulia.http import health
from tertulia.http.auth import Authenticator, RefusalDelay
from tertulia.http.awaited_turn import RepeatedRequests
from tertulia.http.browsers import CONSOLE_PATH, BrowserCookies
from tertulia.http.client_conversations import RecentChoices
from tertulia.http.errors import ErrorBody, ErrorDetail, json_response
from tertulia.http.event_stream import StreamLimit
from tertulia.http.guard import BrowserGuard, SitePermission
from tertulia.http.operations import TABLE
from tertulia.http.routing import describe_api, routes
from tertulia.http.settings import HttpSettings, Token
from tertulia.platforms.web import WebAdapter
from tertulia.platforms.webhook import WebhookAdapter
from tertulia.records.people import Role

_OPENAI_PATHS = (
    "Of OpenAI's API there are /v1/models, /v1/chat/completions and /v1/responses; GET /sessions"
    " lists conversations."
)


class Api:
    """The objects that operations and pages share: gateway, settings, authenticator, metrics."""

    def __init__(
        self,
        gateway: Gateway,
        settings: HttpSettings,
        configuration: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        self.gateway = gateway
        self.settings = settings
        self.configuration = configuration
        self.authenticator = Authenticator(settings)
        self.cookies = BrowserCookies(self)
        self.repeated = RepeatedRequests()
        self.choices = RecentChoices()
        self.refusals = RefusalDelay(settings.refusal_seconds)
        self.streams = StreamLimit(settings.streams_per_token, settings.streams_per_address)
        self.responder = Responder(gateway.pipeline, wait=settings.wait_seconds)
        gateway.pipeline.token_roles = settings.token_roles
        self.metrics = health.PrometheusMetrics()
        gateway.pipeline.metrics = self.metrics
        self._is_draining = False

    @property
    def store(self) -> aio.Store:
        return self.gateway.store

    @property
    def agent_name(self) -> str:
        return self.gateway.agent.name

    def models_for(self, role: Role) -> tuple[str, ...]:
        """Return the names that a request may ask for: agents and models, the usual one first."""
        return tuple(dict.fromkeys((self.agent_name, *self.gateway.agents.selections(role))))

    def token_of(self, name: str) -> Token | None:
        """Return the token of that name, or None."""
        return next((token for token in self.settings.tokens if token.name == name), None)

    def derive_key(self, purpose: str) -> bytes:
        """Return a secret key of this installation for one purpose."""
        return self.store.sync.redactor.derive_key(purpose)

    @property
    def web(self) -> WebAdapter | None:
        adapter = self.gateway.adapters.of(WebAdapter.name)
        return adapter if isinstance(adapter, WebAdapter) else None

    @property
    def webhook(self) -> WebhookAdapter | None:
        adapter = self.gateway.adapters.of(WebhookAdapter.name)
        return adapter if isinstance(adapter, WebhookAdapter) else None

    @property
    def is_draining(self) -> bool:
        return self._is_draining or self.gateway.drain_deadline is not None

    def start_draining(self) -> None:
        """Report this node as not ready and end open page streams, so pages reconnect elsewhere."""
        self._is_draining = True
        if self.web is not None:
            self.web.end_streams()


# Makes the pages of the console, an ASGI application whose paths begin after /console.
Pages = Callable[[Api], ASGIApp]


def application(
    gateway: Gateway,
    settings: HttpSettings | None = None,
    *,
    pages: Pages | None = None,
    configuration: Mapping[str, Any] = MappingProxyType({}),
) -> Starlette:
    """Return the application of a gateway, for any ASGI server; `serve` runs it with uvicorn.

    With `pages`, the application that this function returns is served below `/console`, behind the
    checks of `guard.py`, and `/` leads there. `configuration` are the settings that owners may look
    at, nested by section and without secrets.
    """
    api = Api(gateway, settings or HttpSettings(), configuration)
    description = describe_api(TABLE)

    async def openapi(request: Request) -> Response:
        return json_response(description)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        try:
            yield
        finally:
            api.start_draining()
            await api.responder.drain(api.settings.drain_seconds)

    mounts: list[BaseRoute] = []
    frames = api.settings.frames
    if pages is not None:
        guarded = BrowserGuard(pages(api), api.settings)
        mounts.append(Mount(CONSOLE_PATH, guarded, name="console"))
    app = Starlette(
        middleware=[Middleware(SitePermission, sites=frames)] if frames else [],
        routes=[*mounts, *routes(api, TABLE)],
        lifespan=lifespan,
        exception_handlers={HTTPException: _route_error, Exception: _internal_error},
    )
    app.add_route("/openapi.json", openapi, methods=["GET"])
    if pages is not None:
        app.add_route("/", _lead_to_console, methods=["GET"])
    app.state.api = api
    return app


async def _lead_to_console(request: Request) -> Response:
    return RedirectResponse(f"{CONSOLE_PATH}/", status_code=303)


async def _route_error(request: Request, problem: Any) -> Response:
    """Return the response for an unknown path, or a method that the path does not have."""
    headers = {**(problem.headers or {})}
    if problem.status_code == 405:
        headers["Allow"] = ", ".join(_allowed_methods(request))
    path = request.url.path
    hint = "GET /openapi.json lists every path and its methods."
    if path.startswith("/v1/"):
        hint = f"{_OPENAI_PATHS} {hint}"
    detail = ErrorDetail(
        message=f"{problem.detail}: {request.method} {path[:200]}",
        type="not_found_error" if problem.status_code == 404 else "invalid_request_error",
        code="not_found" if problem.status_code == 404 else "refused",
        hint=hint,
    )
    return json_response(ErrorBody(detail), problem.status_code, headers)


def _allowed_methods(request: Request) -> list[str]:
    """Return the methods that the path of a request has; each may be a route of its own."""
    return sorted(
        {
            method
            for route in request.app.routes
            if isinstance(route, Route) and route.matches(request.scope)[0] is Match.PARTIAL
            for method in route.methods or ()
        }
    )


async def _internal_error(request: Request, problem: Exception) -> Response:
    """Return the response for a bug in the gateway; only the log has the details."""
    detail = ErrorDetail(
        message="Internal error of the gateway.",
        type="server_error",
        code="broken",
        hint="The log of the gateway has the details.",
    )
    return json_response(ErrorBody(detail), 500)

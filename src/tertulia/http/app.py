"""The gateway as a web application: the tables of operations, put together."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from tertulia import aio
from tertulia.gateway.app import Gateway
from tertulia.gateway.request_reply import Responder
from tertulia.http import (
    deliveries,
    health,
    openai,
    processes,
    schedules,
    sessions,
    turns,
    web,
    webhook,
)
from tertulia.http.auth import (
    API,
    WEB,
    Authenticator,
    Caller,
)
from tertulia.http.errors import (
    ErrorBody,
    ErrorDetail,
    json_response,
)
from tertulia.http.routing import (
    Operation,
    description,
    routes,
)
from tertulia.http.settings import HttpSettings
from tertulia.platforms.web import WebAdapter
from tertulia.platforms.webhook import WebhookAdapter


class Api:
    """What the operations work with."""

    def __init__(self, gateway: Gateway, settings: HttpSettings) -> None:
        self.gateway = gateway
        self.settings = settings
        self.door = Authenticator(settings)
        self.direct = Responder(gateway.pipeline, wait=settings.wait_seconds)
        self.metrics = health.PrometheusMetrics()
        gateway.pipeline.metrics = self.metrics
        self.is_draining = False
        self._met: set[Caller] = set()

    @property
    def store(self) -> aio.Store:
        return self.gateway.store

    @property
    def agent_name(self) -> str:
        return self.gateway.agent.name

    @property
    def web(self) -> WebAdapter | None:
        found = self.gateway.adapters.get(WebAdapter.name)
        return found if isinstance(found, WebAdapter) else None

    @property
    def webhook(self) -> WebhookAdapter | None:
        found = self.gateway.adapters.get(WebhookAdapter.name)
        return found if isinstance(found, WebhookAdapter) else None

    def close(self) -> None:
        """Begin to stop: this node is not ready any more, and pages go elsewhere."""
        self.is_draining = True
        if self.web is not None:
            self.web.end_streams()

    async def remember(self, caller: Caller) -> None:
        """Make the role of a token known where commands and tools ask for it.

        On pages a guest may have been let in by a code, which counts until the token is given
        another role. Which one it had stands with `api`, where nobody is let in by a code.
        """
        if caller in self._met:
            return
        people = self.store.people
        known = [await people.get(caller.person(platform)) for platform in (API, WEB)]
        is_as_before = known[0] is not None and known[0].role == caller.role == "guest"
        if not is_as_before and (self.web is not None or known[1] is not None):
            await people.remember(caller.source(WEB), role=caller.role)
        await people.remember(caller.source(API), role=caller.role)
        self._met.add(caller)


TABLE: tuple[Operation, ...] = (
    *turns.TABLE,
    *openai.TABLE,
    *sessions.TABLE,
    *schedules.TABLE,
    *processes.TABLE,
    *deliveries.TABLE,
    *web.TABLE,
    *webhook.TABLE,
    *health.TABLE,
)


def application(gateway: Gateway, settings: HttpSettings | None = None) -> Starlette:
    """The application for a gateway, for any ASGI server; `serve` runs it with uvicorn."""
    api = Api(gateway, settings or HttpSettings())
    described = description(TABLE)

    async def openapi(request: Request) -> Response:
        return json_response(described)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        try:
            yield
        finally:
            api.close()
            await api.direct.drain(api.settings.drain_seconds)

    app = Starlette(
        routes=routes(api, TABLE),
        lifespan=lifespan,
        exception_handlers={HTTPException: _no_route, Exception: _broken},
    )
    app.add_route("/openapi.json", openapi, methods=["GET"])
    app.state.api = api
    return app


async def _no_route(request: Request, problem: Any) -> Response:
    """There is no such address, or it has no such method."""
    headers = {**(problem.headers or {})}
    fault = ErrorDetail(
        message=f"{problem.detail}.",
        type="not_found_error" if problem.status_code == 404 else "invalid_request_error",
        code="not_found" if problem.status_code == 404 else "refused",
        hint="See /openapi.json for what there is.",
    )
    return json_response(ErrorBody(fault), problem.status_code, headers)


async def _broken(request: Request, problem: Exception) -> Response:
    """A mistake in the gateway itself: the log has it, the caller learns nothing of it."""
    fault = ErrorDetail(
        message="Something is broken here.",
        type="server_error",
        code="broken",
        hint="Look at the log of the gateway.",
    )
    return json_response(ErrorBody(fault), 500)

"""Every operation of the HTTP API, and a way to call one from Python instead of over the network.

Another package that shows the same operations in another form, such as the console with its pages,
calls them here by name and gets their values: the same function runs, after the same checks of
role, query and body, so neither face can do more than the other.

    page = await call_operation(api, "list_sessions", caller, request, query={"limit": 50})
    await call_operation(api, "end_session", caller, request, path={"id": session_id}, body={})
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from starlette.requests import Request

from tertulia.core.session import Session
from tertulia.errors import ConfigError
from tertulia.http import (
    approvals,
    browsers,
    configuration,
    deliveries,
    health,
    inbox,
    mcp_server,
    now,
    openai_api,
    people,
    platforms,
    processes,
    revisions,
    schedules,
    session_export,
    session_files,
    session_turns,
    sessions,
    traces,
    turns,
    web,
    webhook,
    why,
)
from tertulia.http.auth import Caller
from tertulia.http.routing import ApiCall, Operation, convert_fields

if TYPE_CHECKING:
    from tertulia.http.app import Api

TABLE: tuple[Operation, ...] = (
    *turns.TABLE,
    *openai_api.TABLE,
    *sessions.TABLE,
    *revisions.TABLE,
    *session_turns.TABLE,
    *session_files.TABLE,
    *session_export.TABLE,
    *why.TABLE,
    *schedules.TABLE,
    *processes.TABLE,
    *now.TABLE,
    *deliveries.TABLE,
    *inbox.TABLE,
    *traces.TABLE,
    *people.TABLE,
    *approvals.TABLE,
    *mcp_server.TABLE,
    *browsers.TABLE,
    *configuration.TABLE,
    *web.TABLE,
    *webhook.TABLE,
    *platforms.TABLE,
    *health.TABLE,
)
BY_NAME: Mapping[str, Operation] = MappingProxyType({each.name: each for each in TABLE})

_NOTHING: Mapping[str, Any] = MappingProxyType({})


async def call_operation(
    api: Api,
    name: str,
    caller: Caller,
    request: Request,
    *,
    path: Mapping[str, str] = _NOTHING,
    query: Mapping[str, Any] = _NOTHING,
    body: Mapping[str, Any] | None = None,
    sessions: dict[str, Session] | None = None,
) -> Any:
    """Run the operation of that name for a caller, and return its value.

    The value is what the JSON of the operation is written from: a frozen struct, such as
    `Page[Session]`, or None. Operations that answer with a stream or bytes return that `Response`.

    `query` and `body` may hold the texts of an address or a form ("50", "true"): they are converted
    as the operation declares. `request` is the request that the call is made for; an operation that
    streams reads its headers. Calls that belong together, such as those of one page, share a dict
    of `sessions`, and each session is read once.

    Raises what the operation raises, `AccessDenied` if the caller's role is too low, `ConfigError`
    for a wrong query or body. `tertulia.http.errors.error_detail` and `status_of` turn any of them
    into what a client may see. The request is not counted against the limit of the caller's token.
    """
    operation = BY_NAME.get(name)
    if operation is None:
        raise ConfigError(f"There is no operation {name!r}.", hint="See GET /openapi.json.")
    if operation.role is not None:
        caller.require_role(operation.role)
    call = ApiCall(
        api=api,
        caller=caller,
        request=request,
        path=dict(path),
        query=None if operation.query is None else convert_fields(query, operation.query),
        body=None if operation.body is None else convert_fields(body or {}, operation.body),
        sessions=sessions,
    )
    return await operation.act(call)

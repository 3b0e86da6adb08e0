"""The address at which a platform calls its adapter: /platforms/NAME, or …/NAME/ACCOUNT."""

from __future__ import annotations

from starlette.responses import Response

from tertulia.errors import NotFound
from tertulia.http.routing import ApiCall, Operation, read_body
from tertulia.platforms.base import HttpRequest


async def call_platform(call: ApiCall) -> Response:
    name, account = call.path["platform"], call.path.get("account", "")
    adapter = call.api.gateway.adapters.of(name, account)
    if adapter is None:
        raise NotFound(
            "This gateway does not serve that platform.", hint="Add it to the configuration."
        )
    request = HttpRequest(
        method=call.request.method,
        headers=dict(call.request.headers),
        query=dict(call.request.query_params),
        body=await read_body(
            call.request, call.api.settings, None, needed_bytes=adapter.request_bytes
        ),
    )
    response = await adapter.respond(request)
    return Response(response.body, response.status, media_type=response.content_type)


async def verify_platform(call: ApiCall) -> Response:
    return await call_platform(call)


async def call_account(call: ApiCall) -> Response:
    return await call_platform(call)


async def verify_account(call: ApiCall) -> Response:
    return await call_platform(call)


TABLE = (
    Operation(
        method="POST", path="/platforms/{platform}", act=call_platform, role=None, is_raw=True,
        summary="Accept a call of a chat platform, which its adapter authenticates.",
    ),
    Operation(
        method="GET", path="/platforms/{platform}", act=verify_platform, role=None, is_raw=True,
        summary="Answer the question of a chat platform whether this address is its own.",
    ),
    Operation(
        method="POST", path="/platforms/{platform}/{account}", act=call_account, role=None,
        is_raw=True, summary="Accept a call of a chat platform for one of several accounts.",
    ),
    Operation(
        method="GET", path="/platforms/{platform}/{account}", act=verify_account, role=None,
        is_raw=True, summary="Answer a chat platform about the address of one of several accounts.",
    ),
)  # fmt: skip

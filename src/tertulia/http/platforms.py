"""The address at which a platform calls its adapter: /platforms/NAME."""

from __future__ import annotations

from starlette.responses import Response

from tertulia.errors import NotFound
from tertulia.http.routing import ApiCall, Operation, read_body
from tertulia.platforms.base import HttpRequest


async def call_platform(call: ApiCall) -> Response:
    name = call.path["platform"]
    adapter = call.api.gateway.adapters.get(name)
    if adapter is None:
        raise NotFound(
            "This gateway does not serve that platform.", hint="Add it to the configuration."
        )
    request = HttpRequest(
        method=call.request.method,
        headers=dict(call.request.headers),
        query=dict(call.request.query_params),
        body=await read_body(call.request, call.api.settings),
    )
    response = await adapter.respond(request)
    return Response(response.body, response.status, media_type=response.content_type)


async def verify_platform(call: ApiCall) -> Response:
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
)  # fmt: skip

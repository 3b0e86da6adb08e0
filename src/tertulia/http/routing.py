"""An operation: a method and a path, who may ask, what is given and what comes back.

Everything that is true of all of them stands here: the token, the limits, the reading of what was
given, and errors. The OpenAPI description is made from the same table, so it cannot differ.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from tertulia.errors import ConfigError, Error
from tertulia.http.auth import (
    Caller,
    Scope,
)
from tertulia.http.errors import (
    BodyTooLarge,
    BodyTooSlow,
    ErrorBody,
    json_response,
    refusal,
)
from tertulia.http.settings import HttpSettings
from tertulia.records.people import Role
from tertulia.version import __version__

if TYPE_CHECKING:
    from tertulia.http.app import Api


class ApiCall(msgspec.Struct, frozen=True, kw_only=True):
    """One request, read and checked."""

    api: Any
    caller: Caller
    request: Request
    path: dict[str, str]
    query: Any = None
    body: Any = None

    @property
    def eyes(self) -> Scope:
        return Scope(self.api.store, self.caller)


Act = Callable[[ApiCall], Awaitable[Any]]


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the table. `answer` is the shape of what comes back; None for what has none.

    `role` None: no token is asked for. `is_raw`: the operation reads the body itself.
    """

    method: str
    path: str
    summary: str
    act: Act
    role: Role | None = "member"
    query: type | None = None
    body: type | None = None
    answer: type | None = None
    status: int = 200
    streams: bool = False
    kind: str = "application/json"
    headers: tuple[str, ...] = ()
    is_raw: bool = False

    @property
    def name(self) -> str:
        return self.act.__name__


def routes(api: Api, table: Sequence[Operation]) -> list[Route]:
    """The table as routes, those of one path together."""
    return [
        Route(one.path, _endpoint(api, one), methods=[one.method], name=one.name) for one in table
    ]


def _endpoint(api: Api, operation: Operation) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        try:
            call = await _read(api, operation, request)
            found = await operation.act(call)
        except Error as problem:
            return refusal(problem)
        except ClientDisconnect:
            return Response(status_code=400)
        if isinstance(found, Response):
            return found
        if found is None:
            return Response(status_code=204)
        return json_response(found, operation.status)

    return endpoint


async def _read(api: Api, operation: Operation, request: Request) -> ApiCall:
    if operation.role is None:
        caller = Caller("nobody", "guest")
    else:
        caller = api.door.admit(request.headers)
        caller.require(operation.role)
    query = body = None
    if operation.query is not None:
        query = _converted(dict(request.query_params), operation.query)
    if operation.body is not None and not operation.is_raw:
        given = await read_body(request, api.settings)
        body = _decoded(given, operation.body)
    return ApiCall(
        api=api,
        caller=caller,
        request=request,
        path={name: str(value) for name, value in request.path_params.items()},
        query=query,
        body=body,
    )


async def read_body(request: Request, settings: HttpSettings) -> bytes:
    """The body, read no further and no longer than the limits."""
    declared = request.headers.get("content-length", "")
    if declared.isascii() and declared.isdigit() and int(declared[:18]) > settings.max_body:
        raise _too_large(settings.max_body)
    found = bytearray()
    try:
        async with asyncio.timeout(settings.read_seconds):
            async for chunk in request.stream():
                found += chunk
                if len(found) > settings.max_body:
                    raise _too_large(settings.max_body)
    except TimeoutError:
        raise BodyTooSlow(
            f"The request did not come in within {settings.read_seconds:g} seconds.",
            hint="Send it again, or raise read_seconds.",
        ) from None
    return bytes(found)


def _too_large(limit: int) -> BodyTooLarge:
    return BodyTooLarge(
        f"The request is larger than {limit} bytes.", hint="Send less, or raise max_body."
    )


def _decoded(given: bytes, kind: type) -> Any:
    try:
        return msgspec.json.decode(given or b"{}", type=kind)
    except (msgspec.ValidationError, msgspec.DecodeError, UnicodeError, RecursionError) as problem:
        raise _unfit(problem) from None


def _converted(given: dict[str, str], kind: type) -> Any:
    try:
        return msgspec.convert(given, kind, strict=False)
    except (msgspec.ValidationError, UnicodeError, OverflowError) as problem:
        raise _unfit(problem) from None


def _unfit(problem: Exception) -> ConfigError:
    return ConfigError(
        f"The request does not fit: {problem}.", hint="See /openapi.json for what it takes."
    )


# -- the description


def description(table: Sequence[Operation]) -> dict[str, Any]:
    """The OpenAPI description of a table."""
    kinds: list[type] = [ErrorBody]
    for one in table:
        kinds += [kind for kind in (one.query, one.body, one.answer) if kind is not None]
    schemas, components = msgspec.json.schema_components(
        kinds, ref_template="#/components/schemas/{name}"
    )
    by_kind = dict(zip(map(id, kinds), schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for one in table:
        described = _described(one, by_kind, components)
        paths.setdefault(one.path, {})[one.method.lower()] = described
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Tertulia",
            "version": __version__,
            "description": "The conversations of a gateway. Every error has the same form.",
        },
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _described(
    one: Operation, schemas: dict[int, dict[str, Any]], components: dict[str, Any]
) -> dict[str, Any]:
    found: dict[str, Any] = {
        "operationId": one.name,
        "summary": one.summary,
        "responses": {
            str(one.status if one.answer is not None or one.streams else 204): _answered(
                one, schemas
            ),
            "default": {
                "description": "It was refused.",
                "content": {"application/json": {"schema": schemas[id(ErrorBody)]}},
            },
        },
    }
    if one.role is None:
        found["security"] = []
    else:
        found["description"] = f"For the role {one.role} and above."
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for name in _names(one.path)
    ]
    if one.query is not None:
        parameters += _query_parameters(one.query, schemas, components)
    parameters += [
        {"name": name, "in": "header", "required": False, "schema": {"type": "string"}}
        for name in one.headers
    ]
    if parameters:
        found["parameters"] = parameters
    if one.body is not None:
        found["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": schemas[id(one.body)]}},
        }
    return found


def _answered(one: Operation, schemas: dict[int, dict[str, Any]]) -> dict[str, Any]:
    content: dict[str, Any] = {}
    if one.answer is not None:
        content[one.kind] = {"schema": schemas[id(one.answer)]}
    if one.streams:
        content["text/event-stream"] = {}  # events have no one shape
    described: dict[str, Any] = {"description": one.summary}
    return described | ({"content": content} if content else {})


def _query_parameters(
    kind: type, schemas: dict[int, dict[str, Any]], components: dict[str, Any]
) -> list[dict[str, Any]]:
    name = schemas[id(kind)]["$ref"].rpartition("/")[2]
    schema = components[name]
    required = set(schema.get("required", ()))
    return [
        {"name": field, "in": "query", "required": field in required, "schema": _plain(given)}
        for field, given in schema["properties"].items()
    ]


def _plain(schema: dict[str, Any]) -> dict[str, Any]:
    """A query has no null: a parameter that may be absent is what it is when it is there."""
    choices = [one for one in schema.get("anyOf", ()) if one.get("type") != "null"]
    found = choices[0] if len(choices) == 1 else schema
    return {name: value for name, value in found.items() if name != "default"}


def _names(path: str) -> list[str]:
    return [part[1:-1] for part in path.split("/") if part.startswith("{")]

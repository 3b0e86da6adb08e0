"""Operations: a method and a path, the role it needs, its input and its output.

Everything common to all operations is here: the token, the limits, decoding, and errors. The
OpenAPI description is generated from the same table, so the two cannot differ.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from tertulia.core.session import Session
from tertulia.errors import ConfigError, Error, LimitExceeded
from tertulia.gateway.request_reply import AgentRequest
from tertulia.http.auth import Caller, Scope, TooManyRequests
from tertulia.http.errors import BodyTooLarge, BodyTooSlow, ErrorBody, error_response, json_response
from tertulia.http.event_stream import EventStream, StreamedTurn
from tertulia.http.settings import HttpSettings
from tertulia.records.people import Role
from tertulia.version import __version__

if TYPE_CHECKING:
    from tertulia.http.app import Api


class ApiCall(msgspec.Struct, frozen=True, kw_only=True):
    """One request, authenticated and decoded.

    Calls that are made for one page share `sessions`: what one has read, the next need not.
    """

    api: Api
    caller: Caller
    request: Request
    path: dict[str, str]
    query: Any = None
    body: Any = None
    sessions: dict[str, Session] | None = None

    @property
    def actor(self) -> str:
        """Who makes the call, as the events of a session record it."""
        return f"token:{self.caller.name}"

    @property
    def scope(self) -> Scope:
        return Scope(self.api.store, self.caller, self.sessions)

    async def session(self) -> Session:
        """Return the session in the path; raise `NotFound` if the caller may not see it."""
        return await self.scope.require_session(self.path["id"])

    def stream(
        self, events: AsyncGenerator[bytes, None], headers: dict[str, str] | None = None
    ) -> EventStream:
        """Return a response that sends these events, counted as a stream of the caller."""
        return EventStream(
            events,
            seconds=self.api.settings.stream_seconds,
            headers=headers,
            counted=self.api.streams.open(self.caller.name, self.caller.address),
        )

    async def start_streamed_turn(self, request: AgentRequest, *, is_named: bool) -> StreamedTurn:
        """Start a turn whose answer is streamed, and wait for its first event.

        It counts as a stream of the caller while it waits, or many that begin at once would pass
        the limit. Raises `TooManyRequests`, or the error of a turn that failed before its answer.
        """
        name, address, streams = self.caller.name, self.caller.address, self.api.streams
        streams.check(name, address)
        with streams.open(name, address):
            ping = self.api.settings.ping_seconds
            turn = StreamedTurn(self.api.responder, request, is_named=is_named, ping=ping)
            await turn.wait_for_first_event()
        return turn

    def number(self, noun: str, listing: str) -> int:
        """Return the number in the path, the id of a `noun`; raise `ConfigError` for other text."""
        text = self.path["id"]
        if not text.isascii() or not text.isdigit() or len(text) > _MAX_DIGITS:
            raise ConfigError(
                f"{text[:40]!r} is not the number of a {noun}.",
                hint=f"{listing} lists them with their ids.",
            )
        return int(text)


SESSION_PATH = "/sessions/{id}"

REQUEST_HINT = "GET /openapi.json lists what each operation takes."
_MAX_DIGITS = 18  # of an id in a path
Act = Callable[[ApiCall], Awaitable[Any]]


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """One operation. `query`, `body` and `answer` are its types; None means that it has none.

    `role` None: no token is needed. `is_raw`: `act` reads the request body itself. `has_number`:
    the id in the path is a number, which `act` reads with `ApiCall.number`. `error` is the type of
    errors that do not have the form of all others, because a protocol prescribes theirs.
    """

    method: str
    path: str
    summary: str
    act: Act
    role: Role | None = "member"
    query: type | None = None
    body: type | None = None
    answer: type | None = None
    error: type | None = None
    status: int = 200
    streams: bool = False
    kind: str = "application/json"
    headers: tuple[str, ...] = ()
    is_raw: bool = False
    has_number: bool = False

    @property
    def name(self) -> str:
        """The name of `act`, which is public: it is the operationId in the OpenAPI description."""
        return self.act.__name__


def routes(api: Api, table: Sequence[Operation]) -> list[Route]:
    """Return one route for each operation."""
    return [
        Route(
            operation.path,
            _endpoint(api, operation),
            methods=[operation.method],
            name=operation.name,
        )
        for operation in table
    ]


def _endpoint(api: Api, operation: Operation) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        try:
            call = await _read_call(api, operation, request)
            result = await operation.act(call)
        except (TooManyRequests, LimitExceeded) as problem:
            await api.refusals.wait()
            return error_response(problem)
        except Error as problem:
            return error_response(problem)
        except ClientDisconnect:
            return Response(status_code=400)
        if isinstance(result, Response):
            return result
        if result is None:
            return Response(status_code=204)
        return json_response(result, operation.status)

    return endpoint


async def _read_call(api: Api, operation: Operation, request: Request) -> ApiCall:
    if operation.role is None:
        caller = Caller("nobody", "guest")
    else:
        caller = api.authenticator.authenticate(request.headers, address_of(request))
        caller.require_role(operation.role)
    query = body = None
    if operation.query is not None:
        query = convert_fields(dict(request.query_params), operation.query)
    if operation.body is not None and not operation.is_raw:
        role = None if operation.role is None else caller.role
        data = await read_body(request, api.settings, role)
        body = _decode_body(data, operation.body)
    return ApiCall(
        api=api,
        caller=caller,
        request=request,
        path={name: str(value) for name, value in request.path_params.items()},
        query=query,
        body=body,
    )


def address_of(request: Request) -> str:
    """Return the address of the client: behind a proxy, the one that the proxy names."""
    return request.client.host if request.client else ""


async def read_body(
    request: Request, settings: HttpSettings, role: Role | None, *, needed_bytes: int = 0
) -> bytes:
    """Return the request body; raise `BodyTooLarge` or `BodyTooSlow` as soon as a limit is hit.

    `role` is that of the caller, None without a token. A body of `needed_bytes` is accepted
    whatever the settings say.
    """
    limit = max(settings.body_limit(role), needed_bytes)
    declared = request.headers.get("content-length", "")
    if declared.isascii() and declared.isdigit() and int(declared[:18]) > limit:
        raise _too_large(limit)
    body = bytearray()
    try:
        async with asyncio.timeout(settings.read_seconds):
            async for chunk in request.stream():
                body += chunk
                if len(body) > limit:
                    raise _too_large(limit)
    except TimeoutError:
        raise BodyTooSlow(
            f"The request body did not arrive within {settings.read_seconds:g} seconds.",
            hint="Send it again, or raise read_seconds.",
        ) from None
    return bytes(body)


def _too_large(limit: int) -> BodyTooLarge:
    return BodyTooLarge(
        f"The request body is larger than {limit} bytes.",
        hint="Send less, or raise max_body, guest_body or open_body.",
    )


def _decode_body(data: bytes, kind: type) -> Any:
    try:
        return msgspec.json.decode(data or b"{}", type=kind)
    except (msgspec.ValidationError, msgspec.DecodeError, UnicodeError, RecursionError) as problem:
        raise _invalid_request(problem) from None


def convert_fields(values: Mapping[str, Any], kind: type) -> Any:
    """Return a query or body from values, or from the texts of an address or a form.

    Raises `ConfigError` if they do not fit.
    """
    try:
        fields: Any = msgspec.convert(dict(values), kind, strict=False)
    except (msgspec.ValidationError, UnicodeError, OverflowError) as problem:
        raise _invalid_request(problem) from None
    for name, value in values.items():
        # The word null would mean: no filter. A wrong filter must not list everything.
        if isinstance(value, str) and getattr(fields, name, value) is None:
            raise _invalid_request(f"{value[:40]!r} is not a value of `$.{name}`")
    return fields


def _invalid_request(problem: Exception | str) -> ConfigError:
    return ConfigError(f"Invalid request: {problem}.", hint=REQUEST_HINT)


# -- OpenAPI description


def describe_api(table: Sequence[Operation]) -> dict[str, Any]:
    """Return the OpenAPI description of a table of operations."""
    kinds: list[type] = [ErrorBody]
    for operation in table:
        types = (operation.query, operation.body, operation.answer, operation.error)
        kinds += [kind for kind in types if kind is not None]
    schemas, components = msgspec.json.schema_components(
        kinds, ref_template="#/components/schemas/{name}"
    )
    by_kind = dict(zip(map(id, kinds), schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for operation in table:
        item = _describe_operation(operation, by_kind, components)
        paths.setdefault(operation.path, {})[operation.method.lower()] = item
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


def _describe_operation(
    operation: Operation, schemas: dict[int, dict[str, Any]], components: dict[str, Any]
) -> dict[str, Any]:
    has_content = operation.answer is not None or operation.streams
    status = operation.status if has_content else 204
    error_schema = schemas[id(ErrorBody)]
    if operation.error is not None:
        error_schema = {"anyOf": [error_schema, schemas[id(operation.error)]]}
    item: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "responses": {
            str(status): _describe_answer(operation, schemas),
            "default": {
                "description": "The request failed.",
                "content": {"application/json": {"schema": error_schema}},
            },
        },
    }
    if operation.role is None:
        item["security"] = []
    else:
        item["description"] = f"Needs the role {operation.role} or a higher one."
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": _describe_id(operation)}
        for name in _path_parameters(operation.path)
    ]
    if operation.query is not None:
        parameters += _query_parameters(operation.query, schemas, components)
    parameters += [
        {"name": name, "in": "header", "required": False, "schema": {"type": "string"}}
        for name in operation.headers
    ]
    if parameters:
        item["parameters"] = parameters
    if operation.body is not None:
        item["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": schemas[id(operation.body)]}},
        }
    return item


def _describe_id(operation: Operation) -> dict[str, Any]:
    if operation.has_number:
        return {"type": "integer", "minimum": 0, "maximum": 10**_MAX_DIGITS - 1}
    return {"type": "string", "minLength": 1}


def _describe_answer(operation: Operation, schemas: dict[int, dict[str, Any]]) -> dict[str, Any]:
    content: dict[str, Any] = {}
    if operation.answer is not None:
        content[operation.kind] = {"schema": schemas[id(operation.answer)]}
    if operation.streams:
        content["text/event-stream"] = {}  # events have different schemas
    item: dict[str, Any] = {"description": operation.summary}
    return item | ({"content": content} if content else {})


def _query_parameters(
    kind: type, schemas: dict[int, dict[str, Any]], components: dict[str, Any]
) -> list[dict[str, Any]]:
    name = schemas[id(kind)]["$ref"].rpartition("/")[2]
    schema = components[name]
    required = set(schema.get("required", ()))
    return [
        {
            "name": field,
            "in": "query",
            "required": field in required,
            "schema": _without_null(field_schema),
        }
        for field, field_schema in schema["properties"].items()
    ]


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of an optional parameter when present; a query cannot express null."""
    choices = [choice for choice in schema.get("anyOf", ()) if choice.get("type") != "null"]
    chosen = choices[0] if len(choices) == 1 else schema
    return {name: value for name, value in chosen.items() if name != "default"}


def _path_parameters(path: str) -> list[str]:
    return [part[1:-1] for part in path.split("/") if part.startswith("{")]

"""An MCP server over the operations of the HTTP API: `POST /mcp`, stateless, in both revisions.

A tool is an operation: it runs with the token, the role and the checks of the caller, and can do no
more than the same request over HTTP. `tertulia mcp serve` offers it to programs that speak stdio.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec
from starlette.responses import Response

from tertulia.errors import Error
from tertulia.http.errors import error_detail, json_response
from tertulia.http.routing import REQUEST_HINT, ApiCall, Operation, read_body
from tertulia.mcp.definitions import normalise_schema
from tertulia.mcp.protocol import HANDSHAKE, HANDSHAKES, META, MODERN
from tertulia.records.people import ROLES, Role
from tertulia.version import __version__

if TYPE_CHECKING:
    from tertulia.http.auth import Caller

_SERVER: Final = {"name": "tertulia", "version": __version__}
_CAPABILITIES: Final[dict[str, Any]] = {"tools": {}}
_PARSE_ERROR: Final = -32700
_INVALID_REQUEST: Final = -32600
_UNKNOWN_METHOD: Final = -32601
_INVALID_PARAMS: Final = -32602
_HEADER_MISMATCH: Final = -32020
_UNSUPPORTED_REVISION: Final = -32022


class OperationTool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool and the operation that it runs; `path` names the arguments that are in its path."""

    name: str
    operation: str
    description: str
    path: tuple[str, ...] = ()
    is_read_only: bool = False


class JsonRpcAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """The answer to a request of JSON-RPC: a result, or an error with a number."""

    jsonrpc: str
    id: int | float | str | None = None
    result: Any = None
    error: dict[str, Any] | None = None


class _RpcError(Exception):
    """An error of the protocol, with its code."""

    def __init__(self, code: int, message: str, data: Any = None, status: int = 200) -> None:
        super().__init__(message)
        self.code = code
        self.data = data
        self.status = status


TOOLS: Final = (
    OperationTool(
        name="search",
        operation="search_messages",
        description="Search the messages of conversations that the caller may see.",
        is_read_only=True,
    ),
    OperationTool(
        name="sessions_list",
        operation="list_sessions",
        description="List sessions, newest activity first.",
        is_read_only=True,
    ),
    OperationTool(
        name="transcript_read",
        operation="read_transcript",
        description="Read the messages of a session.",
        path=("id",),
        is_read_only=True,
    ),
    OperationTool(
        name="say",
        operation="say",
        description="Post a message to the agent and wait for its answer.",
    ),
    OperationTool(
        name="schedule",
        operation="create_schedule",
        description="Plan a task for later, or repeatedly.",
    ),
    OperationTool(
        name="deliver",
        operation="deliver",
        description="Send a text to a chat, such as telegram:42.",
    ),
    OperationTool(
        name="approvals_list",
        operation="list_approvals",
        description="List the calls of tools that wait for an approval.",
        is_read_only=True,
    ),
    OperationTool(
        name="approvals_answer",
        operation="answer_approval",
        description="Approve or deny a call that waits.",
        path=("code",),
    ),
)


async def call_mcp(call: ApiCall) -> Response:
    """Answer one message of an MCP client."""
    data = await read_body(call.request, call.api.settings, call.caller.role)
    try:
        message = json.loads(data)
    except (ValueError, RecursionError):
        return _error(None, _RpcError(_PARSE_ERROR, "This is not JSON.", status=400))
    if not isinstance(message, dict) or not isinstance(message.get("method"), str):
        problem = _RpcError(_INVALID_REQUEST, "This is not a request.", status=400)
        return _error(None, problem)
    if "id" not in message:
        return Response(status_code=202)
    params = message.get("params")
    try:
        result = await _answer(call, message["method"], params if isinstance(params, dict) else {})
    except _RpcError as problem:
        return _error(message["id"], problem)
    return json_response({"jsonrpc": "2.0", "id": message["id"], "result": result})


async def _answer(call: ApiCall, method: str, params: dict[str, Any]) -> dict[str, Any]:
    """Return the result of a request, with the fields that the newer revision adds to it."""
    is_modern = _check_revision(call, method, params)
    result = await _run_method(call, method, params)
    if not is_modern:
        return result
    cache = {"ttlMs": 0, "cacheScope": "private"} if method != "tools/call" else {}
    return {**result, **cache, "resultType": "complete", "_meta": {f"{META}serverInfo": _SERVER}}


def _check_revision(call: ApiCall, method: str, params: Mapping[str, Any]) -> bool:
    """Return whether the request is of the new revision; raise if it contradicts itself."""
    meta = params.get("_meta")
    revision = meta.get(f"{META}protocolVersion") if isinstance(meta, Mapping) else None
    if revision is None:
        return False
    if revision != MODERN:
        data = {"supported": [MODERN, *HANDSHAKES], "requested": revision}
        raise _RpcError(_UNSUPPORTED_REVISION, "This revision is not known.", data, status=400)
    headers = call.request.headers
    expected = {"mcp-protocol-version": MODERN, "mcp-method": method}
    if any(headers.get(name, value) != value for name, value in expected.items()):
        raise _RpcError(_HEADER_MISMATCH, "The headers contradict the request.", status=400)
    return True


async def _run_method(call: ApiCall, method: str, params: dict[str, Any]) -> dict[str, Any]:
    if method == "initialize":
        revision = params.get("protocolVersion")
        if revision not in HANDSHAKES:
            revision = HANDSHAKE
        return {
            "protocolVersion": revision,
            "capabilities": _CAPABILITIES,
            "serverInfo": _SERVER,
        }
    if method == "server/discover":
        return {"supportedVersions": [MODERN, *HANDSHAKES], "capabilities": _CAPABILITIES}
    if method == "ping":
        return {}
    if method == "tools/list":
        return {"tools": [_describe(tool) for tool in _allowed_tools(call.caller)]}
    if method == "tools/call":
        return await _run_tool(call, params)
    raise _RpcError(_UNKNOWN_METHOD, f"There is no method {method[:80]!r}.")


async def _run_tool(call: ApiCall, params: dict[str, Any]) -> dict[str, Any]:
    from tertulia.http.operations import call_operation

    tools = {tool.name: tool for tool in _allowed_tools(call.caller)}
    tool = tools.get(str(params.get("name")))
    arguments = params.get("arguments")
    arguments = dict(arguments) if isinstance(arguments, Mapping) else {}
    # The result of a tool cannot be a stream: nobody would read it, and its turn would go on.
    arguments.pop("stream", None)
    if tool is None:
        raise _RpcError(_INVALID_PARAMS, "There is no such tool for this token.")
    operation, schema = _operation(tool), _schema(tool)
    wrong = _find_wrong_names(arguments, schema)
    if wrong:
        return _content(f"{wrong} {_list_arguments(tool, schema)}", is_error=True)
    path = {name: str(arguments.pop(name)) for name in tool.path}
    try:
        value = await call_operation(
            call.api,
            tool.operation,
            call.caller,
            call.request,
            path=path,
            query=arguments if operation.query is not None else {},
            body=arguments if operation.body is not None else None,
        )
    except Error as problem:
        detail = error_detail(problem)
        hint = detail.hint or ""
        if hint == REQUEST_HINT:
            hint = _list_arguments(tool, schema)
        return _content(f"{detail.message} {hint}".strip(), is_error=True)
    response = value if isinstance(value, Response) else json_response(value)
    return _content(bytes(response.body).decode(), is_error=False)


def _find_wrong_names(arguments: Mapping[str, Any], schema: Mapping[str, Any]) -> str | None:
    """Describe arguments that are unknown or missing; None if there are none.

    A filter that is misspelt must not be left out: everything would be listed.
    """
    unknown = sorted(repr(name[:40]) for name in arguments if name not in schema["properties"])
    if unknown:
        return f"Unknown argument: {', '.join(unknown)}."
    missing = [name for name in schema["required"] if name not in arguments]
    return f"Missing argument: {', '.join(missing)}." if missing else None


def _list_arguments(tool: OperationTool, schema: Mapping[str, Any]) -> str:
    return f"The arguments of {tool.name} are: {', '.join(schema['properties'])}."


def _content(text: str, *, is_error: bool) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}], "isError": is_error}


def _allowed_tools(caller: Caller) -> list[OperationTool]:
    """Return the tools whose operation the role of the caller allows."""

    def is_allowed(role: Role | None) -> bool:
        return role is None or ROLES.index(caller.role) <= ROLES.index(role)

    return [tool for tool in TOOLS if is_allowed(_operation(tool).role)]


def _describe(tool: OperationTool) -> dict[str, Any]:
    return {
        "name": tool.name,
        "description": tool.description,
        "inputSchema": _schema(tool),
        "annotations": {"readOnlyHint": tool.is_read_only},
    }


def _schema(tool: OperationTool) -> dict[str, Any]:
    """Return the schema of the arguments: those of the operation, and what is in its path."""
    operation = _operation(tool)
    kind = operation.query or operation.body
    schema = normalise_schema(None if kind is None else msgspec.json.schema(kind))
    schema["properties"].pop("stream", None)
    for name in tool.path:
        schema["properties"][name] = {"type": "string"}
    schema["required"] = [*tool.path, *schema.get("required", [])]
    return schema


def _operation(tool: OperationTool) -> Operation:
    from tertulia.http.operations import BY_NAME

    return BY_NAME[tool.operation]


def _error(number: Any, problem: _RpcError) -> Response:
    error: dict[str, Any] = {"code": problem.code, "message": str(problem)}
    if problem.data is not None:
        error["data"] = problem.data
    return json_response({"jsonrpc": "2.0", "id": number, "error": error}, problem.status)


TABLE = (
    Operation(
        method="POST", path="/mcp", act=call_mcp, role="guest", is_raw=True,
        answer=JsonRpcAnswer, error=JsonRpcAnswer,
        summary="Offer these operations as tools to an MCP client.",
    ),
)  # fmt: skip

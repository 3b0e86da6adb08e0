"""The protocol between the gateway and an MCP server, without any transport.

Revision 2026-07-28 has no handshake: each request carries its revision, and `server/discover` tells
whether the server knows it. Servers of earlier revisions begin with `initialize`. The client lists
tools, calls them, cancels calls, and notices when the list has changed. It does not offer sampling,
roots and elicitation, and refuses a request of the server for them. Why this is not the official
SDK is in decision 0033.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Protocol

from tertulia.mcp.definitions import ToolList, read_tools
from tertulia.version import __version__

MODERN: Final = "2026-07-28"
# Earlier revisions, which begin with a handshake; the newest is asked for.
HANDSHAKE: Final = "2025-11-25"
HANDSHAKES: Final = (HANDSHAKE, "2025-06-18", "2025-03-26", "2024-11-05")
MAX_MESSAGE: Final = 8 * 1024 * 1024
LIST_CHANGED: Final = "notifications/tools/list_changed"
META: Final = "io.modelcontextprotocol/"
_MAX_PAGES: Final = 50
_CLIENT: Final = {"name": "tertulia", "version": __version__}
_METHOD_NOT_FOUND: Final = -32601


class ServerUnavailable(Exception):
    """The server cannot be reached, or its connection has failed; nothing was sent."""


class CallLost(Exception):
    """A request was sent and has no answer: whether it had any effect is not known."""


class ServerRefused(Exception):
    """The server answered with an error."""


class ServerConnection(Protocol):
    """A connection to a server; `request` raises the errors above."""

    async def request(
        self, method: str, params: Mapping[str, Any], *, seconds: float
    ) -> dict[str, Any]:
        """Send a request, once, and return the result."""
        ...

    async def notify(self, method: str, params: Mapping[str, Any]) -> None:
        """Send a notification; a failure is not reported."""
        ...

    async def wait_closed(self) -> None:
        """Wait until the connection has failed or was closed."""
        ...

    async def close(self) -> None:
        """Close the connection, and end the program behind it."""
        ...


class McpSession:
    """One connection whose revision is agreed on."""

    def __init__(self, connection: ServerConnection, revision: str, server: str) -> None:
        self.connection = connection
        self.revision = revision
        self.server = server  # its name and version, as it says

    async def list_tools(self, *, seconds: float) -> ToolList:
        """Return the tools of the server; raise the errors of a request."""
        items: list[Any] = []
        cursor: str | None = None
        for _ in range(_MAX_PAGES):
            params = {} if cursor is None else {"cursor": cursor}
            result = await self._request("tools/list", params, seconds)
            page = result.get("tools")
            items += page if isinstance(page, list) else []
            cursor = result.get("nextCursor")
            if not isinstance(cursor, str) or not cursor:
                break
        return read_tools(items)

    async def call_tool(
        self, name: str, arguments: Mapping[str, Any], *, seconds: float
    ) -> dict[str, Any]:
        """Call a tool, once, and return its result."""
        params = {"name": name, "arguments": dict(arguments)}
        return await self._request("tools/call", params, seconds)

    async def _request(
        self, method: str, params: Mapping[str, Any], seconds: float
    ) -> dict[str, Any]:
        if self.revision == MODERN:
            params = with_envelope(params)
        return await self.connection.request(method, params, seconds=seconds)


async def negotiate(
    connection: ServerConnection, *, probe_seconds: float, seconds: float
) -> McpSession:
    """Agree on a revision, the newest first; raise `ServerUnavailable` if there is none.

    A server of an earlier revision refuses the first request, or does not answer it. A server that
    starts slowly may answer it too late and then refuse the handshake: it is asked once more.
    """
    session = await _discover(connection, probe_seconds)
    if session is not None:
        return session
    try:
        return await _initialize(connection, seconds)
    except (ServerRefused, CallLost) as problem:
        session = await _discover(connection, seconds)
        if session is not None:
            return session
        raise ServerUnavailable(f"the server did not begin a session: {problem}") from problem


async def _discover(connection: ServerConnection, seconds: float) -> McpSession | None:
    """Return a session of the new revision, or None if the server does not know it."""
    try:
        result = await connection.request("server/discover", with_envelope({}), seconds=seconds)
    except (ServerRefused, CallLost):
        return None
    versions = result.get("supportedVersions")
    if not isinstance(versions, list) or MODERN not in versions:
        return None
    meta = result.get("_meta")
    info = meta.get(f"{META}serverInfo") if isinstance(meta, Mapping) else None
    return McpSession(connection, MODERN, describe_server(info))


async def _initialize(connection: ServerConnection, seconds: float) -> McpSession:
    """Return a session of an earlier revision; raise `ServerUnavailable` for an unknown one."""
    params = {"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": _CLIENT}
    result = await connection.request("initialize", params, seconds=seconds)
    revision = result.get("protocolVersion")
    if revision not in HANDSHAKES:
        raise ServerUnavailable(f"the server has the unknown revision {str(revision)[:40]!r}")
    await connection.notify("notifications/initialized", {})
    return McpSession(connection, str(revision), describe_server(result.get("serverInfo")))


def with_envelope(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of a request with what each request of the new revision carries."""
    envelope = {
        f"{META}protocolVersion": MODERN,
        f"{META}clientInfo": _CLIENT,
        f"{META}clientCapabilities": {},
    }
    return {**params, "_meta": envelope}


def describe_server(info: Any) -> str:
    """Return the name and the version that a server gives itself, in one short line."""
    fields = info if isinstance(info, Mapping) else {}
    text = f"{fields.get('name') or 'unnamed'} {fields.get('version') or ''}".strip()
    return "".join(char for char in text if char.isprintable())[:80]


def is_header_value(text: str) -> bool:
    """Return whether a header can have this value: printable ASCII without blanks around it."""
    return text.isascii() and text.isprintable() and text == text.strip()


def error_of(reply: Mapping[str, Any]) -> ServerRefused | None:
    """Return the error in a reply, or None."""
    error = reply.get("error")
    if not isinstance(error, Mapping):
        return None
    return ServerRefused(str(error.get("message") or "no reason was given")[:500])


def answer_request(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return the reply to a request of the server: a ping is answered, all else is refused."""
    reply: dict[str, Any] = {"jsonrpc": "2.0", "id": message.get("id")}
    if message.get("method") == "ping":
        return {**reply, "result": {}}
    error = {"code": _METHOD_NOT_FOUND, "message": "This client does not offer that."}
    return {**reply, "error": error}

"""Connections over HTTP: every failure of a server is one of the errors that callers expect."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Mapping
from typing import Any

import pytest

from tertulia.errors import ConfigError
from tertulia.mcp.protocol import MODERN, ServerUnavailable, negotiate
from tertulia.mcp.streamable_http import HttpConnection
from tests.servers.scripted_http import Request, Response, ScriptedServer

SECONDS = 60.0
REFUSAL = {"error": {"code": -32601, "message": "unknown"}}
NEW_REVISION = {"result": {"supportedVersions": [MODERN]}}


class McpServer(ScriptedServer):
    """Answers each method with a fixed reply, and refuses all others."""

    def __init__(self, replies: Mapping[str, Any], headers: Mapping[str, str]) -> None:
        super().__init__()
        self._replies = replies
        self._headers = headers

    def operation_of(self, request: Request) -> str:
        return str(json.loads(request.body or b"{}").get("method"))

    async def respond(self, request: Request) -> Response:
        reply = self._replies.get(request.operation, REFUSAL)
        message = {"jsonrpc": "2.0", "id": json.loads(request.body or b"{}").get("id"), **reply}
        return Response(body=json.dumps(message).encode(), headers=self._headers)


def negotiate_with(replies: Mapping[str, Any], **headers: str) -> McpServer:
    """Begin a session with a server that answers so, call a tool, and close the connection."""

    async def play() -> None:
        connection = await HttpConnection.open(server.url, {})
        try:
            session = await negotiate(connection, probe_seconds=SECONDS, seconds=SECONDS)
            await session.call_tool("Größe", {}, seconds=SECONDS)
        finally:
            await connection.close()

    with McpServer(replies, headers) as server:
        asyncio.run(play())
    return server


@pytest.mark.parametrize("result", ["hello", ["2025-06-18"], 7, None])
def test_handshake_without_an_object_fails_as_unavailable(result: Any) -> None:
    with pytest.raises(ServerUnavailable, match="unknown revision"):
        negotiate_with({"initialize": {"result": result}})


def test_revision_that_is_no_header_fails_as_unavailable() -> None:
    reply = {"result": {"protocolVersion": "révision\n"}}
    with pytest.raises(ServerUnavailable, match="unknown revision"):
        negotiate_with({"initialize": reply}, **{"Mcp-Session-Id": "s1"})


def test_session_id_that_is_no_header_fails_as_unavailable() -> None:
    reply = {"result": {"protocolVersion": "2025-06-18"}}
    with pytest.raises(ServerUnavailable, match="session id"):
        negotiate_with({"initialize": reply}, **{"Mcp-Session-Id": "sesión"})


def test_name_of_a_tool_outside_of_ascii_is_encoded_in_the_header() -> None:
    server = negotiate_with({"server/discover": NEW_REVISION, "tools/call": {"result": {}}})
    call = server.requests[-1]
    assert json.loads(call.body)["params"]["name"] == "Größe"
    encoded = base64.b64encode("Größe".encode()).decode()
    assert call.headers["mcp-name"] == f"=?base64?{encoded}?="


@pytest.mark.parametrize(
    ("url", "headers", "error"),
    [
        ("http://[::1", {}, ServerUnavailable),
        ("http://127.0.0.1:9/", {"Authorization": "Bearer schlüssel"}, ConfigError),
    ],
)
def test_settings_that_cannot_be_sent_are_refused(
    url: str, headers: dict[str, str], error: type[Exception]
) -> None:
    async def play() -> None:
        connection = await HttpConnection.open(url, headers)
        try:
            await connection.request("initialize", {}, seconds=SECONDS)
        finally:
            await connection.close()

    with pytest.raises(error):
        asyncio.run(play())

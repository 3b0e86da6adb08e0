"""`POST /mcp`: the operations as tools of an MCP client, with the rights of its token."""

from __future__ import annotations

import asyncio
import io
import json
from pathlib import Path
from typing import Any

import pytest

from tertulia.mcp.protocol import McpSession, negotiate
from tertulia.mcp.stdio_bridge import serve_stdio
from tertulia.mcp.streamable_http import HttpConnection
from tests.http.served_gateway import SECRETS, ServedGateway, served_gateway


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with served_gateway(tmp_path_factory.mktemp("served") / "talk.db") as gateway:
        yield gateway


async def session_of(served: ServedGateway, name: str) -> McpSession:
    headers = {"Authorization": f"Bearer {SECRETS[name]}"}
    connection = await HttpConnection.open(f"{served.url}/mcp", headers)
    return await negotiate(connection, probe_seconds=60, seconds=60)


async def call(session: McpSession, tool: str, **arguments: Any) -> Any:
    result = await session.call_tool(tool, arguments, seconds=60)
    text = result["content"][0]["text"]
    return text if result["isError"] else json.loads(text)


def test_tools_by_role_and_a_conversation(served: ServedGateway) -> None:
    async def play() -> None:
        session = await session_of(served, "ana")
        assert session.revision == "2026-07-28"
        names = [tool.name for tool in (await session.list_tools(seconds=60)).tools]
        assert names == [
            "approvals_answer", "approvals_list", "say", "schedule", "search", "sessions_list",
            "transcript_read",
        ]  # fmt: skip
        reply = await call(session, "say", text="the harbour is blue", conversation="c1")
        assert reply["state"] == "answered"
        (listed,) = (await call(session, "sessions_list"))["items"]
        assert listed["id"] == reply["session_id"]
        messages = await call(session, "transcript_read", id=reply["session_id"])
        assert "harbour" in json.dumps(messages)
        assert (await call(session, "approvals_list"))["items"] == []
        schedule = await call(session, "schedule", when="every 2h", task="look")
        assert (schedule["task"], schedule["state"]) == ("look", "active")
        await session.connection.close()
        # Another token sees nothing of it, and may not read it by its id.
        other = await session_of(served, "bob")
        assert (await call(other, "sessions_list"))["items"] == []
        refused = await call(other, "transcript_read", id=reply["session_id"])
        assert "There is no session" in refused
        await other.connection.close()
        guest = await session_of(served, "eve")
        names = [tool.name for tool in (await guest.list_tools(seconds=60)).tools]
        assert names == ["say"]
        await guest.connection.close()

    asyncio.run(play())


def test_wrong_arguments_are_named_to_the_model(served: ServedGateway) -> None:
    """A filter that is misspelt must not be left out: everything would be listed."""

    async def play() -> None:
        session = await session_of(served, "ana")
        arguments = "The arguments of search are: q, platform, "
        unknown = await call(session, "search", q="blue", platfrom="telegram")
        assert unknown.startswith(f"Unknown argument: 'platfrom'. {arguments}")
        invalid = await call(session, "search", q="blue", limit=-1)
        assert "$.limit" in invalid
        assert arguments in invalid
        assert "openapi" not in invalid
        assert (await call(session, "search")).startswith(f"Missing argument: q. {arguments}")
        missing = await call(session, "transcript_read")
        assert missing.startswith("Missing argument: id.")
        await session.connection.close()

    asyncio.run(play())


def test_answer_of_a_tool_is_never_a_stream(served: ServedGateway) -> None:
    """Nobody would read the stream: its turn went on, and the result was empty."""

    async def play() -> None:
        session = await session_of(served, "eve")
        reply = await call(session, "say", text="hello", stream=True)
        assert (reply["state"], bool(reply["text"])) == ("answered", True)
        await session.connection.close()

    asyncio.run(play())


def test_only_an_owner_sends_texts_to_chats(served: ServedGateway) -> None:
    async def play() -> None:
        owner = await session_of(served, "root")
        assert "deliver" in [tool.name for tool in (await owner.list_tools(seconds=60)).tools]
        arguments = {"text": "dinner is ready", "to": "telegram:42", "delivery": "dinner"}
        first = await call(owner, "deliver", **arguments)
        again = await call(owner, "deliver", **arguments)
        assert (first["state"], first["chat_id"], again["id"]) == ("waiting", "42", first["id"])
        assert "pigeon" in await call(owner, "deliver", text="hello", to="pigeon:1")
        await owner.connection.close()

    asyncio.run(play())
    with served.client("ana") as client:
        assert (
            client.post("/deliveries", json={"text": "hi", "to": "telegram:42"}).status_code == 403
        )


def rpc(served: ServedGateway, body: Any, name: str = "ana", **headers: str) -> tuple[int, Any]:
    with served.client(name, headers=headers) as client:
        response = client.post("/mcp", content=body if isinstance(body, str) else json.dumps(body))
    return response.status_code, response.json() if response.content else None


def test_earlier_revision_and_mistakes(served: ServedGateway) -> None:
    begin = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}}
    begin["params"] = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {}}
    status, reply = rpc(served, begin)
    assert (status, reply["result"]["protocolVersion"]) == (200, "2025-06-18")
    assert rpc(served, {"jsonrpc": "2.0", "method": "notifications/initialized"}) == (202, None)
    listing = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
    assert len(rpc(served, listing)[1]["result"]["tools"]) == 7
    assert rpc(served, "{")[0] == 400
    assert rpc(served, [1])[0] == 400
    assert rpc(served, {**listing, "method": "nope"})[1]["error"]["code"] == -32601
    unknown = {**listing, "method": "tools/call", "params": {"name": "deliver"}}
    assert rpc(served, unknown)[1]["error"]["code"] == -32602
    meta = {"io.modelcontextprotocol/protocolVersion": "2099-01-01"}
    assert rpc(served, {**listing, "params": {"_meta": meta}})[1]["error"]["code"] == -32022
    meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}
    modern = {**listing, "params": {"_meta": meta}}
    assert rpc(served, modern, **{"Mcp-Method": "tools/call"})[1]["error"]["code"] == -32020
    with served.client(None) as client:
        assert client.post("/mcp", json=listing).status_code == 401


def test_bridge_on_standard_streams(served: ServedGateway, tmp_path: Path) -> None:
    messages = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": "two", "method": "tools/list"},
    ]
    source = io.BytesIO(b"".join(json.dumps(message).encode() + b"\n" for message in messages))
    target = io.BytesIO()
    asyncio.run(serve_stdio(f"{served.url}/mcp", SECRETS["ana"], source=source, target=target))
    replies = {reply["id"]: reply for reply in map(json.loads, target.getvalue().splitlines())}
    assert set(replies) == {1, "two"}
    assert len(replies["two"]["result"]["tools"]) == 7
    source, target = io.BytesIO(json.dumps(messages[0]).encode()), io.BytesIO()
    asyncio.run(serve_stdio("http://127.0.0.1:9/mcp", "", source=source, target=target))
    assert "cannot be reached" in json.loads(target.getvalue())["error"]["message"]

"""Our client with real servers, of both revisions, over both transports.

`make check` installs them into `.venv-mcp`: the SDK and `mcp-server-time` from PyPI, and
`server-everything` and `server-filesystem` from npm.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tertulia.mcp.settings import McpServerSettings
from tests.http.served_gateway import SECRETS, served_gateway
from tests.mcp.test_servers import running_servers, tools_of
from tests.servers.ports import free_port

pytestmark = pytest.mark.check

FOLDER = Path(__file__).parents[2] / ".venv-mcp"
NODE_PROGRAMS = FOLDER / "node_modules/.bin"
SDK_SERVER = Path(__file__).with_name("sdk_server.py")
SDK_CLIENT = Path(__file__).with_name("sdk_client.py")
PATIENCE = 120.0


def program(name: str, *arguments: str, **changes: Any) -> McpServerSettings:
    """Return the settings of an installed server; skip or fail if it is not there."""
    path = FOLDER / "bin" / name
    if not path.exists():
        path = NODE_PROGRAMS / name
    if not (FOLDER / "bin").exists():
        pytest.fail("The MCP servers are not installed: run make check.")
    if not path.exists():
        pytest.skip("The MCP servers of npm are not installed: there is no npm, or it failed.")
    return McpServerSettings(command=(str(path), *arguments), **changes)


def test_new_revision_over_stdio(tmp_path: Path) -> None:
    async def play() -> None:
        server = program("mcp-server-time", "--local-timezone", "UTC")
        async with running_servers(tmp_path, {"time": server}) as servers:
            client = servers.clients["time"]
            assert (client.state, client.revision) == ("ready", "2026-07-28"), client.problem
            tools = await tools_of(servers)
            result = await tools["time__get_current_time"].call({"timezone": "Europe/Madrid"})
            assert '"timezone": "Europe/Madrid"' in str(result)
            refused = await tools["time__get_current_time"].call({"timezone": "Nowhere"})
            assert str(refused).startswith("Error:")

    asyncio.run(play())


def test_earlier_revision_over_stdio(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "a secret of the gateway")

    async def play() -> None:
        server = program("mcp-server-everything", call_seconds=10)
        async with running_servers(tmp_path, {"all": server}) as servers:
            client = servers.clients["all"]
            assert (client.state, client.revision) == ("ready", "2025-11-25"), client.problem
            tools = await tools_of(servers)
            assert await tools["all__echo"].call({"message": "hi"}) == "Echo: hi"
            image = await tools["all__get-tiny-image"].call({})
            assert isinstance(image, list)
            assert any(part["type"] == "image_url" for part in image)
            assert "secret" not in str(await tools["all__get-env"].call({}))
            # It takes longer than the call may: cancelled, and the outcome is unknown.
            slow = tools["all__trigger-long-running-operation"]
            text = await slow.call({"duration": 30, "steps": 5})
            assert "Whether the call had any effect is not known" in str(text)
            assert await tools["all__echo"].call({"message": "still"}) == "Echo: still"

    asyncio.run(play())


def test_files_over_stdio(tmp_path: Path) -> None:
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "note.txt").write_text("hello")

    async def play() -> None:
        server = program("mcp-server-filesystem", str(folder), tools=("read_*", "list_directory"))
        async with running_servers(tmp_path, {"files": server}) as servers:
            tools = await tools_of(servers)
            assert "files__write_file" not in tools
            read = tools["files__read_text_file"]
            assert await read.call({"path": str(folder / "note.txt")}) == "hello"
            assert "denied" in str(await read.call({"path": "/etc/passwd"}))

    asyncio.run(play())


@contextmanager
def served(command: list[str], **variables: str) -> Iterator[int]:
    """Run a server on a free port of this machine; yield the port when it listens."""
    port = free_port()
    environment = {**os.environ, "PORT": str(port), **variables}
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) as server:
        try:
            until = time.monotonic() + PATIENCE
            while not _listens(port):
                assert server.poll() is None, "the server ended"
                assert time.monotonic() < until, "the server does not listen"
                time.sleep(0.05)
            yield port
        finally:
            server.kill()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_earlier_revision_over_http(tmp_path: Path) -> None:
    command = [*program("mcp-server-everything").command, "streamableHttp"]

    async def play(port: int) -> None:
        server = McpServerSettings(url=f"http://127.0.0.1:{port}/mcp")
        async with running_servers(tmp_path, {"all": server}) as servers:
            client = servers.clients["all"]
            assert (client.state, client.revision) == ("ready", "2025-11-25"), client.problem
            tools = await tools_of(servers)
            assert await tools["all__echo"].call({"message": "hi"}) == "Echo: hi"

    with served(command) as port:
        asyncio.run(play(port))


def test_new_revision_over_http_with_the_sdk(tmp_path: Path) -> None:
    python = FOLDER / "bin/python"
    assert python.exists(), "The MCP SDK is not installed: run make check."

    async def play(port: int) -> None:
        server = McpServerSettings(url=f"http://127.0.0.1:{port}/mcp")
        async with running_servers(tmp_path, {"sdk": server}) as servers:
            client = servers.clients["sdk"]
            assert (client.state, client.revision) == ("ready", "2026-07-28"), client.problem
            tools = await tools_of(servers)
            assert await tools["sdk__add"].call({"a": 2, "b": 3}) == "5"

    with served([str(python), str(SDK_SERVER)]) as port:
        asyncio.run(play(port))


def test_client_of_the_sdk_uses_our_server(tmp_path: Path) -> None:
    python = FOLDER / "bin/python"
    assert python.exists(), "The MCP SDK is not installed: run make check."
    with served_gateway(tmp_path / "talk.db") as gateway:
        command = [str(python), str(SDK_CLIENT), f"{gateway.url}/mcp", SECRETS["ana"]]
        result = subprocess.run(
            command, capture_output=True, text=True, timeout=PATIENCE, check=False
        )
        assert result.returncode == 0, result.stderr
    reply = json.loads(result.stdout)
    assert "say" in reply["tools"]
    assert json.loads(reply["texts"][0])["state"] == "answered"

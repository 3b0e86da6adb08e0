"""More tools than models accept are a mistake in the configuration, not a surprise in a chat."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

import tertulia
from tertulia import aio
from tertulia.errors import ConfigError
from tertulia.mcp.definitions import MAX_TOOLS
from tertulia.mcp.servers import McpServers, require_few_tools
from tertulia.mcp.settings import McpServerSettings


def definitions(count: int) -> dict[str, dict[str, Any]]:
    schema = {"type": "object", "properties": {}}
    return {
        f"tool_{number}": {
            "name": f"tool_{number}", "description": "d", "parameters": schema, "hash": "1",
        }
        for number in range(count)
    }  # fmt: skip


@pytest.mark.parametrize(("count", "is_refused"), [(MAX_TOOLS, False), (MAX_TOOLS + 1, True)])
def test_too_many_tools_are_a_configuration_error(
    tmp_path: Path, count: int, is_refused: bool
) -> None:
    servers = {"files": McpServerSettings(command=("x",))}
    with tertulia.open(tmp_path / "talk.db") as store:
        store.mcp_pins.note_offered("files", definitions(count))
        pins = store.mcp_pins.find()
    require_few_tools({"other": McpServerSettings(command=("x",))}, pins)
    require_few_tools({"files": McpServerSettings(command=("x",), tools=("tool_1*",))}, pins)
    if not is_refused:
        require_few_tools(servers, pins)
        return
    with pytest.raises(ConfigError, match=re.escape(f"offer {count} tools")) as caught:
        require_few_tools(servers, pins)
    assert caught.value.field == "mcp.servers"


def test_the_owner_is_told_once_and_no_request_has_too_many(tmp_path: Path) -> None:
    texts: list[str] = []

    async def tell(text: str) -> None:
        texts.append(text)

    async def play() -> None:
        async with aio.open(tmp_path / "talk.db") as store:
            servers = McpServers(store, {"files": McpServerSettings(command=("x",))})
            servers.tell = tell
            await store.mcp_pins.note_offered("files", definitions(130))
            for _ in range(2):
                assert len(await servers.tools_for("owner")) == MAX_TOOLS

    asyncio.run(play())
    assert len(texts) == 1
    assert "130 tools" in texts[0]

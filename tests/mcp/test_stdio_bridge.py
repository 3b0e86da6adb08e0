"""The bridge on standard streams answers every message, however odd it is."""

from __future__ import annotations

import asyncio
import io
import json
from typing import Any

import pytest

from tertulia.mcp.stdio_bridge import serve_stdio

REVISION = "io.modelcontextprotocol/protocolVersion"


@pytest.mark.parametrize(
    "message",
    [
        {"method": "tools/list", "params": {"_meta": ["odd"]}},
        {"method": "tools/list", "params": {"_meta": {REVISION: "révision"}}},
        {"method": "zwei\nZeilen", "params": {"_meta": {REVISION: "2026-07-28"}}},
    ],
)
def test_message_with_odd_metadata_gets_a_reply(message: dict[str, Any]) -> None:
    line = json.dumps({"jsonrpc": "2.0", "id": 1, **message}).encode()
    target = io.BytesIO()
    # Nobody listens there: the reply says that, and the bridge goes on.
    asyncio.run(
        serve_stdio("http://127.0.0.1:9/mcp", "", source=io.BytesIO(line + b"\n"), target=target)
    )
    assert "cannot be reached" in json.loads(target.getvalue())["error"]["message"]

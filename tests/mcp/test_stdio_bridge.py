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
    (reply,) = replies_to(json.dumps({"jsonrpc": "2.0", "id": 1, **message}).encode())
    assert "cannot be reached" in reply["error"]["message"]


@pytest.mark.parametrize("line", [b"garbage", b"\xff\xfe", b"[]", b"{}", b'"text"'])
def test_line_that_is_no_message_gets_an_error_without_id(line: bytes) -> None:
    (reply,) = replies_to(line)
    assert reply["id"] is None
    assert "error" in reply


def test_notification_gets_no_reply() -> None:
    assert replies_to(b'{"jsonrpc": "2.0", "method": "notifications/initialized"}') == []


def replies_to(line: bytes) -> list[dict[str, Any]]:
    """Return the replies to a line. Nobody listens at the address: they say that."""
    source, target = io.BytesIO(line + b"\n"), io.BytesIO()
    asyncio.run(serve_stdio("http://127.0.0.1:9/mcp", "", source=source, target=target))
    return [json.loads(reply) for reply in target.getvalue().splitlines()]

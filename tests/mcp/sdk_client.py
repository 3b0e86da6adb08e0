"""The client of the official SDK against an address: `URL TOKEN`; it prints what it got as JSON."""

from __future__ import annotations

import asyncio
import json
import sys

import httpx2
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client


async def main(url: str, token: str) -> None:
    headers = {"Authorization": f"Bearer {token}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=60) as http,
        Client(streamable_http_client(url, http_client=http)) as client,
    ):
        tools = await client.list_tools()
        result = await client.call_tool("say", {"text": "hello", "conversation": "sdk"})
        texts = [getattr(part, "text", "") for part in result.content]
        names = sorted(tool.name for tool in tools.tools)
        print(json.dumps({"tools": names, "texts": texts}))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))

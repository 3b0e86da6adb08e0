"""A server made with the official SDK, over HTTP on the port in `PORT`."""

from __future__ import annotations

import os

from mcp.server.mcpserver import MCPServer

server = MCPServer("sdk")


@server.tool()
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


if __name__ == "__main__":
    server.run("streamable-http", port=int(os.environ["PORT"]))

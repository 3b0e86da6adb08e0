"""A bridge from standard input and output to `POST /mcp` of a gateway."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from tertulia.mcp.protocol import MAX_MESSAGE, META, is_header_value

if TYPE_CHECKING:
    import httpx2

_INTERNAL_ERROR: Final = -32603
_MAX_AT_ONCE: Final = 8


async def serve_stdio(
    url: str,
    secret: str,
    *,
    source: BinaryIO | None = None,
    target: BinaryIO | None = None,
    transport: httpx2.AsyncBaseTransport | None = None,
) -> None:
    """Post each message to the gateway, and write the replies, until the input ends.

    With `transport` the requests go there instead of to the network, for example to an application
    in this process.
    """
    import httpx2

    lines, output = source or sys.stdin.buffer, target or sys.stdout.buffer
    headers = {"Content-Type": "application/json", "Accept": "application/json"}
    if secret:
        headers["Authorization"] = f"Bearer {secret}"
    limit = asyncio.Semaphore(_MAX_AT_ONCE)
    async with (
        httpx2.AsyncClient(
            headers=headers, timeout=None, follow_redirects=False, transport=transport
        ) as client,
        asyncio.TaskGroup() as tasks,
    ):
        while line := await asyncio.to_thread(lines.readline, MAX_MESSAGE):
            if line.strip():
                await limit.acquire()
                task = tasks.create_task(_post_message(client, url, line, output))
                task.add_done_callback(lambda _: limit.release())


async def _post_message(
    client: httpx2.AsyncClient, url: str, line: bytes, output: BinaryIO
) -> None:
    """Post one message; a failure becomes an error reply, so that the client does not wait."""
    import httpx2

    message = _decode(line)
    try:
        response = await client.post(url, content=line, headers=_revision_headers(message))
        reply = _decode(response.content)
        problem = f"The gateway answered with {response.status_code}."
    except httpx2.HTTPError as error:
        reply, problem = {}, f"The gateway cannot be reached: {type(error).__name__}."
    if "method" in message and "id" not in message:
        return  # a notification has no reply
    if reply.get("jsonrpc") != "2.0":
        error_body = {"code": _INTERNAL_ERROR, "message": problem}
        reply = {"jsonrpc": "2.0", "id": message.get("id"), "error": error_body}
    output.write(json.dumps(reply).encode() + b"\n")
    output.flush()


def _revision_headers(message: Mapping[str, Any]) -> dict[str, str]:
    """Return the headers that repeat parts of a request of the new revision.

    Return none if a part cannot be a header: then the gateway refuses the request by its body.
    """
    params = message.get("params")
    meta = params.get("_meta") if isinstance(params, Mapping) else None
    revision = meta.get(f"{META}protocolVersion") if isinstance(meta, Mapping) else None
    method = message.get("method")
    if not isinstance(revision, str) or not isinstance(method, str):
        return {}
    headers = {"MCP-Protocol-Version": revision, "Mcp-Method": method}
    return headers if all(map(is_header_value, headers.values())) else {}


def _decode(data: bytes) -> dict[str, Any]:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}

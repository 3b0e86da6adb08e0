"""A client with one kept connection, for the people and the flooder of the row `crowd`."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from benchmarks.crowd_tokens import secret_of


class KeptConnection:
    """One connection, opened when it is needed and again after a failure, that posts JSON."""

    def __init__(self, port: int, name: str) -> None:
        self._port = port
        self._head = f"Host: x\r\nAuthorization: Bearer {secret_of(name)}\r\n"
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def post(self, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        """Post a body; return the status and the body of the answer."""
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = self._streams
        data = json.dumps(body).encode()
        head = f"POST {path} HTTP/1.1\r\n{self._head}Content-Length: {len(data)}\r\n\r\n"
        try:
            writer.write(head.encode() + data)
            answer_head = await reader.readuntil(b"\r\n\r\n")
            lines = answer_head.decode("latin-1").lower().split("\r\n")
            length = next(
                int(line.partition(":")[2]) for line in lines if line.startswith("content-length")
            )
            answer = await reader.readexactly(length)
        except (OSError, asyncio.IncompleteReadError):
            self.close()
            raise
        return int(lines[0].split()[1]), json.loads(answer)

    def close(self) -> None:
        """Close the connection, if it is open."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None

"""The server's end of a WebSocket, for the fakes of chat platforms."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
from collections.abc import AsyncIterator

from wsproto.connection import Connection, ConnectionState, ConnectionType
from wsproto.events import CloseConnection, Message, Ping, TextMessage
from wsproto.utilities import LocalProtocolError

_GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


async def shake_hands(writer: asyncio.StreamWriter, key: str) -> None:
    """Accept a request to open a WebSocket."""
    accept = base64.b64encode(hashlib.sha1(f"{key}{_GUID}".encode()).digest()).decode()
    lines = [
        "HTTP/1.1 101 Switching Protocols", "Upgrade: websocket", "Connection: Upgrade",
        f"Sec-WebSocket-Accept: {accept}", "", "",
    ]  # fmt: skip
    writer.write("\r\n".join(lines).encode())
    await writer.drain()


class ServerSocket:
    """A WebSocket that a client opened; pings are answered while it is read, unless `is_mute`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._connection = Connection(ConnectionType.SERVER)
        self.is_mute = False
        self.close_code: int | None = None  # that of the client

    @property
    def is_open(self) -> bool:
        is_connected = not self._writer.transport.is_closing()
        return is_connected and self._connection.state is ConnectionState.OPEN

    async def send(self, text: str) -> bool:
        """Send a text; return whether it could be sent."""
        try:
            return await self.send_raw(self._connection.send(TextMessage(data=text)))
        except LocalProtocolError:
            return False

    async def send_raw(self, data: bytes) -> bool:
        """Send bytes as they are, against the protocol or not."""
        try:
            self._writer.write(data)
            await self._writer.drain()
        except OSError:
            return False
        return True

    async def close(self, code: int = 1000) -> None:
        """Close it with a code."""
        with contextlib.suppress(LocalProtocolError):
            await self.send_raw(self._connection.send(CloseConnection(code=code)))
        self._writer.close()

    def cut(self) -> None:
        """Cut the connection without a word."""
        self._writer.transport.abort()

    async def texts(self) -> AsyncIterator[str]:
        """Yield what the client sends, until either side closes the socket."""
        parts: list[str] = []
        while True:
            try:
                data = await self._reader.read(65536)
            except OSError:
                return
            if self.is_mute and data:
                continue
            self._connection.receive_data(data or None)
            for event in self._connection.events():
                if isinstance(event, Ping):
                    await self.send_raw(self._connection.send(event.response()))
                elif isinstance(event, CloseConnection):
                    self.close_code = event.code
                    with contextlib.suppress(LocalProtocolError):
                        await self.send_raw(self._connection.send(event.response()))
                    return
                elif isinstance(event, Message) and isinstance(event.data, str):
                    parts.append(event.data)
                    if event.message_finished:
                        yield "".join(parts)
                        parts.clear()
            if not data:
                return

"""Messages that are typed or piped in, here or in another terminal."""

from __future__ import annotations

import asyncio
import threading
import uuid
from typing import Final, NamedTuple, TextIO

from tertulia.core.media import Media
from tertulia.core.source import Source
from tertulia.platforms.base import Incoming, MenuEntry

STOP: Final = "/stop"
FORGET: Final = "/forget yes"
QUIT: Final = MenuEntry("quit", "leave; the conversation stays stored")
QUITS: Final = frozenset(("/quit", "/exit"))


class OtherMessage(NamedTuple):
    """A message of a turn that another terminal, or another program, runs.

    `turn` names that turn. `is_to_typed`: it answers what was typed in this terminal.
    """

    turn: str
    text: str
    is_answer: bool
    is_to_typed: bool


def typed_message(text: str, media: tuple[Media, ...] = ()) -> Incoming:
    """Return a typed text as a message; the same text typed twice is two messages."""
    # Bytes that are not UTF-8 arrive as lone surrogates, which no database stores.
    clean = text.encode("utf-8", "replace").decode()
    return Incoming(source=Source.local(), text=clean, message_id=uuid.uuid4().hex, media=media)


async def next_message(lines: asyncio.Queue[str | None]) -> str | None:
    """Return the next message; a line that ends in a backslash continues on the next line."""
    message = await lines.get()
    while message is not None and message.endswith("\\"):
        more = await lines.get()
        if more is None:
            lines.put_nowait(None)
            return message
        message = f"{message[:-1]}\n{more}"
    return message


def read_stream(stream: TextIO) -> asyncio.Queue[str | None]:
    """Return a queue of the lines of a stream, which a thread reads; None marks the end.

    A thread that waits for input cannot be interrupted, so it is a daemon thread, which does not
    keep the program alive.
    """
    lines: asyncio.Queue[str | None] = asyncio.Queue()
    loop = asyncio.get_running_loop()

    def put(line: str | None) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(lines.put_nowait, line)

    def read() -> None:
        for line in stream:
            put(line.rstrip("\r\n"))
        put(None)

    threading.Thread(target=read, name="tertulia-stdin", daemon=True).start()
    return lines

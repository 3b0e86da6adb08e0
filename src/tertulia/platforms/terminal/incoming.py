"""Messages that are typed or piped in, here or in another terminal."""

from __future__ import annotations

import asyncio
import errno
import threading
import uuid
from typing import Final, NamedTuple, TextIO

from tertulia.core.media import Media
from tertulia.core.source import Source
from tertulia.platforms.base import Incoming, MenuEntry

STOP: Final = "/stop"
FORGET: Final = "/forget yes"
QUIT: Final = MenuEntry("quit", "leave; the conversation stays stored")
THINKING: Final = MenuEntry("thinking", "show what the model thinks: /thinking on, /thinking off")
_THINKING_COMMAND: Final = "/thinking"
QUITS: Final = frozenset(("/quit", "/exit"))


class OtherMessage(NamedTuple):
    """A message of a turn that another terminal, or another program, runs.

    `turn` names that turn. `is_to_typed`: it answers what was typed in this terminal.
    """

    turn: str
    text: str
    is_answer: bool
    is_to_typed: bool


def read_thinking(text: str) -> bool | None:
    """Return what `/thinking` asks for: on or off; None if the text is another one.

    `/thinking` alone means on.
    """
    name, _, argument = text.strip().partition(" ")
    wanted = {"": True, "on": True, "off": False}
    return wanted.get(argument.strip()) if name == _THINKING_COMMAND else None


def thinking_reply(*, is_on: bool) -> str:
    """Return what to say after `/thinking`."""
    if is_on:
        return "What the model thinks is shown, if its server sends it. /thinking off hides it."
    return "What the model thinks is hidden. /thinking on shows it."


def typed_message(text: str, media: tuple[Media, ...] = ()) -> Incoming:
    """Return a typed text as a message; the same text typed twice is two messages."""
    # Bytes that are not UTF-8 arrive as lone surrogates, which no database stores.
    clean = text.encode("utf-8", "replace").decode()
    return Incoming(source=Source.local(), text=clean, message_id=uuid.uuid4().hex, media=media)


async def next_message(lines: asyncio.Queue[str | OSError | None]) -> str | None:
    """Return the next message; a line that ends in a backslash continues on the next line.

    Raise `OSError` if the input cannot be read.
    """
    message = await lines.get()
    while isinstance(message, str) and message.endswith("\\"):
        more = await lines.get()
        if not isinstance(more, str):
            lines.put_nowait(more)
            return message
        message = f"{message[:-1]}\n{more}"
    if isinstance(message, OSError):
        raise message
    return message


def is_hangup(problem: OSError) -> bool:
    """Return whether the terminal is gone: its window was closed, or the connection was lost."""
    return problem.errno in (errno.EIO, errno.ENXIO)


def read_stream(stream: TextIO) -> asyncio.Queue[str | OSError | None]:
    """Return a queue of the lines of a stream, which a thread reads; None marks the end.

    An exception marks the end, too, if the stream cannot be read.

    A thread that waits for input cannot be interrupted, so it is a daemon thread, which does not
    keep the program alive.
    """
    lines: asyncio.Queue[str | OSError | None] = asyncio.Queue()
    loop = asyncio.get_running_loop()

    def put(line: str | OSError | None) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(lines.put_nowait, line)

    def read() -> None:
        try:
            for line in stream:
                put(line.rstrip("\r\n"))
        except OSError as problem:  # opened for writing, for example
            put(None if is_hangup(problem) else problem)
        else:
            put(None)

    threading.Thread(target=read, name="tertulia-stdin", daemon=True).start()
    return lines

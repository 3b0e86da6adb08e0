"""The terminal of this machine.

With a terminal, the line to type stands at the bottom and what is said appears above it while it
is being written. Without one (a pipe, a file) each line is a message, answered before the next one
is read, and nothing but the answers is printed.

Here a message has no id of its own, so each gets one when it is typed: what was typed twice was
meant twice.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import uuid
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import nullcontext
from typing import TYPE_CHECKING, TextIO

from tertulia.core.source import LOCAL, Source
from tertulia.core.text.display_safe import harmless
from tertulia.errors import Error
from tertulia.platforms.base import Adapter, Incoming, MenuEntry, Outgoing, Receive, StreamUpdate

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import CompleteEvent, Completer, Completion
    from prompt_toolkit.document import Document
    from prompt_toolkit.input import Input
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
    from prompt_toolkit.output import Output

log = logging.getLogger("tertulia.gateway")

PROMPT = "› "
STOP = "/stop"
QUIT = MenuEntry("quit", "leave; the conversation is kept")

_QUITS = frozenset(("/quit", "/exit"))
# A delivery comes again only while its first sending is still being noted down.
_REMEMBERED = 1000


class TerminalAdapter(Adapter):
    """Talks with whoever sits at the terminal, or with what is piped in.

    `settled` is awaited after each line of a pipe: until everything said so far is answered. It
    gives the answer to that message, which is printed if another program that has the same
    conversation open was the one to show it.
    `finished` is set when there is nothing more to read, or the person quits; `problem` is why, if
    something went wrong.
    """

    name = LOCAL
    is_idempotent = True

    def __init__(
        self,
        *,
        settled: Callable[[str | None], Awaitable[str | None]] | None = None,
        history: str | None = None,
        stdin: TextIO | None = None,
        stdout: TextIO | None = None,
        terminal: tuple[Input, Output] | None = None,
    ) -> None:
        self.finished = asyncio.Event()
        self.problem: Exception | None = None
        self._settled = settled
        self._stdin = stdin or sys.stdin
        self._stdout = stdout or sys.stdout
        self._is_terminal = terminal is not None or (self._stdin.isatty() and self._stdout.isatty())
        if self._is_terminal:
            import prompt_toolkit  # noqa: F401  whoever has it not is told before anything begins
        self._terminal = terminal
        self._history = history
        self._menu: tuple[MenuEntry, ...] = ()
        self._sent: deque[str] = deque(maxlen=_REMEMBERED)
        self._stream = _Stream()
        self._turns: set[str] = set()
        self._count = 0  # of characters that were printed
        self._prompt: PromptSession[str] | None = None
        self._printing = asyncio.Lock()

    @property
    def is_answering(self) -> bool:
        """Whether an answer is being written."""
        return bool(self._turns)

    async def listen(self, receive: Receive) -> None:
        try:
            await (self._converse(receive) if self._is_terminal else self._read_lines(receive))
        except Exception as problem:
            self.problem = problem
            raise
        finally:
            self._prompt = None
            self.finished.set()

    async def send(self, message: Outgoing) -> None:
        if message.delivery in self._sent:
            return
        self._sent.append(message.delivery)
        async with self._printing:
            if self._stream.has_said(message.text):
                await self._print(self._stream.rest())
            else:
                await self._print(self._stream.aside() + _paragraph(message.text))

    async def show(self, source: Source, shown: StreamUpdate) -> None:
        async with self._printing:
            if shown.kind == "began":
                self._turns.add(shown.turn)
            elif shown.kind == "delta":
                await self._show_piece(shown.text)
            elif shown.kind == "tool":
                await self._print(f"{self._stream.cut()}[{harmless(shown.text)} …]\n")
            else:
                self._turns.discard(shown.turn)
                await self._print(self._stream.rest())

    async def fill_menu(self, entries: tuple[MenuEntry, ...]) -> None:
        self._menu = (*entries, QUIT)

    # -- with a terminal

    async def _converse(self, receive: Receive) -> None:
        self._prompt = prompt = self._made_prompt(receive)
        # Between two lines, and while something is printed, a key must mean what it always means:
        # as the terminal's own, ctrl-D would be lost and ctrl-C would end the program.
        prompt.app.input.cooked_mode = nullcontext  # type: ignore[method-assign]
        with prompt.app.input.raw_mode():
            await self._take_lines(prompt, receive)

    async def _take_lines(self, prompt: PromptSession[str], receive: Receive) -> None:
        unkept = ""
        while True:
            try:
                text = await prompt.prompt_async(default=unkept, handle_sigint=False)
            except EOFError:
                return
            unkept = ""
            if text.strip() in _QUITS:
                return
            if text.strip():
                self._stream.aside()  # what is typed stands under the answer so far
                self._write(PROMPT + harmless(text).rstrip().replace("\n", "\n  ") + "\n")
                try:
                    await receive(_incoming(text))
                except Error as problem:
                    unkept = text  # it stands there again, to be sent once more
                    await self._print(_paragraph(f"This was not kept: {problem}"))

    def _made_prompt(self, receive: Receive) -> PromptSession[str]:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.history import FileHistory, InMemoryHistory

        given, shown = self._terminal or (None, None)
        return PromptSession(
            self._line,
            completer=_completer(lambda: self._menu),
            complete_while_typing=True,
            history=FileHistory(self._history) if self._history else InMemoryHistory(),
            key_bindings=self._keys(receive),
            prompt_continuation="  ",
            multiline=True,
            # The line of an answer that is being written goes with it; what was typed is echoed.
            erase_when_done=True,
            reserve_space_for_menu=4,
            input=given,
            output=shown,
        )

    def _line(self) -> str:
        """What stands at the bottom: the line that is being written to the person, and theirs."""
        unfinished = self._stream.unfinished
        return f"{harmless(unfinished)}\n{PROMPT}" if unfinished else PROMPT

    def _keys(self, receive: Receive) -> KeyBindings:
        from prompt_toolkit.filters import completion_is_selected, is_searching
        from prompt_toolkit.key_binding import KeyBindings

        keys = KeyBindings()
        stops: set[asyncio.Task[None]] = set()

        # In a search (ctrl-R) these keys are the search's own: to take what it found, or to leave.
        # What is typed before the prompt is there ends in a line feed, not in the key Enter.
        @keys.add("c-j", filter=~is_searching)
        @keys.add("enter", filter=~completion_is_selected & ~is_searching)
        def _send(event: KeyPressEvent) -> None:
            event.current_buffer.validate_and_handle()

        @keys.add("enter", filter=completion_is_selected)
        def _choose(event: KeyPressEvent) -> None:
            event.current_buffer.complete_state = None

        @keys.add("escape", "enter")
        def _new_line(event: KeyPressEvent) -> None:
            event.current_buffer.insert_text("\n")

        @keys.add("c-c", filter=~is_searching)
        def _stop(event: KeyPressEvent) -> None:
            if self._turns:
                stop: asyncio.Task[None] = asyncio.ensure_future(_given(receive, STOP))
                stops.add(stop)
                stop.add_done_callback(stops.discard)
            else:
                event.current_buffer.reset()

        return keys

    async def _show_piece(self, text: str) -> None:
        """Print the lines that it ends; in one go with the line at the bottom that goes on."""
        if "\n" in text:
            await self._above(lambda: self._write(self._stream.add(text)))
        else:
            await self._print(self._stream.add(text))

    async def _print(self, text: str) -> None:
        """Print above the line that is being typed."""
        if text:
            await self._above(lambda: self._write(text))
        elif self._prompt is not None:
            self._prompt.app.invalidate()

    async def _above(self, write: Callable[[], None]) -> None:
        if self._prompt is None or not self._prompt.app.is_running:
            write()
            return
        from prompt_toolkit.application import in_terminal
        from prompt_toolkit.application.current import set_app

        with set_app(self._prompt.app):
            async with in_terminal():
                write()

    def _write(self, text: str) -> None:
        self._count += len(text)
        if self._terminal is not None:
            self._terminal[1].write(text.replace("\n", "\r\n"))
            self._terminal[1].flush()
        elif self.problem is None:
            try:
                self._stdout.write(text)
                self._stdout.flush()
            except BrokenPipeError as problem:
                # Whoever read has seen enough, as in `tertulia chat | head`: no more is read
                # either, and the rest is in the transcript.
                self.problem = problem
                self.finished.set()

    # -- without one

    async def _read_lines(self, receive: Receive) -> None:
        lines = _lines_of(self._stdin)
        while (line := await _message(lines)) is not None:
            if line.strip() in _QUITS or self.problem is not None:
                break
            if line.strip():
                incoming, before = _incoming(line), self._count
                await receive(incoming)
                answer = await self._settle(incoming.message_id)
                if self._count == before and self._settled is not None:
                    self._show_elsewhere(answer)
        await self._settle(None)  # what was left unanswered the last time, too

    async def _settle(self, message_id: str | None) -> str | None:
        return None if self._settled is None else await self._settled(message_id)

    def _show_elsewhere(self, answer: str | None) -> None:
        if answer is not None:
            self._write(_paragraph(answer))
        else:
            log.warning("another program has this conversation open, and has shown the answer")


class _Stream:
    """What was shown of an answer while it was written, so that it is not printed again.

    Whole lines are printed; of the last one only the line at the bottom knows, until it ends.
    """

    def __init__(self) -> None:
        self.unfinished = ""
        self._text = ""
        self._is_paragraph = False  # lines were printed, and no empty one after them
        self._whole: deque[str] = deque(maxlen=16)

    def add(self, piece: str) -> str:
        """Take a piece; the lines that it finished."""
        self._text += piece
        lines, newline, self.unfinished = (self.unfinished + piece).rpartition("\n")
        whole = lines + newline
        if whole:
            self._is_paragraph = whole != "\n" and not whole.endswith("\n\n")
        return harmless(whole)

    def cut(self) -> str:
        """What was shown so far will not be sent: a tool is called first."""
        self._text = ""
        return self._line()

    def rest(self) -> str:
        """The rest of the line, with its end. What was shown is remembered until it is sent."""
        if self._text:
            self._whole.append(self._text.strip())
        self._text = ""
        return self._line()

    def aside(self) -> str:
        """What stands before something else that is said meanwhile. The line that is being written
        is not printed yet, so it need not be broken: it goes on below."""
        is_paragraph, self._is_paragraph = self._is_paragraph, False
        return "\n" if is_paragraph else ""

    def has_said(self, text: str) -> bool:
        """Whether exactly this was shown; once for each time that it was."""
        said = text.strip()
        if said and self._text.strip() == said:
            self._text = ""
            return True
        if said in self._whole:
            self._whole.remove(said)
            return True
        return False

    def _line(self) -> str:
        line, self.unfinished = self.unfinished, ""
        end = self.aside()
        return f"{harmless(line)}\n\n" if line else end


async def _given(receive: Receive, text: str) -> None:
    await receive(_incoming(text))


def _incoming(text: str) -> Incoming:
    # Bytes that are no UTF-8 arrive as halves of surrogate pairs, which no database stores.
    clean = text.encode("utf-8", "replace").decode()
    return Incoming(source=Source.local(), text=clean, message_id=uuid.uuid4().hex)


def _paragraph(text: str) -> str:
    return harmless(text).rstrip("\n") + "\n\n"


def _completer(menu: Callable[[], Iterable[MenuEntry]]) -> Completer:
    from prompt_toolkit.completion import Completer, Completion

    class Commands(Completer):
        """Offers the commands to whoever begins a line with a slash."""

        def get_completions(
            self, document: Document, complete_event: CompleteEvent
        ) -> Iterator[Completion]:
            typed = document.text
            if typed.startswith("/") and not set(typed) & set(" \n"):
                for entry in menu():
                    if entry.name.startswith(typed[1:].lower()):
                        yield Completion(
                            f"/{entry.name}",
                            start_position=-len(typed),
                            display_meta=entry.description,
                        )

    return Commands()


async def _message(lines: asyncio.Queue[str | None]) -> str | None:
    """The next message; a line that ends in a backslash goes on in the next one."""
    message = await lines.get()
    while message is not None and message.endswith("\\"):
        more = await lines.get()
        if more is None:
            lines.put_nowait(None)
            return message
        message = f"{message[:-1]}\n{more}"
    return message


def _lines_of(stream: TextIO) -> asyncio.Queue[str | None]:
    """The lines of a stream, read by a thread of its own; None at its end.

    A thread that waits for input cannot be interrupted; this one does not keep the program alive.
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

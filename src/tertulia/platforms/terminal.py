"""The terminal of this machine.

With a terminal, the input line is at the bottom, and answers appear above it while they are being
written. Without one (a pipe, a file) each line is a message, answered before the next one is read,
and nothing but the answers is printed.

A typed message has no id of its own, so each gets a new one: the same text typed twice is two
messages.
"""

from __future__ import annotations

import asyncio
import logging
import math
import sys
import threading
import uuid
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import nullcontext
from typing import TYPE_CHECKING, TextIO

from tertulia.core.source import LOCAL, Source
from tertulia.core.text.display_safe import display_text
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
QUIT = MenuEntry("quit", "leave; the conversation stays stored")

_QUITS = frozenset(("/quit", "/exit"))
# A delivery is repeated only while the outcome of its first send is still being stored.
_MAX_SENT_KEYS = 1000


class TerminalAdapter(Adapter):
    """The adapter of the person at the terminal, or of piped input.

    `settled` is awaited after each line of a pipe, until every message so far is answered. It
    returns the answer to that message, which is printed if another program with the same
    conversation open has shown it instead.
    `finished` is set when there is no more input, or the person quits; `problem` is the exception,
    if something failed.
    """

    name = LOCAL
    idempotent_seconds = math.inf

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
        self.settled = settled
        self._stdin = stdin or sys.stdin
        self._stdout = stdout or sys.stdout
        self._is_terminal = terminal is not None or (self._stdin.isatty() and self._stdout.isatty())
        if self._is_terminal:
            import prompt_toolkit  # noqa: F401  if it is missing, fail before anything starts
        self._terminal = terminal
        self._history = history
        self._menu: tuple[MenuEntry, ...] = ()
        self._sent: deque[str] = deque(maxlen=_MAX_SENT_KEYS)
        self._stream = _Stream()
        self._turns_in_progress: set[str] = set()
        self._sent_texts: list[str] = []  # to a pipe, since its last line was read
        self._prompt: PromptSession[str] | None = None
        self._print_lock = asyncio.Lock()

    @property
    def is_answering(self) -> bool:
        """Return whether an answer is being written."""
        return bool(self._turns_in_progress)

    async def listen(self, receive: Receive) -> None:
        self.mark_listening()
        try:
            await (
                self._prompt_for_messages(receive)
                if self._is_terminal
                else self._read_lines(receive)
            )
        except Exception as problem:
            self.problem = problem
            raise
        finally:
            self._prompt = None
            self.mark_problem(None)
            self.finished.set()

    async def send(self, message: Outgoing) -> str | None:
        if message.delivery in self._sent:
            return None
        self._sent.append(message.delivery)
        if not self._is_terminal:
            self._sent_texts.append(message.text.strip())
        async with self._print_lock:
            if self._stream.was_shown(message.text):
                await self._print(self._stream.finish())
            else:
                await self._print(self._stream.separator() + _paragraph(message.text))
        return None

    async def show(self, source: Source, update: StreamUpdate) -> str | None:
        async with self._print_lock:
            if update.kind == "began":
                self._turns_in_progress.add(update.turn)
            elif update.kind == "delta":
                await self._show_delta(update.text)
            elif update.kind == "tool":
                await self._print(f"{self._stream.discard()}[{display_text(update.text)} …]\n")
            else:
                self._turns_in_progress.discard(update.turn)
                await self._print(self._stream.finish())
        return None

    async def fill_menu(self, entries: tuple[MenuEntry, ...]) -> None:
        self._menu = (*entries, QUIT)

    # -- with a terminal

    async def _prompt_for_messages(self, receive: Receive) -> None:
        self._prompt = prompt = self._create_prompt(receive)
        # Keep raw mode between two lines and while something is printed: in cooked mode the
        # terminal itself would handle the keys, ctrl-D would be lost, and ctrl-C would end the
        # program.
        prompt.app.input.cooked_mode = nullcontext  # type: ignore[method-assign]
        with prompt.app.input.raw_mode():
            await self._read_prompts(prompt, receive)

    async def _read_prompts(self, prompt: PromptSession[str], receive: Receive) -> None:
        unsent = ""
        while True:
            try:
                text = await prompt.prompt_async(default=unsent, handle_sigint=False)
            except EOFError:
                return
            unsent = ""
            if text.strip() in _QUITS:
                return
            if text.strip():
                self._stream.separator()  # the typed text is printed below the answer so far
                self._write(PROMPT + display_text(text).rstrip().replace("\n", "\n  ") + "\n")
                try:
                    await receive(_incoming(text))
                except Error as problem:
                    unsent = text  # offer the text again, to be sent once more
                    await self._print(_paragraph(f"Your message was not stored: {problem}"))

    def _create_prompt(self, receive: Receive) -> PromptSession[str]:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.history import FileHistory, InMemoryHistory

        terminal_input, terminal_output = self._terminal or (None, None)
        return PromptSession(
            self._prompt_text,
            completer=_completer(lambda: self._menu),
            complete_while_typing=True,
            history=FileHistory(self._history) if self._history else InMemoryHistory(),
            key_bindings=self._keys(receive),
            prompt_continuation="  ",
            multiline=True,
            # The prompt contains the unfinished line of the answer, so it is erased as a whole; the
            # typed text is printed again by `_read_prompts`.
            erase_when_done=True,
            reserve_space_for_menu=4,
            input=terminal_input,
            output=terminal_output,
        )

    def _prompt_text(self) -> str:
        """Return the text at the bottom: the unfinished line of the answer, and the prompt."""
        unfinished = self._stream.unfinished
        return f"{display_text(unfinished)}\n{PROMPT}" if unfinished else PROMPT

    def _keys(self, receive: Receive) -> KeyBindings:
        from prompt_toolkit.filters import completion_is_selected, is_searching
        from prompt_toolkit.key_binding import KeyBindings

        keys = KeyBindings()
        stops: set[asyncio.Task[None]] = set()

        # In a search (ctrl-R) these keys belong to the search: to accept its result, or to leave.
        # Text typed before the prompt appears ends in a line feed, not in the key Enter.
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
            if self._turns_in_progress:
                stop: asyncio.Task[None] = asyncio.ensure_future(_hand_over(receive, STOP))
                stops.add(stop)
                stop.add_done_callback(stops.discard)
            else:
                event.current_buffer.reset()

        return keys

    async def _show_delta(self, text: str) -> None:
        """Print the lines that a delta completes, and update the unfinished line with them."""
        if "\n" in text:
            await self._write_above_prompt(lambda: self._write(self._stream.add(text)))
        else:
            await self._print(self._stream.add(text))

    async def _print(self, text: str) -> None:
        """Print above the input line; without a text, redraw the prompt."""
        if text:
            await self._write_above_prompt(lambda: self._write(text))
        elif self._prompt is not None:
            self._prompt.app.invalidate()

    async def _write_above_prompt(self, write: Callable[[], None]) -> None:
        if self._prompt is None or not self._prompt.app.is_running:
            write()
            return
        from prompt_toolkit.application import in_terminal
        from prompt_toolkit.application.current import set_app

        with set_app(self._prompt.app):
            async with in_terminal():
                write()

    def _write(self, text: str) -> None:
        if self._terminal is not None:
            self._terminal[1].write(text.replace("\n", "\r\n"))
            self._terminal[1].flush()
        elif self.problem is None:
            try:
                self._stdout.write(text)
                self._stdout.flush()
            except BrokenPipeError as problem:
                # The reader has closed the pipe, as in `tertulia chat | head`: stop reading input
                # too; the rest of the answers is in the transcript.
                self.problem = problem
                self.finished.set()

    # -- without a terminal

    async def _read_lines(self, receive: Receive) -> None:
        lines = _read_stream(self._stdin)
        while (line := await _next_message(lines)) is not None:
            if line.strip() in _QUITS or self.problem is not None:
                break
            if line.strip():
                incoming = _incoming(line)
                self._sent_texts.clear()
                await receive(incoming)
                answer = await self._settle(incoming.message_id)
                if self.settled is not None:
                    self._print_missing_answer(answer)
        await self._settle(None)  # also messages left unanswered by an earlier run

    async def _settle(self, message_id: str | None) -> str | None:
        return None if self.settled is None else await self.settled(message_id)

    def _print_missing_answer(self, answer: str | None) -> None:
        """Print the stored answer if another program with this conversation has shown it."""
        if answer is None and not self._sent_texts:
            log.warning("another program has this conversation open and has shown the answer there")
        elif answer is not None and answer.strip() not in self._sent_texts:
            self._write(_paragraph(answer))


class _Stream:
    """The text of an answer that was shown while it was written, so that it is not printed twice.

    Complete lines are printed; the last, unfinished line is only part of the prompt until it ends.
    """

    def __init__(self) -> None:
        self.unfinished = ""
        self._text = ""
        self._is_paragraph = False  # lines were printed, and no empty line after them
        self._shown_texts: deque[str] = deque(maxlen=16)

    def add(self, piece: str) -> str:
        """Add a piece of the answer; return the lines that it completed."""
        self._text += piece
        lines, newline, self.unfinished = (self.unfinished + piece).rpartition("\n")
        complete = lines + newline
        if complete:
            self._is_paragraph = complete != "\n" and not complete.endswith("\n\n")
        return display_text(complete)

    def discard(self) -> str:
        """Forget the text so far, which will not be sent, because a tool is called first.

        Return the rest of its line.
        """
        self._text = ""
        return self._end_line()

    def finish(self) -> str:
        """Return the rest of the line, with its end; remember the text until it is sent."""
        if self._text:
            self._shown_texts.append(self._text.strip())
        self._text = ""
        return self._end_line()

    def separator(self) -> str:
        """Return the text to print before another message.

        The unfinished line is not printed yet, so it continues below that message.
        """
        is_paragraph, self._is_paragraph = self._is_paragraph, False
        return "\n" if is_paragraph else ""

    def was_shown(self, text: str) -> bool:
        """Return whether this text was shown; True once for each time it was shown."""
        stripped = text.strip()
        if stripped and self._text.strip() == stripped:
            self._text = ""
            return True
        if stripped in self._shown_texts:
            self._shown_texts.remove(stripped)
            return True
        return False

    def _end_line(self) -> str:
        line, self.unfinished = self.unfinished, ""
        end = self.separator()
        return f"{display_text(line)}\n\n" if line else end


async def _hand_over(receive: Receive, text: str) -> None:
    await receive(_incoming(text))


def _incoming(text: str) -> Incoming:
    # Bytes that are not UTF-8 arrive as lone surrogates, which no database stores.
    clean = text.encode("utf-8", "replace").decode()
    return Incoming(source=Source.local(), text=clean, message_id=uuid.uuid4().hex)


def _paragraph(text: str) -> str:
    return display_text(text).rstrip("\n") + "\n\n"


def _completer(menu: Callable[[], Iterable[MenuEntry]]) -> Completer:
    from prompt_toolkit.completion import Completer, Completion

    class Commands(Completer):
        """Completes commands in a line that begins with a slash."""

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


async def _next_message(lines: asyncio.Queue[str | None]) -> str | None:
    """Return the next message; a line that ends in a backslash continues on the next line."""
    message = await lines.get()
    while message is not None and message.endswith("\\"):
        more = await lines.get()
        if more is None:
            lines.put_nowait(None)
            return message
        message = f"{message[:-1]}\n{more}"
    return message


def _read_stream(stream: TextIO) -> asyncio.Queue[str | None]:
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

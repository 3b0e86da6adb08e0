"""Lines in, lines out: a pipe, a file, or a terminal for screen readers.

Nothing moves the cursor, and nothing is printed twice. A pipe gets the answers alone on its
standard output; notices, tools and failures go to standard error. In plain mode words say who
speaks.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import sys
from collections.abc import Awaitable, Callable
from typing import TextIO

from tertulia.core.media import Media
from tertulia.core.text.display_safe import display_line, display_text
from tertulia.errors import Error
from tertulia.platforms.base import MenuEntry, Receive, StreamUpdate
from tertulia.platforms.terminal.attachments import (
    Attachments,
    describe_problem,
    is_attachment_command,
)
from tertulia.platforms.terminal.blocks import QUOTE
from tertulia.platforms.terminal.incoming import (
    QUITS,
    OtherMessage,
    is_hangup,
    next_message,
    read_stream,
    read_thinking,
    thinking_reply,
    typed_message,
)
from tertulia.platforms.terminal.markdown_rows import render, row_width

log = logging.getLogger("tertulia.gateway")

Settled = Callable[[str | None], Awaitable[str | None]]


class LineView:
    """Reads messages line by line and prints whole answers.

    `settled` is awaited after each line, until every message so far is answered. It returns the
    answer to that message, which is printed if another program with the same conversation open has
    shown it instead.
    `is_plain`: a person reads along, so words say who speaks and what is waited for.
    """

    def __init__(
        self,
        stdin: TextIO,
        stdout: TextIO,
        attachments: Attachments | None = None,
        *,
        is_plain: bool = False,
    ) -> None:
        self._attachments = attachments or Attachments()
        self.settled: Settled | None = None
        self.menu: tuple[MenuEntry, ...] = ()
        self.problem: Exception | None = None
        self.is_closed = asyncio.Event()
        self.is_gone = False  # the terminal: its window was closed, or the connection was lost
        self._stdin = stdin
        self._stdout = stdout
        self._is_plain = is_plain
        self.shows_thoughts = False
        self._thoughts = ""
        self._turns: set[str] = set()
        self._sent_texts: list[str] = []  # since the last line was read

    @property
    def is_answering(self) -> bool:
        return bool(self._turns)

    async def listen(self, receive: Receive) -> None:
        """Hand over each line, and wait for its answer, until the input ends."""
        lines = read_stream(self._stdin)
        while (line := await self._next(lines)) is not None:
            if line.strip() in QUITS or self.problem is not None:
                break
            is_on = read_thinking(line) if self._is_plain else None
            if is_on is not None:
                self.shows_thoughts = is_on
                self._write(f"{thinking_reply(is_on=is_on)}\n")
            elif self._is_plain and is_attachment_command(line):
                await self._attach(line)
            elif line.strip():
                await self._answer_line(receive, line)
        await self._settle(None)  # also messages left unanswered by an earlier run

    async def _next(self, lines: asyncio.Queue[str | OSError | None]) -> str | None:
        if not self._is_plain:
            return await next_message(lines)
        self._write("You: ")
        line = await next_message(lines)
        if line is None:
            self._write("\n")  # what is printed next begins a line
        return line

    async def _attach(self, command: str) -> None:
        try:
            text = await self._attachments.run(command)
        except Error as problem:
            text = describe_problem(problem)
        self._write(f"{text}\n")

    async def _answer_line(self, receive: Receive, line: str) -> None:
        text, files = await self._take_files(line)
        message = typed_message(text, files)
        self._sent_texts.clear()
        await receive(message)
        if self._is_plain:
            self._write("Waiting for the answer.\n")
        answer = await self._settle(message.message_id)
        if self.settled is not None:
            self._print_missing_answer(answer)

    async def _take_files(self, line: str) -> tuple[str, tuple[Media, ...]]:
        """Return a line and its files. A pipe has none: an @ in its text may be anybody's."""
        if not self._is_plain or line.startswith("/"):
            return line, ()
        try:
            return await self._attachments.take(line)
        except Error as problem:
            self._write(f"Not attached: {describe_problem(problem)}\n")
            return line, ()

    async def _settle(self, message_id: str | None) -> str | None:
        return None if self.settled is None else await self.settled(message_id)

    def print_message(self, text: str, *, is_answer: bool = True) -> None:
        """Print a whole message. Nothing is paged: whoever reads lines has their own way."""
        self._sent_texts.append(text.strip())
        if self._is_plain:
            self._write(f"Agent: {_plain_text(text)}\n\n")
        else:
            self._write(f"{display_text(text).rstrip()}\n\n")

    def print_failure(self, text: str) -> None:
        """Print why a message has no answer: to a pipe's reader it is no answer."""
        self._sent_texts.append(text.strip())
        if self._is_plain:
            self._write(f"Error: {display_text(text).removeprefix('✗').strip()}\n\n")
            return
        sys.stderr.write(f"{display_text(text).rstrip()}\n")

    def print_other(self, message: OtherMessage) -> None:
        """Say what another terminal wrote; a pipe gets the answers to its own messages alone."""
        if self._is_plain and not message.is_to_typed:
            text = (
                f"Agent: {_plain_text(message.text)}"
                if message.is_answer
                else (f"You: {display_text(message.text)}")
            )
            self._write(f"From another terminal, {text}\n")

    def set_busy_elsewhere(self, *, is_busy: bool) -> None:
        """Do nothing: a person who reads line by line is not told of each other turn."""

    def update(self, update: StreamUpdate) -> None:
        """Remember which turns are in progress; say which tools are called."""
        if update.kind == "thought":
            self._thoughts += update.text
            return
        if self._thoughts:
            self._write(f"Thinking: {_plain_text(self._thoughts)}\n")
            self._thoughts = ""
        if update.kind == "began":
            self._turns.add(update.turn)
        elif update.kind == "ended":
            self._turns.discard(update.turn)
        elif update.kind == "result" and self._is_plain:
            self._write(f"Tool {display_line(update.text)}\n")
        elif update.kind == "result":
            sys.stderr.write(f"▸ {display_line(update.text)}\n")

    def _print_missing_answer(self, answer: str | None) -> None:
        """Print the stored answer if another program with this conversation has shown it."""
        if answer is None and not self._sent_texts:
            log.warning("another program has this conversation open and has shown the answer there")
        elif answer is not None and answer.strip() not in self._sent_texts:
            self.print_message(answer)

    def _write(self, text: str) -> None:
        if self.problem is not None or self.is_gone:
            return
        try:
            self._stdout.write(text)
            self._stdout.flush()
        except BrokenPipeError as problem:
            # The reader has closed the pipe, as in `tertulia chat | head`: stop reading input
            # too; the rest of the answers is in the transcript.
            self.problem = problem
            self.is_closed.set()
        except OSError as problem:
            if not is_hangup(problem):
                raise
            self.is_gone = True
            self.is_closed.set()


def _plain_text(markdown: str) -> str:
    """Return an answer without the marks of Markdown, which a screen reader would read aloud."""
    width = row_width(shutil.get_terminal_size().columns)
    rows = render(markdown, width, is_plain=True)
    texts = ("".join("> " if part == QUOTE else part.text for part in row) for row in rows)
    return "\n".join(texts).rstrip()

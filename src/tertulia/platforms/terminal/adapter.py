"""The adapter of the terminal of this machine.

With a terminal, the input line is at the bottom, and answers appear above it while they are being
written (`live.py`). Without one (a pipe, a file), and in plain mode, each line is a message, and
whole answers are printed (`lines.py`).
"""

from __future__ import annotations

import asyncio
import math
import os
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, TextIO

from tertulia.core.source import LOCAL, Source
from tertulia.platforms.base import (
    COMMAND_KEY,
    FAILURE_KEY,
    REFUSAL_KEY,
    REPLY_KEY,
    Adapter,
    Incoming,
    MenuEntry,
    Outgoing,
    Receive,
    StreamUpdate,
    Update,
)
from tertulia.platforms.terminal import attachments
from tertulia.platforms.terminal.attachments import Attachments
from tertulia.platforms.terminal.incoming import QUIT, THINKING, OtherMessage
from tertulia.platforms.terminal.lines import LineView, Settled

if TYPE_CHECKING:
    from prompt_toolkit.input import Input
    from prompt_toolkit.output import Output

    from tertulia.platforms.terminal.live import LiveView

# A delivery is repeated only while the outcome of its first send is still being stored.
_MAX_SENT_KEYS = 1000


class TerminalAdapter(Adapter):
    """The adapter of the person at the terminal, or of piped input.

    `settled` is awaited after each line of a pipe; see `LineView`.
    `unanswered` are the keys of the deliveries that say why a message has no answer.
    `typed_ids` are the messages that were typed here, `answered_here` those whose turn ran here.
    `catch_up` is awaited before a turn is shown here: it shows what other terminals wrote before.
    `finished` is set when there is no more input, or the person leaves; `problem` is the exception,
    if something failed.
    """

    name = LOCAL
    idempotent_seconds = math.inf

    def __init__(
        self,
        *,
        settled: Settled | None = None,
        history: str | None = None,
        is_plain: bool = False,
        style: Mapping[str, str] = MappingProxyType({}),
        stdin: TextIO | None = None,
        stdout: TextIO | None = None,
        terminal: tuple[Input, Output] | None = None,
    ) -> None:
        self.finished = asyncio.Event()
        self.unanswered: list[str] = []
        self.typed_ids: set[str | None] = set()
        self.answered_here: set[str | None] = set()
        self.catch_up: Callable[[], Awaitable[None]] | None = None
        self._failure: Exception | None = None
        self._sent: deque[str] = deque(maxlen=_MAX_SENT_KEYS)
        stdin, stdout = stdin or sys.stdin, stdout or sys.stdout
        is_terminal = terminal is not None or (stdin.isatty() and stdout.isatty())
        self.attachments = Attachments()
        self._view: LiveView | LineView
        if is_terminal and not is_plain and os.environ.get("TERM") != "dumb":
            from tertulia.platforms.terminal.live import LiveView

            self._view = LiveView(history, terminal, self.attachments, style=style)
        else:
            self._view = LineView(stdin, stdout, self.attachments, is_plain=is_terminal)
            self._view.settled = settled

    @property
    def settled(self) -> Settled | None:
        return self._view.settled if isinstance(self._view, LineView) else None

    @settled.setter
    def settled(self, settled: Settled | None) -> None:
        if isinstance(self._view, LineView):
            self._view.settled = settled

    @property
    def problem(self) -> Exception | None:
        """Return the exception that ended reading or printing, if there was one."""
        if self._failure is None and isinstance(self._view, LineView):
            return self._view.problem
        return self._failure

    @property
    def shows_thoughts(self) -> bool:  # type: ignore[override]  # it changes with /thinking
        return self._view.shows_thoughts

    @property
    def is_answering(self) -> bool:
        """Return whether an answer is being written."""
        return self._view.is_answering

    @property
    def is_gone(self) -> bool:
        """Return whether the window was closed, or the connection to the terminal was lost."""
        return self._view.is_gone

    async def listen(self, receive: Receive) -> None:
        self.mark_listening()

        async def receive_typed(update: Update) -> None:
            if isinstance(update, Incoming):
                self.typed_ids.add(update.message_id)
            await receive(update)

        try:
            await self._read(receive_typed)
        except OSError as problem:
            self._failure = problem  # the input cannot be read; trying again would not help
        except Exception as problem:
            self._failure = problem
            raise
        finally:
            self.mark_problem(None)
            self.finished.set()

    async def _read(self, receive: Receive) -> None:
        """Read until the input ends, or until nobody reads the output any more."""
        if not isinstance(self._view, LineView):
            await self._view.listen(receive)
            return
        reading = asyncio.ensure_future(self._view.listen(receive))
        closed = asyncio.ensure_future(self._view.is_closed.wait())
        try:
            await asyncio.wait((reading, closed), return_when=asyncio.FIRST_COMPLETED)
            if reading.done():
                reading.result()
        finally:
            for task in (reading, closed):
                task.cancel()
            await asyncio.gather(reading, closed, return_exceptions=True)

    async def send(self, message: Outgoing) -> str | None:
        if message.delivery not in self._sent:
            self._sent.append(message.delivery)
            if message.delivery.startswith((FAILURE_KEY, REFUSAL_KEY)):
                self.unanswered.append(message.delivery)
                self._view.print_failure(message.text)
            else:
                is_reply = message.delivery.startswith((REPLY_KEY, COMMAND_KEY))
                self._view.print_message(message.text, is_answer=not is_reply)
        return None

    async def show(self, source: Source, update: StreamUpdate) -> str | None:
        if update.kind == "began":
            self.answered_here.add(update.message_id)
            if self.catch_up is not None:
                await self.catch_up()
        self._view.update(update)
        return None

    def show_others(self, messages: Iterable[OtherMessage], *, is_busy: bool) -> None:
        """Show what other terminals wrote and were answered; `is_busy`: one is being answered."""
        self._view.set_busy_elsewhere(is_busy=is_busy)
        for message in messages:
            self._view.print_other(message)

    async def fill_menu(self, entries: tuple[MenuEntry, ...]) -> None:
        self._view.menu = (*entries, *attachments.ENTRIES, THINKING, QUIT)

"""A person at a terminal: answers appear above the input line while they are being written."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from tertulia.core.media import Media
from tertulia.core.text.display_safe import display_line, display_text
from tertulia.errors import Error
from tertulia.platforms.base import MenuEntry, Receive, StreamUpdate
from tertulia.platforms.terminal.attachments import (
    Attachments,
    describe_problem,
    is_attachment_command,
)
from tertulia.platforms.terminal.incoming import (
    QUITS,
    STOP,
    OtherMessage,
    read_thinking,
    thinking_reply,
    typed_message,
)
from tertulia.platforms.terminal.markdown_rows import Stream, render
from tertulia.platforms.terminal.screen import Screen, typed_rows
from tertulia.platforms.terminal.shown_texts import ShownTexts
from tertulia.platforms.terminal.theme import terminal_theme
from tertulia.platforms.terminal.wrap import Row, Segment, wrap

if TYPE_CHECKING:
    from prompt_toolkit.input import Input
    from prompt_toolkit.output import Output

_REDRAW_SECONDS: Final = 0.5
_SPINNER: Final = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_EMPTY: Final[Row] = ()
_BAR: Final = Segment("dim", "┆ ")


class LiveView:
    """Shows a conversation on a screen with an input line at the bottom."""

    def __init__(
        self,
        history: str | None = None,
        terminal: tuple[Input, Output] | None = None,
        attachments: Attachments | None = None,
        *,
        style: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._attachments = attachments or Attachments()
        theme = terminal_theme(style)
        self._screen = Screen(
            self._submit, self._stop, theme=theme, history=history, terminal=terminal
        )
        self._receive: Receive | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._stream = Stream(self._screen.width)
        self._shown = ShownTexts()
        self._activity = ""
        self._started_at = 0.0
        self._turns: set[str] = set()
        self._is_busy_elsewhere = False
        self._other_turn = ""  # the turn of another terminal that was shown last
        self._is_after_text = False  # the last printed row is not empty
        self.shows_thoughts = False
        self._thoughts = Stream(self._screen.width)
        self._has_thoughts = False  # shown, and not ended yet

    @property
    def is_answering(self) -> bool:
        return bool(self._turns)

    @property
    def is_gone(self) -> bool:
        return self._screen.is_gone

    @property
    def menu(self) -> tuple[MenuEntry, ...]:
        return self._screen.menu

    @menu.setter
    def menu(self, entries: tuple[MenuEntry, ...]) -> None:
        self._screen.menu = entries

    async def listen(self, receive: Receive) -> None:
        """Hand over what the person sends, until they leave."""
        self._receive = receive
        ticker = asyncio.create_task(self._tick())
        try:
            await self._screen.run()
        finally:
            ticker.cancel()
            self._receive = None
            if self._tasks:
                await asyncio.wait(self._tasks)

    def print_message(self, text: str, *, is_answer: bool = True) -> None:
        """Print a whole message, unless it was shown while it was written.

        The reply to a command is shown in a pager if it is longer than the screen; an answer of the
        agent never is.
        """
        is_shown = self._shown.was_shown(text)
        self._finish_stream()
        if is_shown:
            return
        rows = [*render(text, self._screen.width), _EMPTY]
        if is_answer or not self._screen.needs_pager(rows):
            self._print(rows)
        else:
            self._start(self._screen.page(rows))

    def print_failure(self, text: str) -> None:
        """Print why a message has no answer."""
        self._finish_stream()
        self._print([*self._wrapped(display_text(text), "error"), _EMPTY])

    def print_other(self, message: OtherMessage) -> None:
        """Print a message of a turn that runs elsewhere, and mark it as such."""
        if message.is_to_typed:
            self.print_message(message.text)
            return
        width = self._screen.width - len(_BAR.text)
        rows = [_EMPTY] if self._is_after_text else []
        if message.turn != self._other_turn:
            rows.append((_BAR, Segment("dim", "from another terminal")))
        self._other_turn = message.turn
        if message.is_answer:
            rows += [(_BAR, *row) for row in render(message.text, width)]
            rows.append(_EMPTY)
        else:
            rows += [(_BAR, *row) for row in typed_rows(display_text(message.text), width)]
        self._print(rows)
        self._is_after_text = False

    def set_busy_elsewhere(self, *, is_busy: bool) -> None:
        """Show, or show no longer, that another terminal writes an answer."""
        if is_busy != self._is_busy_elsewhere:
            self._is_busy_elsewhere = is_busy
            self._update_status()
            self._screen.refresh()

    def update(self, update: StreamUpdate) -> None:
        """Show the progress of a turn."""
        if update.kind != "thought":
            self._end_thoughts()
        match update.kind:
            case "thought":
                self._show_thought(update.text)
            case "began":
                self._turns.add(update.turn)
                self._set_activity("thinking")
            case "notice":
                self._shown.finish(update.text)
                self._print_note(f"· {display_line(update.text)}", "notice")
            case "delta":
                self._show_delta(update.text)
            case "tool":
                self._shown.discard()
                self._finish_stream()
                self._set_activity(display_line(update.text, 40))
            case "result":
                self._print_note(f"▸ {display_line(update.text)}", "tool")
                self._screen.details = self._result_rows(update)
                self._set_activity("thinking")
            case "ended":
                self._turns.discard(update.turn)
                self._shown.finish()
                self._finish_stream()
                self._set_activity("thinking" if self._turns else "")
            case _:
                pass

    def _show_thought(self, text: str) -> None:
        """Show a piece of the reasoning, dimmed; it is no part of the answer."""
        if not self.shows_thoughts:
            return
        self._has_thoughts = True
        self._thoughts.width = self._screen.width
        rows = self._thoughts.feed(text)
        self._screen.tail = [_dimmed(row) for row in self._thoughts.tail]
        if rows:
            self._print(map(_dimmed, rows))
        else:
            self._screen.refresh()

    def _end_thoughts(self) -> None:
        if self._has_thoughts:
            self._has_thoughts = False
            rows = [_dimmed(row) for row in self._thoughts.finish()]
            self._screen.tail = ()
            self._print([*rows, _EMPTY])

    def _show_delta(self, text: str) -> None:
        if self._activity != "writing":
            self._set_activity("writing")
        self._shown.add(text)
        self._stream.width = self._screen.width
        rows = self._stream.feed(text)
        self._screen.tail = self._stream.tail
        if rows:
            self._print(rows)
        else:
            self._screen.refresh()

    def _finish_stream(self) -> None:
        """Print the rest of the text in progress, and an empty row after it."""
        self._stream.width = self._screen.width
        rows = self._stream.finish()
        self._screen.tail = ()
        if rows or self._is_after_text:
            self._print([*rows, _EMPTY])
        else:
            self._screen.refresh()

    def _print(self, rows: Iterable[Row]) -> None:
        rows = list(rows)
        if rows:
            self._is_after_text = rows[-1] != _EMPTY
            self._screen.print_rows(rows)

    def _print_note(self, text: str, style: str) -> None:
        """Print a line that belongs to the answer below it."""
        self._print(self._wrapped(text, style))
        self._is_after_text = False

    def _result_rows(self, update: StreamUpdate) -> list[Row]:
        """Return a tool call with its whole result, for ctrl-O."""
        text = display_text(update.detail).rstrip()
        rows = wrap(
            [Segment("dim", text)], self._screen.width, (Segment("", "  "),), (Segment("", "  "),)
        )
        return [*self._wrapped(f"▸ {display_line(update.text)}", "tool"), *rows, _EMPTY]

    def _wrapped(self, text: str, style: str) -> list[Row]:
        return wrap([Segment(style, text)], self._screen.width, (), (Segment("", "  "),))

    # -- status

    def _set_activity(self, activity: str) -> None:
        if activity and not self._activity:
            self._started_at = time.monotonic()
        self._activity = activity
        self._update_status()
        self._screen.refresh()

    def _update_status(self) -> None:
        seconds = int(time.monotonic() - self._started_at)
        spinner = _SPINNER[int(time.monotonic() / _REDRAW_SECONDS) % len(_SPINNER)]
        self._screen.status = ""
        if self._activity:
            self._screen.status = f"{spinner} {self._activity} · {seconds} s · ctrl-C stops"
        elif self._is_busy_elsewhere:
            self._screen.status = f"{spinner} answered by another terminal"

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_REDRAW_SECONDS)
            if self._activity or self._is_busy_elsewhere:
                self._update_status()
                self._screen.refresh()

    # -- input

    def _submit(self, text: str) -> None:
        if text.strip() in QUITS:
            self._screen.leave()
            return
        gap = [_EMPTY] if self._is_after_text else []
        self._print([*gap, *typed_rows(display_text(text), self._screen.width)])
        self._is_after_text = False
        is_on = read_thinking(text)
        if is_on is not None:
            self.shows_thoughts = is_on
            self._print([*self._wrapped(f"· {thinking_reply(is_on=is_on)}", "notice"), _EMPTY])
        elif is_attachment_command(text):
            self._start(self._attach(text))
        else:
            self._start(self._hand_over(text, is_typed=True))

    def _stop(self) -> bool:
        """Ask for the end of the turn in progress; return whether there is one."""
        if self._turns:
            self._start(self._hand_over(STOP, is_typed=False))
        return bool(self._turns)

    async def _hand_over(self, text: str, *, is_typed: bool) -> None:
        if self._receive is None:
            return
        clean: str = text
        files: tuple[Media, ...] = ()
        try:
            if is_typed and not text.startswith("/"):
                clean, files = await self._attachments.take(text)
            await self._receive(typed_message(clean, files))
        except Error as problem:
            self._attachments.put_back(files)
            self._print(self._wrapped(f"✗ Not stored: {describe_problem(problem)}", "error"))
            if is_typed:
                self._screen.offer(text)
        self._show_attachments()

    async def _attach(self, command: str) -> None:
        try:
            self._print(self._wrapped(f"· {await self._attachments.run(command)}", "notice"))
        except Error as problem:
            self._print(self._wrapped(f"✗ {describe_problem(problem)}", "error"))
        self._show_attachments()

    def _show_attachments(self) -> None:
        self._screen.attachments = self._attachments.description
        self._screen.refresh()

    def _start(self, work: object) -> None:
        task = asyncio.ensure_future(work)  # type: ignore[call-overload]
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _dimmed(row: Row) -> Row:
    return tuple(Segment("dim", segment.text) for segment in row)

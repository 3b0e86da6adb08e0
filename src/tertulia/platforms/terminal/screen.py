"""The part of the terminal that can still change: the end of the answer, the status, the input.

Everything above it is final and belongs to the scrollback. To print there, the live part is erased,
the rows are written and the live part is drawn again, in one write: terminals that know
synchronised updates (`ESC[?2026h`) show nothing in between, and the others have nothing to show.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from prompt_toolkit.application import Application, in_terminal
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import ThreadedCompleter
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition, completion_is_selected, has_completions, is_searching
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.history import FileHistory, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout import ConditionalContainer, HSplit, Layout, Window
from prompt_toolkit.layout.controls import BufferControl, FormattedTextControl
from prompt_toolkit.layout.menus import CompletionsMenu
from prompt_toolkit.layout.processors import AppendAutoSuggestion
from prompt_toolkit.output.vt100 import Vt100_Output
from prompt_toolkit.styles import Style
from prompt_toolkit.widgets import SearchToolbar

from tertulia.platforms.base import MenuEntry
from tertulia.platforms.terminal.incoming import FORGET, is_hangup
from tertulia.platforms.terminal.input_completer import InputCompleter, pasted_file
from tertulia.platforms.terminal.markdown_rows import row_width
from tertulia.platforms.terminal.pager import (
    interrupts_to_pager,
    pager_command,
    pager_environment,
)
from tertulia.platforms.terminal.theme import Theme
from tertulia.platforms.terminal.wrap import Row, Segment, cut, wrap

if TYPE_CHECKING:
    from prompt_toolkit.input import Input
    from prompt_toolkit.output import Output

PROMPT = "› "
_MAX_TAIL_ROWS = 10
_MENU_ROWS = 8
_BEGIN_UPDATE, _END_UPDATE = "\x1b[?2026h", "\x1b[?2026l"


class BatchedOutput(Vt100_Output):
    """A terminal whose output can be held back and sent in one write."""

    is_gone = False  # the window was closed, or the connection was lost
    _is_held = False

    def flush(self) -> None:
        if self._is_held:
            return
        try:
            super().flush()
        except OSError as problem:
            if not is_hangup(problem):
                raise
            self.is_gone = True

    @contextlib.contextmanager
    def one_write(self) -> Iterator[None]:
        """Send everything that the block writes in one write, as one update of the screen."""
        self._is_held = True
        self.write_raw(_BEGIN_UPDATE)
        try:
            yield
        finally:
            self._is_held = False
            self.write_raw(_END_UPDATE)
            self.flush()


class _LiveApplication(Application[None]):
    """An application that erases all of its rows when the width of the terminal changes."""

    def redraw_now(self) -> None:
        """Draw at once, not with the next turn of the event loop."""
        self._redraw()

    def _on_resize(self) -> None:
        screen = self.renderer.last_rendered_screen
        if screen is not None:
            # A narrower terminal has broken the rows that are too wide for it now.
            columns = self.output.get_size().columns
            cursor = screen.get_cursor_position(self.layout.current_window)
            rows_above = sum(
                max(-(-_used_width(screen.data_buffer[y]) // columns), 1) for y in range(cursor.y)
            )
            self.output.write_raw("\r")
            self.output.cursor_up(rows_above + cursor.x // columns)
            self.output.erase_down()
            self.renderer.reset(leave_alternate_screen=False)
        self._redraw()


def _used_width(row: dict[int, Any]) -> int:
    return max((x + cell.width for x, cell in row.items() if cell.char != " "), default=0)


class Screen:
    """The live part of a terminal. `submit` gets each text that was sent, `stop` a ctrl-C."""

    def __init__(
        self,
        submit: Callable[[str], None],
        stop: Callable[[], bool],
        *,
        theme: Theme,
        history: str | None = None,
        terminal: tuple[Input, Output] | None = None,
    ) -> None:
        self.menu: tuple[MenuEntry, ...] = ()
        self.tail: Sequence[Row] = ()
        self.status = ""
        self.attachments = ""
        self.details: Sequence[Row] = ()  # of the last tool call, for ctrl-O
        self._submit = submit
        self._stop = stop
        self._is_paging = False
        self._rows_meanwhile: list[Row] = []  # to be printed when the person leaves the pager
        self._theme = theme
        self._search = SearchToolbar(
            backward_search_prompt="search earlier input: ",
            forward_search_prompt="search later input: ",
        )
        self._completer = InputCompleter(lambda: self.menu)
        self._buffer = Buffer(
            # In a thread: a folder may be slow to list, or on another machine.
            completer=ThreadedCompleter(self._completer),
            complete_while_typing=True,
            history=FileHistory(history) if history else InMemoryHistory(),
            multiline=True,
            tempfile_suffix=".md",
        )
        self._input: Input | None = None
        if terminal is not None:
            self._input, self._output = terminal
        else:
            self._output = _open_output()
        self._app = self._create_application()

    @property
    def width(self) -> int:
        """Return the width of rows at present."""
        return row_width(self._output.get_size().columns)

    @property
    def is_running(self) -> bool:
        return self._app.is_running

    @property
    def is_gone(self) -> bool:
        """Return whether the window was closed, or the connection to it was lost."""
        return isinstance(self._output, BatchedOutput) and self._output.is_gone

    async def run(self) -> None:
        """Read and show until the person leaves, or the terminal is gone."""
        with contextlib.suppress(EOFError):  # raised for the end of the input
            await self._app.run_async(handle_sigint=False)

    def leave(self) -> None:
        """End `run`."""
        if self._app.is_running:
            self._app.exit()

    def offer(self, text: str) -> None:
        """Put a text that could not be sent back into the empty input."""
        if not self._buffer.text:
            self._buffer.document = Document(text)

    def refresh(self) -> None:
        """Draw the live part again, soon."""
        self._app.invalidate()

    def print_rows(self, rows: Iterable[Row]) -> None:
        """Print final rows above the live part."""
        if self._is_paging:
            self._rows_meanwhile += rows
            return
        text = "".join(f"{self._theme.escape(row)}\r\n" for row in rows)
        if not self._app.is_running:
            self._output.write_raw(text)
            self._output.flush()
            return
        with self._one_write():
            self._app.renderer.erase(leave_alternate_screen=False)
            self._output.write_raw(text)
            self._app.redraw_now()

    def needs_pager(self, rows: Sequence[Row]) -> bool:
        """Return whether rows are longer than the screen, and there is a pager for them."""
        is_long = len(rows) >= self._output.get_size().rows
        return is_long and self._app.is_running and pager_command() is not None

    async def page(self, rows: Sequence[Row]) -> None:
        """Show rows in the pager. What is printed meanwhile appears when the person leaves it."""
        command = pager_command()
        if command is None or self._is_paging:
            self.print_rows(rows)
            return
        text = "".join(f"{self._theme.escape(row)}\n" for row in rows)
        self._is_paging = True
        try:
            async with in_terminal():
                with interrupts_to_pager():
                    process = await asyncio.create_subprocess_exec(
                        *command, stdin=asyncio.subprocess.PIPE, env=pager_environment()
                    )
                    await process.communicate(text.encode("utf-8", "replace"))
        except OSError:
            self._rows_meanwhile[:0] = rows
        finally:
            self._is_paging = False
        held, self._rows_meanwhile = self._rows_meanwhile, []
        self.print_rows([(), *held])  # the pager has left its last row directly above

    def _one_write(self) -> contextlib.AbstractContextManager[None]:
        if isinstance(self._output, BatchedOutput):
            return self._output.one_write()
        return contextlib.nullcontext()

    # -- layout

    def _create_application(self) -> _LiveApplication:
        has_tail = Condition(lambda: bool(self.tail))
        has_status = Condition(lambda: bool(self.status))
        has_attachments = Condition(lambda: bool(self.attachments))
        layout = HSplit(
            [
                ConditionalContainer(_text_window(self._tail_text), has_tail),
                ConditionalContainer(_text_window(self._status_text), has_status),
                ConditionalContainer(_text_window(self._attachments_text), has_attachments),
                Window(
                    BufferControl(
                        self._buffer,
                        search_buffer_control=self._search.control,
                        preview_search=True,
                        input_processors=[AppendAutoSuggestion()],
                    ),
                    get_line_prefix=self._prompt_text,
                    wrap_lines=True,
                    dont_extend_height=True,
                ),
                ConditionalContainer(
                    CompletionsMenu(max_height=_MENU_ROWS, scroll_offset=1), has_completions
                ),
                self._search,
            ]
        )
        return _LiveApplication(
            layout=Layout(layout, focused_element=self._buffer),
            key_bindings=self._keys(),
            style=_menu_style(self._theme),
            erase_when_done=True,
            include_default_pygments_style=False,
            input=self._input,
            output=self._output,
        )

    def _tail_text(self) -> StyleAndTextTuples:
        size = self._output.get_size()
        count = max(min(_MAX_TAIL_ROWS, size.rows // 3), 1)
        rows = [cut(row, size.columns - 1) for row in self.tail[-count:]]
        return _lines(self._theme.formatted(row) for row in rows)

    def _status_text(self) -> StyleAndTextTuples:
        row = cut((Segment("status", self.status),), self._output.get_size().columns - 1)
        return self._theme.formatted(row)

    def _attachments_text(self) -> StyleAndTextTuples:
        row = (Segment("notice", self.attachments),)
        return self._theme.formatted(cut(row, self._output.get_size().columns - 1))

    def _prompt_text(self, line: int, wrapped: int) -> StyleAndTextTuples:
        text = PROMPT if line == wrapped == 0 else " " * len(PROMPT)
        return self._theme.formatted((Segment("person", text),))

    # -- keys

    def _keys(self) -> KeyBindings:
        keys = KeyBindings()
        # In a search (ctrl-R) these keys belong to the search: to accept its result, or to leave.
        is_typing = ~is_searching

        # Text typed before the program reads it ends in a line feed, not in the key Enter.
        @keys.add("c-j", filter=is_typing)
        @keys.add("enter", filter=~completion_is_selected & is_typing)
        def _send(event: KeyPressEvent) -> None:
            self._send()

        @keys.add("enter", filter=completion_is_selected & is_typing)
        def _choose(event: KeyPressEvent) -> None:
            self._buffer.complete_state = None

        @keys.add("escape", "enter")
        def _new_line(event: KeyPressEvent) -> None:
            self._buffer.insert_text("\n")

        @keys.add(Keys.BracketedPaste, filter=is_typing)
        def _paste(event: KeyPressEvent) -> None:
            self._paste(event.data.replace("\r\n", "\n").replace("\r", "\n"))

        @keys.add("c-c", filter=is_typing)
        def _stop(event: KeyPressEvent) -> None:
            if not self._stop():
                self._buffer.reset()

        @keys.add("c-d", filter=is_typing)
        def _leave(event: KeyPressEvent) -> None:
            if self._buffer.text:
                self._buffer.delete()
            else:
                event.app.exit()

        @keys.add("c-x", "c-e", filter=is_typing)
        def _edit(event: KeyPressEvent) -> None:
            event.current_buffer.open_in_editor()

        @keys.add("c-l")
        def _clear(event: KeyPressEvent) -> None:
            event.app.renderer.clear()
            # tmux moves a screen that is wholly erased into its history.
            self.print_rows([()])

        @keys.add("c-o")
        def _details(event: KeyPressEvent) -> None:
            if self.details:
                self.print_rows(self.details)

        return keys

    def _paste(self, text: str) -> None:
        """Insert a pasted text; if it is the path of a file, offer to attach the file."""
        self._buffer.insert_text(text)
        self._completer.pasted = text if pasted_file(text) is not None else ""
        if self._completer.pasted:
            self._buffer.start_completion(select_first=False)

    def _send(self) -> None:
        text = self._buffer.text
        if text.endswith("\\") and self._buffer.document.is_cursor_at_the_end:
            self._buffer.delete_before_cursor()
            self._buffer.insert_text("\n")
            return
        if not text.strip():
            return
        self._buffer.append_to_history()
        self._buffer.reset()
        self._completer.pasted = ""
        if text.strip() == FORGET:
            self.clear_history()
        self._submit(text)

    def clear_history(self) -> None:
        """Forget what was typed, in the file too: a deleted conversation leaves no words there."""
        history = self._buffer.history
        if isinstance(history, FileHistory):
            with open(history.filename, "wb"):
                pass
            self._buffer.history = FileHistory(history.filename)
        else:
            self._buffer.history = InMemoryHistory()
        self._buffer.reset()


def typed_rows(text: str, width: int) -> list[Row]:
    """Return the rows of a text that the person has sent."""
    mark, indent = Segment("person", PROMPT), Segment("", " " * len(PROMPT))
    return wrap([Segment("person", text.rstrip())], width, (mark,), (indent,))


def _open_output() -> Output:
    if os.name == "nt":
        from prompt_toolkit.output import create_output

        return create_output()
    output = BatchedOutput.from_pty(sys.stdout, term=os.environ.get("TERM"))
    # The position of the cursor is not needed, and a slow connection would answer into the input.
    output.enable_cpr = False
    return output


def _text_window(text: Callable[[], StyleAndTextTuples]) -> Window:
    return Window(FormattedTextControl(text), wrap_lines=False, dont_extend_height=True)


def _lines(rows: Iterable[StyleAndTextTuples]) -> StyleAndTextTuples:
    text: StyleAndTextTuples = []
    for index, row in enumerate(rows):
        text += [("", "\n"), *row] if index else row
    return text


def _menu_style(theme: Theme) -> Style:
    """Return the look of the menu: without backgrounds, which differ between terminals."""
    plain = "noreverse bg:default fg:default"
    return Style.from_dict(
        {
            "completion-menu": plain,
            "completion-menu.completion": plain,
            "completion-menu.completion.current": f"{plain} bold reverse",
            "completion-menu.meta.completion": f"{plain} {theme.describe('dim')}",
            "completion-menu.meta.completion.current": f"{plain} bold",
            "scrollbar.background": "bg:default",
            "scrollbar.button": "reverse",
        }
    )

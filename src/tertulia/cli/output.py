"""Printing: tables for people, JSON for programs, and no text that could act on the terminal.

Titles, names and messages are written by people that nobody has vouched for. Every text that is
printed passes `display_text` or `display_line`, and rich gets it as plain text, never as markup.

rich is imported only in the functions that print for people: commands start faster without it.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click

from tertulia.cli.options import CommandOptions, with_program_name
from tertulia.core.text.display_safe import display_json, display_line, display_text
from tertulia.platforms.terminal.pager import print_paged

if TYPE_CHECKING:
    from rich.console import Console, JustifyMethod, RenderableType
    from rich.table import Table
    from rich.text import Text

T = TypeVar("T")

__all__ = [
    "INDENT",
    "ask_yes_no",
    "cell",
    "console",
    "discard_output",
    "display_json",
    "display_line",
    "display_text",
    "facts_table",
    "new_table",
    "paged_console",
    "plain_text",
    "print_indented",
    "print_items",
    "print_json",
    "print_renderables",
    "print_result",
    "print_text",
    "progress_bar",
    "spinner",
]

# Wide enough that nothing is cut in a pipe or a file, where no terminal sets a width.
_UNLIMITED_WIDTH = 10_000
# Shorter work is finished before anybody could read the message.
_SPINNER_DELAY_SECONDS = 0.5

INDENT = "    "
_MIN_TEXT_WIDTH = 20


def discard_output() -> None:
    """Send further output to the null device.

    Python flushes the standard output once more when it ends, and would report that error too.
    """
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, io.UnsupportedOperation):
        return


def print_json(value: Any) -> None:
    """Print a value as JSON on the standard output."""
    click.echo(display_json(value))


def console(options: CommandOptions, *, errors: bool = False) -> Console:
    """Return a console on the standard output, or on the standard error output with `errors`."""
    from rich.console import Console

    class PipeConsole(Console):
        """Raises BrokenPipeError, because the program chooses its exit code itself."""

        def on_broken_pipe(self) -> NoReturn:
            raise BrokenPipeError

    stream = sys.stderr if errors else sys.stdout
    has_width = stream.isatty() or "COLUMNS" in os.environ
    return PipeConsole(
        file=stream,
        width=None if has_width else _UNLIMITED_WIDTH,
        no_color=options.no_color or None,
        markup=False,
        emoji=False,
        highlight=False,
    )


def print_text(options: CommandOptions, text: str) -> None:
    """Print a text for people, with everything that acts on a terminal replaced."""
    console(options).print(display_text(text), soft_wrap=True)


def print_result(options: CommandOptions, value: Any, sentence: str) -> None:
    """Print a value with `--json`, else a sentence that says the same."""
    if options.json:
        print_json(value)
    else:
        print_text(options, sentence)


def print_items(
    options: CommandOptions,
    items: Sequence[T],
    to_dict: Callable[[T], dict[str, Any]],
    to_table: Callable[[Sequence[T]], RenderableType],
    nothing: str,
) -> None:
    """Print items as JSON with `--json`, else as a table, or the text `nothing` without any."""
    if options.json:
        print_json([to_dict(item) for item in items])
    elif not items:
        print_text(options, with_program_name(nothing))
    else:
        print_renderables(options, to_table(items))


def print_renderables(options: CommandOptions, *renderables: RenderableType) -> None:
    """Print tables and texts, one below the other; what is longer than the screen is paged."""
    with paged_console(options) as target:
        for renderable in renderables:
            target.print(renderable)


@contextmanager
def paged_console(options: CommandOptions) -> Iterator[Console]:
    """Yield a console on the standard output; what is longer than the screen goes to a pager."""
    target = console(options)
    if not target.is_terminal or not sys.stdin.isatty():
        yield target
        return
    with target.capture() as capture:
        yield target
    print_paged(capture.get())


def print_indented(target: Console, text: Text) -> None:
    """Print a text with every line indented, also those that had to be wrapped."""
    from rich.text import Text

    for line in text.wrap(target, max(_MIN_TEXT_WIDTH, target.width - len(INDENT))):
        line.rstrip()
        target.print(Text(INDENT if line.plain else "").append_text(line))


def new_table(*headings: str, elastic: str, numbers: Collection[str] = ()) -> Table:
    """Return an empty table. Only column `elastic` shrinks; columns in `numbers` align right."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for heading in headings:
        justify: JustifyMethod = "right" if heading in numbers else "left"
        table.add_column(heading, justify=justify, no_wrap=heading != elastic, overflow="ellipsis")
    return table


def facts_table(facts: Iterable[tuple[str, str | None]], bold: Collection[str] = ()) -> Table:
    """Return names and values, a row for each; facts without a value are left out."""
    from rich.table import Table

    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in facts:
        if value:
            table.add_row(name, plain_text(value, style="bold" if name in bold else ""))
    return table


def cell(text: str, style: str = "") -> Text:
    """Return one line for a table; it is cut at the end of its column."""
    from rich.text import Text

    return Text(display_line(text), style=style, no_wrap=True, overflow="ellipsis")


def plain_text(text: str, style: str = "") -> Text:
    """Return a text without line breaks; it is wrapped at the end of the screen."""
    from rich.text import Text

    return Text(display_line(text), style=style)


@contextmanager
def spinner(options: CommandOptions, label: str) -> Iterator[None]:
    """Show `label` with a spinner while the block runs, on a terminal and after half a second."""
    if not _is_stderr_terminal():
        yield
        return
    from threading import Timer

    status = console(options, errors=True).status(label)
    timer = Timer(_SPINNER_DELAY_SECONDS, status.start)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()  # a start that is already running must come before the stop
        status.stop()


@contextmanager
def progress_bar(options: CommandOptions, label: str) -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar on stderr; yield the function to call with (done, total)."""
    from rich.progress import Progress

    target = console(options, errors=True)
    with Progress(console=target, transient=True, disable=not _is_stderr_terminal()) as progress:
        task = progress.add_task(label, total=None)

        def advance(done: int, total: int) -> None:
            progress.update(task, completed=done, total=total)

        yield advance


def _is_stderr_terminal() -> bool:
    """Return whether somebody can see progress; it is printed on stderr."""
    return sys.stderr.isatty()


def ask_yes_no(question: str) -> bool | None:
    """Ask on stderr and return the answer, or None if the standard input has ended."""
    click.echo(f"{question} [y/N] ", err=True, nl=False)
    answer = sys.stdin.readline()
    if not answer:
        click.echo(err=True)
        return None
    return answer.strip().lower() in ("y", "yes")

"""Printing: tables for people, JSON for programs, and nothing that a stranger could do with it.

Titles, names and messages are written by people nobody has vouched for. All text that is printed
passes `harmless` or `one_line`, and is given to rich as plain text, never as its markup.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from tertulia.cli.options import Request
from tertulia.core.text.display_safe import (
    harmless,
    one_line,
    to_json,
)

if TYPE_CHECKING:
    from rich.console import Console, JustifyMethod, RenderableType
    from rich.table import Table
    from rich.text import Text

__all__ = [
    "bar",
    "cell",
    "confirmed",
    "console",
    "harmless",
    "one_line",
    "plain",
    "print_json",
    "say",
    "show",
    "show_indented",
    "table",
    "to_json",
    "waiting",
]

# Wide enough that nothing is cut where no terminal sets a width: in a pipe or a file.
_ENDLESS = 10_000
# Shorter work is done before an eye could read what it was.
_NOTICEABLE_SECONDS = 0.5

_INDENT = "    "
_NARROWEST = 20


def print_json(value: Any) -> None:
    click.echo(to_json(value))


def console(request: Request, *, errors: bool = False) -> Console:
    """Where to print for people."""
    from tertulia.cli.screen import Screen

    stream = sys.stderr if errors else sys.stdout
    has_width = stream.isatty() or "COLUMNS" in os.environ
    return Screen(
        file=stream,
        width=None if has_width else _ENDLESS,
        no_color=request.no_color or None,
        markup=False,
        emoji=False,
        highlight=False,
    )


def say(request: Request, text: str) -> None:
    """Print a sentence."""
    console(request).print(harmless(text), soft_wrap=True)


def show(request: Request, *what: RenderableType) -> None:
    """Print tables and texts, one below the other."""
    screen = console(request)
    for one in what:
        screen.print(one)


def show_indented(screen: Console, text: Text) -> None:
    """Print a text of several lines a little to the right, also where a line has to be broken."""
    from rich.text import Text

    for line in text.wrap(screen, max(_NARROWEST, screen.width - len(_INDENT))):
        line.rstrip()
        screen.print(Text(_INDENT if line.plain else "").append_text(line))


def table(*headings: str, elastic: str, numbers: Collection[str] = ()) -> Table:
    """An empty table. Only column `elastic` gives way; those in `numbers` stand right."""
    from rich.table import Table

    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for heading in headings:
        justify: JustifyMethod = "right" if heading in numbers else "left"
        made.add_column(heading, justify=justify, no_wrap=heading != elastic, overflow="ellipsis")
    return made


def cell(text: str, style: str = "") -> Text:
    """One line for a table, cut where the column ends."""
    from rich.text import Text

    return Text(one_line(text), style=style, no_wrap=True, overflow="ellipsis")


def plain(text: str, style: str = "") -> Text:
    """One line, broken where the screen ends."""
    from rich.text import Text

    return Text(one_line(text), style=style)


@contextmanager
def waiting(request: Request, words: str) -> Iterator[None]:
    """Show that something goes on, if it goes on for long and a person looks."""
    if not _is_watched():
        yield
        return
    from threading import Timer

    status = console(request, errors=True).status(words)
    timer = Timer(_NOTICEABLE_SECONDS, status.start)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()  # a start that is under way comes before the stop
        status.stop()


@contextmanager
def bar(request: Request, words: str) -> Iterator[Callable[[int, int], None]]:
    """A progress bar on the terminal of the errors; gives what is called with (done, total)."""
    from rich.progress import Progress

    screen = console(request, errors=True)
    with Progress(console=screen, transient=True, disable=not _is_watched()) as progress:
        task = progress.add_task(words, total=None)

        def advance(done: int, total: int) -> None:
            progress.update(task, completed=done, total=total)

        yield advance


def _is_watched() -> bool:
    """Whether a person sees the progress of what goes on."""
    return sys.stderr.isatty()


def confirmed(question: str) -> bool | None:
    """What a person answers; None where nobody is there to answer."""
    click.echo(f"{question} [y/N] ", err=True, nl=False)
    answer = sys.stdin.readline()
    if not answer:
        click.echo(err=True)
        return None
    return answer.strip().lower() in ("y", "yes")

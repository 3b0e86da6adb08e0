"""`tertulia doctor`: whether all that a store needs is there, and what to do where it is not."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal, NamedTuple

import click

from tertulia.cli import (
    format,
    locations,
    output,
)
from tertulia.cli.errors import NO
from tertulia.cli.options import Command, Request, json_option
from tertulia.errors import Error
from tertulia.storage.connect import (
    is_server,
    look,
    public_name,
)
from tertulia.version import __version__

if TYPE_CHECKING:
    from rich.text import Text

    from tertulia.storage.inspection import Inspection

State = Literal["ok", "warning", "problem"]

MARKS: dict[State, tuple[str, str]] = {
    "ok": ("✓", "green"),
    "warning": ("!", "yellow"),
    "problem": ("✗", "red"),
}

_PLENTY = 1_000_000_000
_SCARCE = 100_000_000
# The indexer is behind by some messages whenever somebody writes; by this many it is not running.
_LAG = 10_000

# A store of this size is read in less than a second.
_QUICK = 100_000_000

# A race between a checkpoint and a commit can lose a committed page in a file that several
# programs write to: https://sqlite.org/wal.html#walresetbug. Two older lines got the mend too.
_FIRST_WITH_BUG = (3, 7, 0)
_FIRST_MENDED = (3, 51, 3)
_MENDED_LINES = {(3, 44): 6, (3, 50): 7}


class Finding(NamedTuple):
    """One thing that was looked at."""

    name: str
    state: State
    detail: str
    advice: str | None = None


@click.command(cls=Command)
@json_option
@click.pass_obj
def doctor(request: Request) -> None:
    """Look whether all is well, and tell what to do where it is not.

    Nothing is changed. Ends with 1 if there is a problem (✗); a warning (!) is none.
    """
    with output.waiting(request, "Looking …"):
        findings = list(examine(locations.where(request)))
    has_problem = any(finding.state == "problem" for finding in findings)
    if request.json:
        told = [finding._asdict() for finding in findings]
        output.print_json({"healthy": not has_problem, "findings": told})
    else:
        _print(request, findings)
    if has_problem:
        click.get_current_context().exit(NO)


def examine(where: str) -> Iterator[Finding]:
    """Everything there is to tell about this machine and a store."""
    yield Finding("tertulia", "ok", __version__)
    yield _python()
    yield from _sqlite()
    yield _zone()
    yield _prices()
    yield from _store(where)


def has_wal_reset_bug(version: str) -> bool:
    """Whether SQLite of that version can damage a store that several programs write to."""
    numbers = tuple(int(part) for part in version.split(".")[:3])
    if not _FIRST_WITH_BUG <= numbers < _FIRST_MENDED:
        return False
    mended = _MENDED_LINES.get(numbers[:2])  # type: ignore[arg-type]
    return mended is None or numbers[2] < mended


def _python() -> Finding:
    return Finding("Python", "ok", f"{sys.version.split()[0]} ({sys.executable})")


def _sqlite() -> Iterator[Finding]:
    import apsw

    version = apsw.sqlite_lib_version()
    if has_wal_reset_bug(version):
        yield Finding(
            "SQLite",
            "warning",
            f"{version} can damage a store that several programs write to (WAL-reset bug)",
            "Get a newer one with: pip install --upgrade apsw",
        )
    else:
        yield Finding("SQLite", "ok", version)
    yield Finding("apsw", "ok", apsw.apsw_version())


def _zone() -> Finding:
    try:
        return Finding("time zone", "ok", str(locations.zone()))
    except Error as problem:
        return _problem("time zone", problem)


def _prices() -> Finding:
    try:
        import genai_prices
    except ImportError:
        return Finding(
            "prices",
            "warning",
            "there is no price list: costs that nobody reports stay unknown",
            "Get one with: pip install 'tertulia[prices]'",
        )
    version = getattr(genai_prices, "__version__", "")
    return Finding("prices", "ok", f"genai-prices {version}".strip())


def _store(where: str) -> Iterator[Finding]:
    if is_server(where):
        yield from _server(where)
        return
    path = public_name(where)
    try:
        is_missing = locations.is_missing(where)
        if not is_missing and not os.path.isfile(path):
            locations.opened(where).close()  # the library says what is wrong with it
    except Error as problem:
        yield _problem("store", problem)
        return
    if is_missing:
        yield Finding(
            "store", "warning", f"there is none at {path}", "Make it with: tertulia store migrate"
        )
    else:
        yield Finding("store", "ok", path)
        yield from _access(path)
        yield from _inside(path)
    yield from _folder(path)


def _server(where: str) -> Iterator[Finding]:
    try:
        found = look(where)
    except Error as problem:
        yield _problem("store", problem)
        return
    yield Finding("PostgreSQL", "ok", f"{found.server}")
    if not found.applied:
        advice = "Make it with: tertulia store migrate"
        yield Finding("store", "warning", f"there is none in {public_name(where)}", advice)
        return
    yield Finding("store", "ok", public_name(where))
    yield _schema(found)
    yield Finding("size", "ok", format.size(found.size or 0))
    yield from _counts(found)


def _counts(found: Inspection) -> Iterator[Finding]:
    if found.messages is not None:
        yield _contents(found)
        yield _deliveries(found)
        yield _index(found)


def _access(path: str) -> Iterator[Finding]:
    rights = {"readable": os.R_OK, "writable": os.W_OK}
    lacking = [name for name, right in rights.items() if not os.access(path, right)]
    if lacking:
        yield Finding(
            "access",
            "problem",
            f"the file is not {' and not '.join(lacking)}",
            "Give this user the right to read and write the file and its folder.",
        )
    elif os.name == "posix" and os.stat(path).st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        yield Finding(
            "access",
            "warning",
            "readable and writable, but not for this user only",
            f"Keep the conversations private with: chmod 600 {path}",
        )
    else:
        yield Finding("access", "ok", "readable and writable, for this user only")


def _inside(path: str) -> Iterator[Finding]:
    try:
        found = look(path, for_damage=_size(path) <= _QUICK)
    except Error as problem:
        yield _problem("schema", problem)
        return
    yield _schema(found)
    yield _durability(found)
    yield Finding("size", "ok", format.size(_size(path)))
    yield _integrity(path, found)
    yield from _counts(found)


def _schema(found: Inspection) -> Finding:
    if not found.pending:
        return Finding("schema", "ok", f"{found.applied[-1]}, up to date")
    return Finding(
        "schema",
        "warning",
        f"not yet applied: {', '.join(found.pending)}",
        "Bring it up to date with: tertulia store migrate",
    )


def _durability(found: Inspection) -> Finding:
    if found.journal == "wal":
        words = "what was acknowledged survives a power loss, unless opened with durability=fast"
        return Finding("durability", "ok", words)
    return Finding(
        "durability",
        "warning",
        f"the journal is {found.journal!r}, not the write-ahead log",
        "It is switched over when the store is next written to.",
    )


def _integrity(path: str, found: Inspection) -> Finding:
    if found.damage is not None:
        return Finding(
            "integrity",
            "problem",
            f"the file is damaged: {found.damage}",
            "Keep the file, run: tertulia store check, and restore the newest backup.",
        )
    if _size(path) <= _QUICK:
        return Finding("integrity", "ok", "no damage was found")
    return Finding("integrity", "ok", "too large to look at here; see: tertulia store check")


def _contents(found: Inspection) -> Finding:
    sessions = (found.current or 0) + (found.ended or 0)
    words = f"sessions {sessions:,} (current {found.current:,}), messages {found.messages:,}"
    words += f", people {found.people:,}, model calls {found.calls:,}"
    return Finding("contents", "ok", words)


def _deliveries(found: Inspection) -> Finding:
    """What did not arrive. Nothing sends it again by itself, so somebody has to know."""
    counts = {
        "refused or given up": found.dead,
        "perhaps not arrived": found.unknown,
        "messages that could not be answered": found.given_up,
    }
    words = ", ".join(f"{number:,} {what}" for what, number in counts.items() if number)
    if not words:
        return Finding("deliveries", "ok", "nothing is left undelivered")
    return Finding(
        "deliveries",
        "warning",
        words,
        "With `tertulia run` and [http]: GET /deliveries and /inbox say why; POST"
        " /deliveries/ID/settle sends one again, or lays it aside.",
    )


def _index(found: Inspection) -> Finding:
    behind = found.unindexed or 0
    if behind <= _LAG:
        words = "up to date" if not behind else f"{behind:,} messages behind, to be caught up"
        return Finding("search", "ok", words)
    return Finding(
        "search",
        "warning",
        f"{behind:,} messages are not indexed yet",
        "The next `tertulia sessions search` catches up; it may take a while.",
    )


def _folder(path: str) -> Iterator[Finding]:
    """The disk, seen from the nearest folder that exists."""
    import shutil

    folder = locations.nearest_folder(path)
    free = shutil.disk_usage(folder).free
    if free < _SCARCE:
        state: State = "problem"
    else:
        state = "ok" if free >= _PLENTY else "warning"
    advice = None if state == "ok" else f"Free some space for {folder}."
    yield Finding("disk", state, f"{format.size(free)} free", advice)
    if not os.access(folder, os.W_OK):
        yield Finding(
            "folder",
            "problem",
            f"{folder} is not writable, and the store keeps files beside itself",
            "Give this user the right to write to the folder.",
        )


def _size(path: str) -> int:
    """The store with its log."""
    return sum(os.path.getsize(part) for part in (path, f"{path}-wal") if os.path.exists(part))


def _problem(name: str, problem: Error) -> Finding:
    return Finding(name, "problem", problem.message, problem.hint)


def _print(request: Request, findings: list[Finding]) -> None:
    from rich.table import Table

    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for finding in findings:
        mark, color = MARKS[finding.state]
        table.add_row(output.plain(mark, color), output.plain(finding.name), _words(finding))
    output.show(request, table)


def _words(finding: Finding) -> Text:
    words = output.plain(finding.detail)
    if finding.advice is not None:
        words.append(f"\n{output.one_line(finding.advice)}", style="cyan")
    return words

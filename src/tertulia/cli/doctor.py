"""`tertulia doctor`: check the machine and the store, and advise what to do about problems."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from tertulia import __version__
from tertulia.cli import format, locations, output
from tertulia.cli.errors import NEGATIVE_RESULT
from tertulia.cli.finding import Finding, State
from tertulia.cli.options import CliCommand, CommandOptions, json_option, with_program_name
from tertulia.errors import Error
from tertulia.install_command import install_command, upgrade_command
from tertulia.records.machine_zone import machine_zone
from tertulia.storage.connect import inspect_store, is_server, public_name

if TYPE_CHECKING:
    from rich.text import Text

    from tertulia.storage.inspection import Inspection

_NARROW_COLUMNS = 50  # below it the details stand under the names
MARKS: dict[State, tuple[str, str]] = {
    "ok": ("✓", "green"),
    "warning": ("!", "yellow"),
    "problem": ("✗", "red"),
}

_ENOUGH_FREE_BYTES = 1_000_000_000
_MIN_FREE_BYTES = 100_000_000
# The indexer is always some messages behind while people write; at this many it is not running.
_MAX_INDEX_LAG = 10_000

# A store of up to this size is checked for damage in less than a second.
_MAX_CHECKED_BYTES = 100_000_000

# A race between a checkpoint and a commit can lose a committed page in a file that several
# programs write to: https://sqlite.org/wal.html#walresetbug. Two older series got the fix too.
_FIRST_WITH_BUG = (3, 7, 0)
_FIRST_FIXED = (3, 51, 3)
_FIXED_PATCH_BY_SERIES = {(3, 44): 6, (3, 50): 7}


@click.command(cls=CliCommand)
@click.option("--ask", "is_asked", is_flag=True, help="Also let the agent answer a short question.")
@json_option
@click.pass_obj
def doctor(options: CommandOptions, is_asked: bool) -> None:
    """Check the machine, the agent and the store, and advise what to do about problems.

    Nothing is changed. A model's server is asked for its list of models, which costs nothing; with
    --ask the model answers one short question, which is not stored.

    Exits with 1 if there is a problem (✗), but not for a warning (!).
    """
    with output.spinner(options, "Checking …"):
        from tertulia.cli.agent_check import ask_agent, check_configuration

        findings = list(check_configuration(options))
        if is_asked and not any(finding.state == "problem" for finding in findings):
            findings.append(ask_agent(options))
        is_readable = not any(f.name == "configuration" and f.state == "problem" for f in findings)
        # A wrong configuration may name the wrong store; only one that was named is looked at.
        location = locations.store_location(options) if is_readable else options.store
        findings = [*examine(location), *findings]
        good = {finding.name for finding in findings if finding.state == "ok"}
        if is_readable and {"store", "schema", "time zone"} <= good:
            findings += _accounts(options)
    has_problem = any(finding.state == "problem" for finding in findings)
    if options.json:
        items = [finding._asdict() for finding in findings]
        output.print_json({"healthy": not has_problem, "findings": items})
    else:
        _print_findings(options, findings)
    if has_problem:
        click.get_current_context().exit(NEGATIVE_RESULT)


def examine(location: str | None) -> Iterator[Finding]:
    """Run all checks of this machine and of the store at a location, if it is known."""
    yield Finding("tertulia", "ok", __version__)
    yield _python()
    yield from _sqlite()
    yield _zone()
    yield _prices()
    if location is not None:
        yield from _store(location)


def _accounts(options: CommandOptions) -> Iterator[Finding]:
    """Report the accounts of chat apps, as the running gateways see them."""
    from tertulia.cli.platforms import account_statuses

    for status in account_statuses(options):
        name = f"{status.name}/{status.account}" if status.account else status.name
        if status.state != "problem":
            yield Finding(name, "ok", status.state)
            continue
        check = f"tertulia platforms check {status.name}"
        advice = f"{check} --account {status.account}" if status.account else check
        yield Finding(name, "problem", status.problem or "it does not listen", f"Ask it: {advice}")


def has_wal_reset_bug(version: str) -> bool:
    """Return whether that SQLite version can damage a store that several programs write to."""
    numbers = tuple(int(part) for part in version.split(".")[:3])
    if not _FIRST_WITH_BUG <= numbers < _FIRST_FIXED:
        return False
    fixed_patch = _FIXED_PATCH_BY_SERIES.get(numbers[:2])  # type: ignore[arg-type]
    return fixed_patch is None or numbers[2] < fixed_patch


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
            f"Install a newer one: {upgrade_command()}",
        )
    else:
        yield Finding("SQLite", "ok", version)
    yield Finding("apsw", "ok", apsw.apsw_version())


def _zone() -> Finding:
    try:
        return Finding("time zone", "ok", str(machine_zone()))
    except Error as problem:
        return _finding_from("time zone", problem)


def _prices() -> Finding:
    try:
        import genai_prices
    except ImportError:
        return Finding(
            "prices",
            "warning",
            "there is no price list: costs that the provider does not report stay unknown",
            f"Install one: {install_command('prices')}",
        )
    version = getattr(genai_prices, "__version__", "")
    return Finding("prices", "ok", f"genai-prices {version}".strip())


def _store(location: str) -> Iterator[Finding]:
    if is_server(location):
        yield from _server(location)
        return
    path = public_name(location)
    try:
        is_missing = locations.is_store_missing(location)
        if not is_missing and not os.path.isfile(path):
            locations.open_store(location).close()  # raises the error that says what is wrong
    except Error as problem:
        yield _finding_from("store", problem)
        return
    if is_missing:
        yield Finding(
            "store",
            "warning",
            f"there is none at {path}",
            f"It is made when you first talk: tertulia {locations.store_option(location)}chat",
        )
    else:
        yield Finding("store", "ok", path)
        yield from _access(path)
        yield from _contents_of_file(path)
    yield from _folder(path)


def _server(location: str) -> Iterator[Finding]:
    try:
        inspection = inspect_store(location)
    except Error as problem:
        yield _finding_from("store", problem)
        return
    yield Finding("PostgreSQL", "ok", f"{inspection.server}")
    if not inspection.applied:
        advice = "It is made when you first talk: tertulia chat"
        yield Finding("store", "warning", f"there is none in {public_name(location)}", advice)
        return
    yield Finding("store", "ok", public_name(location))
    yield _schema(inspection)
    yield Finding("size", "ok", format.byte_size(inspection.size or 0))
    yield from _counts(inspection)


def _counts(inspection: Inspection) -> Iterator[Finding]:
    if inspection.messages is not None:
        yield _contents(inspection)
        yield _deliveries(inspection)
        yield _index(inspection)


def _access(path: str) -> Iterator[Finding]:
    rights = {"readable": os.R_OK, "writable": os.W_OK}
    missing = [name for name, right in rights.items() if not os.access(path, right)]
    if missing:
        yield Finding(
            "access",
            "problem",
            f"the file is not {' and not '.join(missing)}",
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


def _contents_of_file(path: str) -> Iterator[Finding]:
    try:
        inspection = inspect_store(path, for_damage=_size(path) <= _MAX_CHECKED_BYTES)
    except Error as problem:
        yield _finding_from("schema", problem)
        return
    yield _schema(inspection)
    yield _durability(inspection)
    yield Finding("size", "ok", format.byte_size(_size(path)))
    yield _integrity(path, inspection)
    yield from _counts(inspection)


def _schema(inspection: Inspection) -> Finding:
    if not inspection.pending:
        return Finding("schema", "ok", f"{inspection.applied[-1]}, up to date")
    return Finding(
        "schema",
        "warning",
        f"not yet applied: {', '.join(inspection.pending)}",
        "Update it with: tertulia store migrate",
    )


def _durability(inspection: Inspection) -> Finding:
    if inspection.journal == "wal":
        detail = "acknowledged writes survive a power loss, unless opened with durability=fast"
        return Finding("durability", "ok", detail)
    return Finding(
        "durability",
        "warning",
        f"the journal is {inspection.journal!r}, not the write-ahead log",
        "The next write to the store changes it.",
    )


def _integrity(path: str, inspection: Inspection) -> Finding:
    if inspection.damage is not None:
        return Finding(
            "integrity",
            "problem",
            f"the file is damaged: {inspection.damage}",
            "Keep the file, run: tertulia store check, and restore the newest backup.",
        )
    if _size(path) <= _MAX_CHECKED_BYTES:
        return Finding("integrity", "ok", "no damage was found")
    return Finding("integrity", "ok", "too large to check here; run: tertulia store check")


def _contents(inspection: Inspection) -> Finding:
    sessions = (inspection.current or 0) + (inspection.ended or 0)
    detail = f"sessions {sessions:,} (current {inspection.current:,})"
    detail += f", messages {inspection.messages:,}, people {inspection.people:,}"
    detail += f", model calls {inspection.calls:,}"
    return Finding("contents", "ok", detail)


def _deliveries(inspection: Inspection) -> Finding:
    """Report messages that did not arrive: nothing sends them again without a person."""
    counts = {
        "refused or given up": inspection.dead,
        "perhaps not arrived": inspection.unknown,
        "messages that could not be answered": inspection.given_up,
    }
    detail = ", ".join(f"{number:,} {label}" for label, number in counts.items() if number)
    if not detail:
        return Finding("deliveries", "ok", "nothing is undelivered")
    return Finding(
        "deliveries",
        "warning",
        detail,
        "With `tertulia run` and [http]: GET /deliveries and /inbox say why; POST"
        " /deliveries/ID/settle sends one again, or discards it.",
    )


def _index(inspection: Inspection) -> Finding:
    behind = inspection.unindexed or 0
    if behind <= _MAX_INDEX_LAG:
        detail = "up to date" if not behind else f"{behind:,} messages behind, to be indexed"
        return Finding("search", "ok", detail)
    return Finding(
        "search",
        "warning",
        f"{behind:,} messages are not indexed yet",
        "The next `tertulia sessions search` indexes them; it may take a while.",
    )


def _folder(path: str) -> Iterator[Finding]:
    """Check the disk and the rights, in the nearest folder that exists."""
    import shutil

    folder = locations.nearest_existing_folder(path)
    free = shutil.disk_usage(folder).free
    if free < _MIN_FREE_BYTES:
        state: State = "problem"
    else:
        state = "ok" if free >= _ENOUGH_FREE_BYTES else "warning"
    advice = None if state == "ok" else f"Free some space for {folder}."
    yield Finding("disk", state, f"{format.byte_size(free)} free", advice)
    if not os.access(folder, os.W_OK):
        yield Finding(
            "folder",
            "problem",
            f"{folder} is not writable, and the store keeps files beside itself",
            "Give this user the right to write to the folder.",
        )


def _size(path: str) -> int:
    """Return the size of the store with its write-ahead log."""
    return sum(os.path.getsize(part) for part in (path, f"{path}-wal") if os.path.exists(part))


def _finding_from(name: str, problem: Error) -> Finding:
    return Finding(name, "problem", problem.message, problem.hint)


def _print_findings(options: CommandOptions, findings: list[Finding]) -> None:
    from rich.table import Table

    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    is_narrow = output.console(options).width < _NARROW_COLUMNS
    if not is_narrow:
        table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for finding in findings:
        mark, color = MARKS[finding.state]
        name, details = output.plain_text(finding.name), _details(finding)
        texts = [name.append("\n").append_text(details)] if is_narrow else [name, details]
        table.add_row(output.plain_text(mark, color), *texts)
    output.print_renderables(options, table)


def _details(finding: Finding) -> Text:
    text = output.plain_text(finding.detail)
    if finding.advice is not None:
        advice = output.display_line(with_program_name(finding.advice))
        text.append(f"\n{advice}", style="cyan")
    return text

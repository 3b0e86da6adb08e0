"""`tertulia import archive|hermes|nanobot|openclaw|jsonl`: bring conversations into the store."""

from __future__ import annotations

import os

import click

from tertulia.cli import locations, output
from tertulia.cli.errors import NEGATIVE_RESULT
from tertulia.cli.options import CommandGroup, CommandOptions, json_option
from tertulia.errors import NotFound
from tertulia.transfer import Kind, Report, import_from

# Only this many problems are printed for people; --json has all of them.
_MAX_PRINTED_PROBLEMS = 20


@click.group("import", cls=CommandGroup)
def import_() -> None:
    """Import conversations into the store."""


@import_.command()
@click.argument("path", metavar="FILE", type=click.Path())
@click.option("--dry-run", is_flag=True, help="Read and check all of FILE, and store nothing.")
@json_option
@click.pass_obj
def archive(options: CommandOptions, path: str, dry_run: bool) -> None:
    """Restore an archive made by `tertulia export` into an empty store.

    If anything in FILE is wrong, nothing is stored.
    """
    from tertulia.transfer import archive as archives

    locations.require_utf8(path)
    archives.read_manifest(path)  # fails before a store is created for a file that is no archive
    with output.progress_bar(options, "Checking" if dry_run else "Restoring") as progress:
        if dry_run and locations.is_store_missing(locations.store_location(options)):
            result = archives.check(path, progress=progress)
        else:
            opened = (
                locations.open_existing_store(options)
                if dry_run
                else locations.open_or_create_store(options)
            )
            with opened as store:
                result = archives.restore(store, path, dry_run=dry_run, progress=progress)
    sessions, messages = result.rows("sessions"), result.rows("messages")
    if options.json:
        report = {"sessions": sessions, "messages": messages, "skipped": 0, "problems": []}
        output.print_json({**report, "dry_run": dry_run, "made_at": result.made_at.isoformat()})
        return
    made_at = f"{result.made_at:%Y-%m-%d %H:%M} UTC"
    counts = f"{_count(sessions, 'session')} with {_count(messages, 'message')}"
    if dry_run:
        output.print_text(
            options, f"{path} is complete: {counts}, as of {made_at}. Nothing was stored."
        )
    else:
        store_location = locations.store_location(options)
        output.print_text(options, f"Restored {counts}, as of {made_at}, to {store_location}.")


def _add_import_command(kind: Kind, description: str) -> None:
    """Add the command that imports the sessions of another system."""

    @import_.command(kind, help=description)
    @click.argument("path", metavar="PATH", type=click.Path())
    @click.option("--dry-run", is_flag=True, help="Read everything and store nothing.")
    @click.option(
        "--zone",
        metavar="NAME",
        help="Time zone of times that name none, such as Europe/Madrid. Default: this machine's "
        "zone.",
    )
    @json_option
    @click.pass_obj
    def command(options: CommandOptions, path: str, dry_run: bool, zone: str | None) -> None:
        report = _import(options, kind, path, dry_run=dry_run, zone=zone)
        if options.json:
            output.print_json(report.to_dict())
        else:
            _print_report(options, report, dry_run=dry_run)
        if not (report.is_whole and (report.sessions or report.skipped)):
            click.get_current_context().exit(NEGATIVE_RESULT)


_add_import_command(
    "hermes", "Import Hermes Agent's sessions. PATH is its home folder, such as ~/.hermes."
)
_add_import_command("nanobot", "Import nanobot's sessions. PATH is its folder, such as ~/.nanobot.")
_add_import_command(
    "openclaw", "Import OpenClaw's sessions. PATH is its folder, such as ~/.openclaw."
)
_add_import_command(
    "jsonl", "Import OpenAI chat messages. PATH is a .jsonl file or a folder of them."
)


def _import(
    options: CommandOptions, kind: Kind, path: str, *, dry_run: bool, zone: str | None
) -> Report:
    is_missing = locations.is_store_missing(locations.store_location(options))
    has_sessions = True
    if is_missing:  # no store is created for nothing
        path, preview = _find_folder(kind, path, zone)
        has_sessions = preview.sessions > 0
    with output.progress_bar(options, "Importing") as progress:
        if is_missing and (dry_run or not has_sessions):
            return import_from(None, kind, path, dry_run=True, progress=progress, zone=zone)
        with locations.open_or_create_store(options) as store:
            report = import_from(store, kind, path, dry_run=dry_run, progress=progress, zone=zone)
            if _is_empty(report):
                path, _ = _find_folder(kind, path, zone)
                report = import_from(store, kind, path, dry_run=dry_run, zone=zone)
            return report


# The files of each system, for the error if there is none of them.
_LOOKED_FOR = {
    "hermes": "sessions/*.jsonl, sessions/sessions.json and state.db",
    "nanobot": "workspace/sessions/*.jsonl and sessions/*.jsonl",
    "openclaw": "agents/NAME/sessions/*.jsonl",
    "jsonl": "*.jsonl",
}
# What makes a folder the home of a system. The folder above a named one is read only if it is such
# a home: otherwise all files below it, such as those of a whole home folder, would be read.
_HOME_ENTRIES = {
    "hermes": ("sessions", "sessions.json", "state.db"),
    "nanobot": ("sessions", "workspace/sessions"),
    "openclaw": ("agents", "sessions"),
}
_MAX_CANDIDATES = 50


def _find_folder(kind: Kind, path: str, zone: str | None) -> tuple[str, Report]:
    """Return the folder that has sessions: this one, else the only one just below or above it.

    Also return the report of a dry run. Raise `NotFound`, which says what was looked for, if there
    is no such folder.
    """
    report = import_from(None, kind, path, dry_run=True, zone=zone)
    if not _is_empty(report):
        return path, report
    reports = {
        folder: import_from(None, kind, folder, dry_run=True, zone=zone)
        for folder in _neighbours(kind, path)
    }
    matching = [(folder, report) for folder, report in reports.items() if not _is_empty(report)]
    if len(matching) == 1:
        return matching[0]
    looked_for = f"Looked for {_LOOKED_FOR[kind]} in {path} and in the folders around it."
    if matching:
        folders = ", ".join(folder for folder, _ in matching)
        raise NotFound(
            f"There are sessions of {kind} in several folders: {folders}.",
            hint="Name one of them.",
        )
    raise NotFound(
        f"There are no sessions of {kind} in {path}. {looked_for}",
        hint=f"Give the folder of {kind}: tertulia import {kind} --help names the usual one.",
    )


def _is_empty(report: Report) -> bool:
    return not (report.sessions or report.skipped or report.problems)


def _neighbours(kind: Kind, path: str) -> list[str]:
    """Return the folders just below a folder, and the one above it if it looks like a home."""
    if kind == "jsonl" or not os.path.isdir(path):
        return []
    below = sorted(entry.path for entry in os.scandir(path) if entry.is_dir(follow_symlinks=False))
    above = os.path.dirname(os.path.abspath(path))
    is_home = any(os.path.exists(os.path.join(above, name)) for name in _HOME_ENTRIES[kind])
    return [*below[:_MAX_CANDIDATES], *([above] if is_home else [])]


def _print_report(options: CommandOptions, report: Report, *, dry_run: bool) -> None:
    verb = "Would import" if dry_run else "Imported"
    sessions = _count(report.sessions, "session")
    messages = _count(report.messages, "message")
    output.print_text(options, f"{verb} {sessions} with {messages}.")
    if report.skipped:
        verb = "was" if report.skipped == 1 else "were"
        skipped = _count(report.skipped, "session")
        output.print_text(options, f"{skipped} {verb} imported before.")
    if not report.problems:
        return
    output.print_text(options, f"{_count(len(report.problems), 'problem')}:")
    for problem in report.problems[:_MAX_PRINTED_PROBLEMS]:
        where = problem.file if problem.line is None else f"{problem.file}:{problem.line}"
        line = f"{where} {problem.kind}: {problem.detail}"
        output.print_text(options, f"  • {output.display_line(line, 200)}")
    unprinted = len(report.problems) - _MAX_PRINTED_PROBLEMS
    if unprinted > 0:
        output.print_text(options, f"  … and {unprinted} more; --json prints all.")


def _count(number: int, noun: str) -> str:
    return f"1 {noun}" if number == 1 else f"{number:,} {noun}s"

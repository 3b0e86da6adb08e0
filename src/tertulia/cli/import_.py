"""`tertulia import hermes|nanobot|openclaw|jsonl`: conversations of other systems."""

from __future__ import annotations

import click

from tertulia.cli import (
    locations,
    output,
)
from tertulia.cli.errors import NO
from tertulia.cli.options import Command, Request, json_option
from tertulia.transfer import Kind, Report, import_from

# Of so many problems each is told; a program gets all of them.
_MOST_TOLD = 20


def _command(kind: Kind, about: str) -> Command:
    @click.command(kind, cls=Command, help=about)
    @click.argument("path", metavar="PATH", type=click.Path())
    @click.option("--dry-run", is_flag=True, help="Read everything and write nothing.")
    @click.option(
        "--zone",
        metavar="NAME",
        help="Where times without a zone were written, such as Europe/Madrid. Default: this "
        "machine's zone.",
    )
    @json_option
    @click.pass_obj
    def command(request: Request, path: str, dry_run: bool, zone: str | None) -> None:
        report = _imported(request, kind, path, dry_run=dry_run, zone=zone)
        if request.json:
            output.print_json(report.to_dict())
        else:
            _tell(request, report, dry_run=dry_run)
        if not report.is_whole:
            click.get_current_context().exit(NO)

    return command


COMMANDS = (
    _command("hermes", "Import Hermes Agent's sessions: PATH is its home, such as ~/.hermes."),
    _command("nanobot", "Import nanobot's sessions: PATH is its folder, such as ~/.nanobot."),
    _command("openclaw", "Import OpenClaw's sessions: PATH is its folder, such as ~/.openclaw."),
    _command("jsonl", "Import OpenAI chat messages: PATH is a .jsonl file or a folder of them."),
)


def _imported(
    request: Request, kind: Kind, path: str, *, dry_run: bool, zone: str | None
) -> Report:
    with output.bar(request, "Importing") as progress:
        if dry_run and locations.is_missing(locations.where(request)):
            return import_from(None, kind, path, dry_run=True, progress=progress, zone=zone)
        with locations.made(request) as opened:
            return import_from(
                opened, kind, path, dry_run=dry_run, progress=progress, zone=zone
            )  # fmt: skip


def _tell(request: Request, report: Report, *, dry_run: bool) -> None:
    verb = "Would import" if dry_run else "Imported"
    sessions = _counted(report.sessions, "session")
    messages = _counted(report.messages, "message")
    output.say(request, f"{verb} {sessions} with {messages}.")
    if report.skipped:
        output.say(request, f"{_counted(report.skipped, 'session')} had come before.")
    if not report.problems:
        return
    output.say(request, f"{_counted(len(report.problems), 'problem')}:")
    for problem in report.problems[:_MOST_TOLD]:
        where = problem.file if problem.line is None else f"{problem.file}:{problem.line}"
        told = f"{where} {problem.kind}: {problem.detail}"
        output.say(request, f"  • {output.one_line(told, 200)}")
    if len(report.problems) > _MOST_TOLD:
        output.say(request, f"  … and {len(report.problems) - _MOST_TOLD} more; --json has all.")


def _counted(number: int, noun: str) -> str:
    return f"1 {noun}" if number == 1 else f"{number:,} {noun}s"

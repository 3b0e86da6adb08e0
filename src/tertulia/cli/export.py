"""`tertulia export`: write sessions to a folder, or the whole store to one file."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import click

from tertulia.cli import locations, output
from tertulia.cli.completion import session_ids
from tertulia.cli.options import TEXT, CliCommand, CommandOptions, json_option, session_filters
from tertulia.cli.session_ref import resolve
from tertulia.cli.sessions import EXPORT_FORMATS
from tertulia.core.session import State


@click.command(cls=CliCommand)
@click.argument("refs", metavar="[SESSION]...", nargs=-1, type=TEXT, shell_complete=session_ids)
@click.option(
    "--format",
    "form",
    type=click.Choice(("archive", *EXPORT_FORMATS)),
    default="archive",
    show_default=True,
    help="archive: the whole store in one file. The others: a folder with a file for each session.",
)
@click.option(
    "--output",
    "target",
    metavar="PATH",
    type=click.Path(),
    required=True,
    help="A new file for an archive, else a new folder.",
)
@session_filters
@click.option("--redact", is_flag=True, help="Without ids and phone numbers; not in an archive.")
@click.option("--force", is_flag=True, help="Replace existing files of the same names.")
@json_option
@click.pass_obj
def export(
    options: CommandOptions,
    refs: tuple[str, ...],
    form: str,
    target: str,
    platform: str | None,
    key: str | None,
    person: str | None,
    state: State,
    active_minutes: int | None,
    redact: bool,
    force: bool,
) -> None:
    """Write the whole store to an archive, or sessions to a folder.

    Restore an archive with `tertulia import archive`. It contains everything, also the secrets of
    the installation: protect it like the store. With SESSION, as in `tertulia sessions show`,
    only those sessions are written.
    """
    from tertulia.records.iterate import Selection
    from tertulia.transfer.exporters.export import export_to

    locations.require_utf8(target)
    with (
        locations.open_to_read(options) as store,
        output.progress_bar(options, "Writing") as progress,
    ):
        # An archive has no selection: `export_to` refuses the words as they are.
        ids = refs if form == "archive" else tuple(resolve(store, ref).id for ref in refs)
        selection = Selection(
            ids=ids,
            platform=platform,
            key=key,
            person=person,
            state=state,
            active_since=_minutes_ago(active_minutes),
        )
        result = export_to(
            store,
            form,
            target,
            selection=selection,
            redact=redact or None,
            force=force,
            progress=progress,
        )
    fields = {
        "form": result.form,
        "path": result.path,
        "sessions": result.sessions,
        "messages": result.messages,
    }
    counts = f"{_count(result.sessions, 'session')} with {_count(result.messages, 'message')}"
    output.print_result(options, fields, f"{counts} written to {result.path}.")


def _minutes_ago(minutes: int | None) -> datetime | None:
    return None if minutes is None else datetime.now(UTC) - timedelta(minutes=minutes)


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"

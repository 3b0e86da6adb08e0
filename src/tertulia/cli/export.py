"""`tertulia export`: sessions out of the store, or the whole store in one file."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import click

from tertulia.cli import (
    locations,
    output,
)
from tertulia.cli.completion import session_ids
from tertulia.cli.options import WORDS, Command, Request, json_option
from tertulia.cli.sessions import FORMS
from tertulia.core.session import STATES, State

_HUNDRED_YEARS = 52_560_000


@click.command(cls=Command)
@click.argument("ids", metavar="[ID]...", nargs=-1, type=WORDS, shell_complete=session_ids)
@click.option(
    "--format",
    "form",
    type=click.Choice(("archive", *FORMS)),
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
@click.option("--platform", type=WORDS, help="Only sessions of a platform, such as telegram.")
@click.option("--key", type=WORDS, help="Only those of one conversation.")
@click.option("--person", type=WORDS, help="Only those of a person, such as telegram:42.")
@click.option(
    "--state", type=click.Choice(STATES), default="all", show_default=True, help="Which ones."
)
@click.option(
    "--active-minutes",
    metavar="N",
    type=click.IntRange(1),
    help="Only those with activity in the last N minutes.",
)
@click.option("--redact", is_flag=True, help="Without ids and phone numbers; not in an archive.")
@click.option("--force", is_flag=True, help="Replace what is there under the same names.")
@json_option
@click.pass_obj
def export(
    request: Request,
    ids: tuple[str, ...],
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

    An archive is restored with `tertulia import archive`. It holds everything, secrets of the
    installation included: keep it as you keep the store. With ID only those sessions are written.
    """
    from tertulia.records.iterate import Selection
    from tertulia.transfer.exporters.export import export_to

    chosen = Selection(
        ids=ids,
        platform=platform,
        key=key,
        person=person,
        state=state,
        active_since=_since(active_minutes),
    )
    locations.require_utf8(target)
    with locations.existing(request) as store, output.bar(request, "Writing") as progress:
        done = export_to(
            store,
            form,
            target,
            selection=chosen,
            redact=redact or None,
            force=force,
            progress=progress,
        )
    if request.json:
        output.print_json(
            {
                "form": done.form,
                "path": done.path,
                "sessions": done.sessions,
                "messages": done.messages,
            }
        )
    else:
        counts = f"{_count(done.sessions, 'session')} with {_count(done.messages, 'message')}"
        output.say(request, f"{counts} written to {done.path}.")


def _since(minutes: int | None) -> datetime | None:
    if minutes is None:
        return None
    return datetime.now(UTC) - timedelta(minutes=min(minutes, _HUNDRED_YEARS))


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"

"""`tertulia import archive`: a store as it was, from the file that `tertulia export` made of it."""

from __future__ import annotations

import click

from tertulia.cli import (
    locations,
    output,
)
from tertulia.cli.options import Command, Request, json_option


@click.command(cls=Command)
@click.argument("path", metavar="FILE", type=click.Path())
@click.option("--dry-run", is_flag=True, help="Read and check all of FILE, and store nothing.")
@json_option
@click.pass_obj
def archive(request: Request, path: str, dry_run: bool) -> None:
    """Fill an empty store from an archive: all of it, or nothing where anything is wrong."""
    from tertulia.transfer import archive as archives

    locations.require_utf8(path)
    archives.read_manifest(path)  # before a store is made for something that is none
    with output.bar(request, "Checking" if dry_run else "Restoring") as progress:
        if dry_run and locations.is_missing(locations.where(request)):
            done = archives.check(path, progress=progress)
        else:
            with locations.existing(request) if dry_run else locations.made(request) as store:
                done = archives.restore(store, path, dry_run=dry_run, progress=progress)
    sessions, messages = done.rows("sessions"), done.rows("messages")
    if request.json:
        told = {"sessions": sessions, "messages": messages, "skipped": 0, "problems": []}
        output.print_json({**told, "dry_run": dry_run, "made_at": done.made_at.isoformat()})
        return
    what = f"{sessions:,} sessions with {messages:,} messages, as of {done.made_at:%Y-%m-%d %H:%M}"
    if dry_run:
        output.say(request, f"{path} is whole: {what} UTC. Nothing was stored.")
    else:
        output.say(request, f"{what} UTC are in {locations.where(request)}.")

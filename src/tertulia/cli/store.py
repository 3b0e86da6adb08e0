"""`tertulia store`: work on the store as a whole."""

from __future__ import annotations

import os

import click

from tertulia.cli import (
    format,
    locations,
    output,
)
from tertulia.cli.errors import NO
from tertulia.cli.options import Group, Request, json_option
from tertulia.errors import ConfigError, StoreCorrupt
from tertulia.storage.connect import (
    applied,
    public_name,
)


@click.group(cls=Group)
def store() -> None:
    """Make, check, back up and compact the store."""


@store.command()
@json_option
@click.pass_obj
def migrate(request: Request) -> None:
    """Bring the store to this program's schema; make it if there is none."""
    where = locations.where(request)
    is_new = locations.is_missing(where)
    path = public_name(where)
    had = [] if is_new else applied(where)
    with output.waiting(request, "Migrating …"), locations.made(request):
        new = [name for name in applied(where) if name not in had]
    if request.json:
        output.print_json({"store": path, "created": is_new, "applied": new})
    elif is_new:
        output.say(request, f"Made a new store at {path}.")
    elif new:
        output.say(request, f"Applied to {path}: {', '.join(new)}.")
    else:
        output.say(request, f"{path} is up to date; nothing was needed.")


@store.command()
@click.option("--rebuild-search", is_flag=True, help="Make the search index anew first.")
@json_option
@click.pass_obj
def check(request: Request, rebuild_search: bool) -> None:
    """Look for faults; ends with 1 if there are any."""
    try:
        path, faults = _checked(request, rebuild_search)
    except StoreCorrupt as problem:
        # The library's advice is to run this command.
        hint = "Keep the file, and restore the newest backup."
        raise StoreCorrupt(problem.message, hint=hint) from problem
    if request.json:
        output.print_json({"store": path, "sound": not faults, "faults": faults})
    elif faults:
        _tell(request, path, faults)
    else:
        output.say(request, f"{path} is sound.")
    if faults:
        click.get_current_context().exit(NO)


@store.command()
@click.argument("target", metavar="FILE", type=click.Path())
@json_option
@click.pass_obj
def backup(request: Request, target: str) -> None:
    """Copy the store to a new FILE while it is in use."""
    _require_folder(locations.require_utf8(target))
    with (
        locations.existing(request) as opened,
        locations.private_files(),
        output.bar(request, "Copying") as progress,
    ):
        opened.backup(target, progress=progress)
    count = os.path.getsize(target)
    if request.json:
        output.print_json({"store": opened.path, "backup": target, "bytes": count})
    else:
        output.say(request, f"{opened.path} is copied to {target} ({format.size(count)}).")


@store.command()
@json_option
@click.pass_obj
def vacuum(request: Request) -> None:
    """Give unused space back to the disk."""
    with locations.existing(request) as opened, output.waiting(request, "Compacting …"):
        before, after = opened.vacuum()
    saved = max(0, before - after)
    if request.json:
        told = {"store": opened.path, "bytes_before": before, "bytes_after": after}
        output.print_json(told)
    elif saved:
        sizes = f"{format.size(before)} before, {format.size(after)} now"
        output.say(request, f"{opened.path}: {format.size(saved)} given back ({sizes}).")
    else:
        output.say(request, f"{opened.path} had nothing to give back ({format.size(after)}).")


@store.command()
@click.argument("source", metavar="OLD")
@click.argument("target", metavar="NEW")
@json_option
@click.pass_obj
def move(request: Request, source: str, target: str) -> None:
    """Move the store OLD to the empty database NEW, while it is in use.

    Between SQLite and PostgreSQL, either way. In the last moments nobody can write to OLD; then it
    is closed and says where its conversations are. A move that was interrupted is run again.
    """
    from tertulia.transfer.move import move as move_store

    if locations.is_missing(source):
        raise locations.missing(source)
    with locations.private_files(), output.bar(request, "Moving") as progress:
        moved = move_store(source, target, progress=progress)
    with locations.opened(target) as opened, output.waiting(request, "Making the search index …"):
        opened.settle()
    if request.json:
        tables = {name: found._asdict() for name, found in moved.tables.items()}
        output.print_json({"from": moved.source, "to": moved.target, "tables": tables})
    else:
        told = f"{moved.rows:,} rows in {len(moved.tables)} tables, each compared by its hash"
        output.say(request, f"{moved.source} is moved to {moved.target}: {told}.")


def _checked(request: Request, rebuild_search: bool) -> tuple[str, list[str]]:
    with locations.existing(request) as opened:
        if rebuild_search:
            with output.waiting(request, "Making the search index anew …"):
                opened.rebuild_search()
        with output.waiting(request, "Checking …"):
            return opened.path, opened.check()


def _require_folder(target: str) -> None:
    folder = os.path.dirname(os.path.abspath(target))
    if not os.path.isdir(folder):
        raise ConfigError(f"There is no folder {folder}.", hint="Make it, or name another file.")


def _tell(request: Request, path: str, faults: list[str]) -> None:
    count = "1 fault" if len(faults) == 1 else f"{len(faults)} faults"
    output.say(request, f"{path} has {count}:")
    for fault in faults:
        output.say(request, f"  ✗ {output.one_line(fault)}")

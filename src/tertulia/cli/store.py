"""`tertulia store`: create, check, back up, compact and move the store."""

from __future__ import annotations

import os

import click
import msgspec

from tertulia.cli import format, locations, output
from tertulia.cli.errors import NEGATIVE_RESULT
from tertulia.cli.options import CommandGroup, CommandOptions, json_option
from tertulia.errors import ConfigError, StoreCorrupt
from tertulia.storage.connect import applied_migrations, public_name


@click.group(cls=CommandGroup)
def store() -> None:
    """Create, check, back up, compact and move the store."""


@store.command()
@json_option
@click.pass_obj
def migrate(options: CommandOptions) -> None:
    """Update the store to this program's schema; create it if there is none."""
    location = locations.store_location(options)
    is_new = locations.is_store_missing(location)
    path = public_name(location)
    before = [] if is_new else applied_migrations(location)
    with output.spinner(options, "Migrating …"), locations.open_or_create_store(options):
        new = [name for name in applied_migrations(location) if name not in before]
    if options.json:
        output.print_json({"store": path, "created": is_new, "applied": new})
    elif is_new:
        output.print_text(options, f"Created a new store at {path}.")
    elif new:
        output.print_text(options, f"Applied to {path}: {', '.join(new)}.")
    else:
        output.print_text(options, f"{path} is up to date; nothing was changed.")


@store.command()
@click.option("--rebuild-search", is_flag=True, help="Rebuild the search index first.")
@json_option
@click.pass_obj
def check(options: CommandOptions, rebuild_search: bool) -> None:
    """Check the store for faults; exits with 1 if there are any."""
    try:
        path, faults = _find_faults(options, rebuild_search)
    except StoreCorrupt as problem:
        # The hint of the library is to run this command.
        hint = "Keep the file, and restore the newest backup."
        raise StoreCorrupt(problem.message, hint=hint) from problem
    if options.json:
        output.print_json({"store": path, "sound": not faults, "faults": faults})
    elif faults:
        _print_faults(options, path, faults)
    else:
        output.print_text(options, f"{path} has no faults.")
    if faults:
        click.get_current_context().exit(NEGATIVE_RESULT)


@store.command()
@click.argument("target", metavar="FILE", type=click.Path())
@json_option
@click.pass_obj
def backup(options: CommandOptions, target: str) -> None:
    """Copy the store to a new FILE while it is in use."""
    _require_folder(locations.require_utf8(target))
    with (
        locations.open_to_read(options) as opened_store,
        locations.private_files(),
        output.progress_bar(options, "Copying") as progress,
    ):
        opened_store.backup(target, progress=progress)
    count = os.path.getsize(target)
    location = public_name(locations.store_location(options))
    if options.json:
        output.print_json({"store": location, "backup": target, "bytes": count})
    else:
        output.print_text(
            options, f"{location} was copied to {target} ({format.byte_size(count)})."
        )


@store.command()
@json_option
@click.pass_obj
def vacuum(options: CommandOptions) -> None:
    """Compact the store: return unused space to the disk."""
    with (
        locations.open_existing_store(options) as opened_store,
        output.spinner(options, "Compacting …"),
    ):
        before, after = opened_store.vacuum()
    saved = max(0, before - after)
    if options.json:
        sizes = {"store": opened_store.path, "bytes_before": before, "bytes_after": after}
        output.print_json(sizes)
    elif saved:
        change = f"{format.byte_size(before)} before, {format.byte_size(after)} now"
        output.print_text(
            options, f"{opened_store.path}: {format.byte_size(saved)} freed ({change})."
        )
    else:
        output.print_text(
            options, f"{opened_store.path} had no unused space ({format.byte_size(after)})."
        )


@store.command()
@json_option
@click.pass_obj
def prune(options: CommandOptions) -> None:
    """Remove what the retention settings no longer keep: [store.retention].

    The gateway does the same every hour. It works in small steps, while the store is in use.
    """
    with (
        locations.open_existing_store(options) as opened_store,
        output.spinner(options, "Removing …"),
    ):
        removed = opened_store.retention.remove_all()
    counts = msgspec.structs.asdict(removed)
    if options.json:
        output.print_json({"store": opened_store.path, "removed": counts})
    else:
        parts = ", ".join(f"{count} {kind}" for kind, count in counts.items() if count)
        output.print_text(options, f"{opened_store.path}: {parts or 'nothing'} removed.")


@store.command()
@click.argument("source", metavar="OLD")
@click.argument("target", metavar="NEW")
@json_option
@click.pass_obj
def move(options: CommandOptions, source: str, target: str) -> None:
    """Move the store OLD to the empty database NEW, while it is in use.

    From SQLite to PostgreSQL, or from PostgreSQL to SQLite. At the end of the move nobody can write
    to OLD for a moment; then OLD is closed and names NEW to programs that open it. Run an
    interrupted move again to complete it.
    """
    from tertulia.transfer.move import move as move_store

    if locations.is_store_missing(source):
        raise locations.missing_store_error(source, is_argument=True)
    with locations.private_files(), output.progress_bar(options, "Moving") as progress:
        moved = move_store(source, target, progress=progress)
    with (
        locations.open_store(target) as opened_store,
        output.spinner(options, "Building the search index …"),
    ):
        opened_store.settle()
    if options.json:
        tables = {name: table._asdict() for name, table in moved.tables.items()}
        output.print_json({"from": moved.source, "to": moved.target, "tables": tables})
    else:
        copied = f"{moved.rows:,} rows in {len(moved.tables)} tables, each compared by its hash"
        output.print_text(options, f"{moved.source} was moved to {moved.target}: {copied}.")


def _find_faults(options: CommandOptions, rebuild_search: bool) -> tuple[str, list[str]]:
    path = public_name(locations.store_location(options))
    if rebuild_search:
        with (
            locations.open_existing_store(options) as opened_store,
            output.spinner(options, "Rebuilding the search index …"),
        ):
            opened_store.rebuild_search()
    with locations.open_to_read(options) as opened_store, output.spinner(options, "Checking …"):
        return path, opened_store.check()


def _require_folder(target: str) -> None:
    folder = os.path.dirname(os.path.abspath(target))
    if not os.path.isdir(folder):
        raise ConfigError(f"There is no folder {folder}.", hint="Create it, or name another file.")


def _print_faults(options: CommandOptions, path: str, faults: list[str]) -> None:
    count = "1 fault" if len(faults) == 1 else f"{len(faults)} faults"
    output.print_text(options, f"{path} has {count}:")
    for fault in faults:
        output.print_text(options, f"  ✗ {output.display_line(fault)}")

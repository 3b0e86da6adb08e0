"""`tertulia ps`: list the background processes of agents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from tertulia.cli import locations, output
from tertulia.cli.options import CliCommand, CommandOptions, json_option
from tertulia.core.text import format
from tertulia.processes import messages
from tertulia.records.machine_zone import machine_zone
from tertulia.records.processes import Process

if TYPE_CHECKING:
    from rich.table import Table


@click.command(cls=CliCommand)
@json_option
@click.pass_obj
def ps(options: CommandOptions) -> None:
    """List the processes that agents have started, in all conversations.

    The states are those in the store; a running gateway updates them every second.
    """
    with locations.open_to_read(options) as store:
        processes = store.processes.find()
    output.print_items(options, processes, to_dict, _table, "There are no processes.")


def _table(processes: Sequence[Process]) -> Table:
    zone = machine_zone()
    # Machine and conversation are printed with --json only; a terminal is too narrow for all.
    table = output.new_table("id", "state", "began", "command", elastic="command")
    for process in processes:
        style = "green" if process.is_alive else ""
        table.add_row(
            output.cell(process.id),
            output.cell(messages.format_state(process), style),
            format.format_time(process.began_at, zone),
            output.cell(process.command),
        )
    return table


def to_dict(process: Process) -> dict[str, Any]:
    """Return a process for JSON output."""
    return {
        "id": process.id,
        "state": process.state,
        "exit_code": process.exit_code,
        "command": process.command,
        "folder": process.cwd,
        "key": process.key,
        "session": process.session_id,
        "machine": process.node,
        "environment": process.environment,
        "pid": process.pid,
        "since": format.utc_text(process.began_at),
        "ended": format.utc_text(process.ended_at),
    }

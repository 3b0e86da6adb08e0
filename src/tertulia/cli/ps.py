"""`tertulia ps`: programs in the background."""

from __future__ import annotations

from typing import Any

import click

from tertulia.cli import (
    locations,
    output,
)
from tertulia.cli.options import Command, Request, json_option
from tertulia.core.text import format
from tertulia.processes import messages
from tertulia.records.processes import Process


@click.command(cls=Command)
@json_option
@click.pass_obj
def ps(request: Request) -> None:
    """List the programs that agents have started, of every conversation.

    It shows what the store knows; a running gateway brings that up to date every second.
    """
    with locations.existing(request) as store:
        found = store.processes.find()
    if request.json:
        output.print_json(list(map(to_dict, found)))
        return
    if not found:
        output.say(request, "No programs are known.")
        return
    zone = locations.zone()
    # Which machine and conversation is told with --json; a screen has no room for all.
    table = output.table("id", "state", "began", "command", elastic="command")
    for one in found:
        style = "green" if one.is_alive else ""
        table.add_row(
            output.cell(one.id),
            output.cell(messages.state(one), style),
            format.stamp(one.began_at, zone),
            output.cell(one.command),
        )
    output.show(request, table)


def to_dict(process: Process) -> dict[str, Any]:
    """A program for programs."""
    ended = process.ended_at
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
        "since": process.began_at.isoformat().replace("+00:00", "Z"),
        "ended": None if ended is None else ended.isoformat().replace("+00:00", "Z"),
    }

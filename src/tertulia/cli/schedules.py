"""`tertulia schedules`: tasks for later, of everybody in the store."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

import click

from tertulia.cli import (
    locations,
    output,
)
from tertulia.cli.options import WORDS, Group, Request, json_option
from tertulia.core.schedule import MISFIRES, Misfire, describe
from tertulia.core.source import Source
from tertulia.core.text import format
from tertulia.records.schedules import Schedule, ScheduleRun


@click.group(cls=Group)
def schedules() -> None:
    """Tasks that run later or repeatedly. They run while `tertulia run` or `chat` does."""


_limit = click.option(
    "--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="How many."
)


@schedules.command("list")
@_limit
@json_option
@click.pass_obj
def list_(request: Request, limit: int) -> None:
    """List the schedules of everybody."""
    with locations.existing(request) as store:
        found = store.schedules.find(limit=limit).items
    if request.json:
        output.print_json([to_dict(one) for one in found])
        return
    if not found:
        output.say(request, "Nothing is planned. Plan a task with: tertulia schedules add")
        return
    zone = locations.zone()
    table = output.table("id", "owner", "when", "next", "target", "task", elastic="task")
    for one in found:
        following = one.state if one.state != "active" or one.next_at is None else ""
        table.add_row(
            str(one.id),
            output.cell(one.owner),
            output.cell(describe(one.rule)),
            following or format.stamp(one.next_at or one.created_at, zone),
            output.cell(one.target),
            output.cell(one.task),
        )
    output.show(request, table)


@schedules.command()
@click.argument("when", type=WORDS)
@click.argument("task", type=WORDS)
@click.option("--to", "target", type=WORDS, default="local", show_default=True,
              help="Where the result goes: local (a file in the data folder), origin (the"
              " terminal), a platform's home, or platform:chat.")  # fmt: skip
@click.option("--zone", type=WORDS, help="The time zone of WHEN. Default: the store's.")
@click.option("--session", type=click.Choice(["own", "origin"]), default="own", show_default=True,
              help="Run in a session of its own, or in that of the terminal.")  # fmt: skip
@click.option("--misfire", type=click.Choice(MISFIRES), default="once", show_default=True,
              help="What was missed runs once for all, not at all, or each.")  # fmt: skip
@json_option
@click.pass_obj
def add(
    request: Request,
    when: str,
    task: str,
    target: str,
    zone: str | None,
    session: Literal["own", "origin"],
    misfire: Misfire,
) -> None:
    """Plan TASK for WHEN, such as "every 2h", "at 09:00" or "cron 0 9 * * MON-FRI"."""
    with locations.made(request) as store:
        made = store.schedules.create(
            Source.local(), when, task, zone=zone, target=target, session=session, misfire=misfire
        )
    _tell(request, made, "is planned")


@schedules.command()
@click.argument("schedule", type=int)
@json_option
@click.pass_obj
def pause(request: Request, schedule: int) -> None:
    """Let SCHEDULE run no more until it is resumed."""
    with locations.existing(request) as store:
        changed = store.schedules.pause(schedule)
    _tell(request, changed, "is paused")


@schedules.command()
@click.argument("schedule", type=int)
@json_option
@click.pass_obj
def resume(request: Request, schedule: int) -> None:
    """Let SCHEDULE run again, from now on."""
    with locations.existing(request) as store:
        changed = store.schedules.resume(schedule)
    _tell(request, changed, "goes on")


@schedules.command()
@click.argument("schedule", type=int)
@json_option
@click.pass_obj
def remove(request: Request, schedule: int) -> None:
    """Delete SCHEDULE and the history of its runs. What it said is kept where it was said."""
    with locations.existing(request) as store:
        gone = store.schedules.require(schedule)
        store.schedules.remove(schedule)
    _tell(request, gone, "is removed", with_next=False)


@schedules.command()
@click.argument("schedule", type=int)
@json_option
@click.pass_obj
def run(request: Request, schedule: int) -> None:
    """Have SCHEDULE run now, by the gateway that is running or the next one that starts."""
    with locations.existing(request) as store:
        made = store.schedules.run_now(schedule)
    if request.json:
        output.print_json(run_to_dict(made))
    else:
        output.say(request, f"Schedule {schedule} runs as soon as a gateway takes it.")


@schedules.command()
@click.argument("schedule", type=int)
@_limit
@json_option
@click.pass_obj
def history(request: Request, schedule: int, limit: int) -> None:
    """Show the runs of SCHEDULE, the newest first."""
    with locations.existing(request) as store:
        found = store.schedules.history(schedule, limit=limit).items
    if request.json:
        output.print_json([run_to_dict(one) for one in found])
        return
    if not found:
        output.say(request, f"Schedule {schedule} has not run yet.")
        return
    zone = locations.zone()
    table = output.table("run", "planned", "state", "tries", "session", "what", elastic="what")
    for one in found:
        table.add_row(
            str(one.id),
            format.stamp(one.planned_at, zone),
            output.cell(one.state),
            str(one.attempts),
            output.cell(one.session_id or ""),
            output.cell(one.problem or one.result or ""),
        )
    output.show(request, table)


def to_dict(one: Schedule) -> dict[str, Any]:
    """A schedule for programs."""
    return {
        "id": one.id,
        "owner": one.owner,
        "when": describe(one.rule),
        "task": one.task,
        "target": one.target,
        "session": one.session,
        "misfire": one.misfire,
        "state": one.state,
        "next_at": _stamp(one.next_at),
        "created_at": _stamp(one.created_at),
    }


def run_to_dict(one: ScheduleRun) -> dict[str, Any]:
    """A run for programs."""
    return {
        "id": one.id,
        "schedule": one.schedule.id,
        "planned_at": _stamp(one.planned_at),
        "since": _stamp(one.since),
        "is_manual": one.is_manual,
        "state": one.state,
        "attempts": one.attempts,
        "ended_at": _stamp(one.ended_at),
        "session_id": one.session_id,
        "result": one.result,
        "problem": one.problem,
    }


def _stamp(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat().replace("+00:00", "Z")


def _tell(request: Request, one: Schedule, what: str, *, with_next: bool = True) -> None:
    if request.json:
        output.print_json(to_dict(one))
        return
    following = ""
    if with_next and one.state == "active" and one.next_at is not None:
        following = f", next {format.stamp(one.next_at, locations.zone())}"
    output.say(request, f"Schedule {one.id} ({describe(one.rule)}) {what}{following}.")

"""`tertulia schedules`: plan tasks for later; list and change those of all people."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import click

from tertulia.cli import locations, output
from tertulia.cli.options import (
    TEXT,
    CommandGroup,
    CommandOptions,
    json_option,
    with_program_name,
)
from tertulia.core.schedule import MISFIRES, Misfire, describe_rule
from tertulia.core.settings import Settings
from tertulia.core.source import LOCAL, Source
from tertulia.core.target import Target
from tertulia.core.text import format
from tertulia.platforms.registry import PLATFORMS
from tertulia.records.machine_zone import machine_zone
from tertulia.records.schedules import Schedule, ScheduleRun, Schedules

if TYPE_CHECKING:
    from rich.table import Table


@click.group(cls=CommandGroup)
def schedules() -> None:
    """Plan tasks that run later or repeatedly. They run while `tertulia run` or `chat` runs."""


_limit = click.option(
    "--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="How many at most."
)
_id_argument = click.argument("schedule_id", metavar="SCHEDULE", type=int)


@schedules.command("list")
@_limit
@json_option
@click.pass_obj
def list_(options: CommandOptions, limit: int) -> None:
    """List the schedules of all people."""
    with locations.open_to_read(options) as store:
        items = store.schedules.find(limit=limit).items
    nothing = "Nothing is planned. Plan a task with: tertulia schedules add"
    output.print_items(options, items, to_dict, _schedule_table, nothing)


def _schedule_table(items: Sequence[Schedule]) -> Table:
    zone = machine_zone()
    table = output.new_table("id", "owner", "when", "next", "target", "task", elastic="task")
    for schedule in items:
        if schedule.state == "active" and schedule.next_at is not None:
            next_run = format.format_time(schedule.next_at, zone)
        else:
            next_run = schedule.state
        table.add_row(
            str(schedule.id),
            output.cell(schedule.owner),
            output.cell(describe_rule(schedule.rule)),
            next_run,
            output.cell(schedule.target),
            output.cell(schedule.task),
        )
    return table


@schedules.command()
@click.argument("when", type=TEXT)
@click.argument("task", type=TEXT)
@click.option("--to", "target", type=TEXT, default="local", show_default=True,
              help="Target of the result: local (a file in the data folder), origin (the"
              " terminal), a platform's home, or platform:chat.")  # fmt: skip
@click.option("--zone", type=TEXT, help="Time zone of WHEN. Default: the store's.")
@click.option("--session", type=click.Choice(["own", "origin"]), default="own", show_default=True,
              help="Run in a session of its own, or in the session of the terminal.")  # fmt: skip
@click.option("--misfire", type=click.Choice(MISFIRES), default="once", show_default=True,
              help="Run missed times once, not at all, or each.")  # fmt: skip
@json_option
@click.pass_obj
def add(
    options: CommandOptions,
    when: str,
    task: str,
    target: str,
    zone: str | None,
    session: Literal["own", "origin"],
    misfire: Misfire,
) -> None:
    """Plan TASK for WHEN, such as "every 2h", "at 09:00" or "cron 0 9 * * MON-FRI"."""
    with locations.open_or_create_store(options) as store:
        schedule = store.schedules.create(
            Source.local(), when, task, zone=zone, target=target, session=session, misfire=misfire
        )
    _warn_of_target(options, schedule)
    _report(options, schedule, "is planned")


def _warn_of_target(options: CommandOptions, schedule: Schedule) -> None:
    """Print a warning on stderr if the results could not be delivered as it is configured now."""
    target = Target.parse(schedule.target, schedule.origin, known=PLATFORMS)
    mistake = _find_mistake(target, locations.store_settings(options))
    if mistake is not None:
        problem, hint = mistake
        text = f"{problem} Results cannot be delivered there yet. Before it runs, {hint}"
        click.echo(f"warning: {output.display_line(with_program_name(text))}", err=True)


def _find_mistake(target: Target, settings: Settings) -> tuple[str, str] | None:
    """Return what is missing to deliver to a target, and what to do; None if nothing is."""
    name, home = target.platform, settings.homes.get(target.platform)
    definition = PLATFORMS.get(name)
    is_added = definition is not None and definition.setup
    if not is_added and name != "web":
        return None  # it is part of the gateway, or its package says how it is connected
    if name not in settings.platforms:
        command = f"connect {name}: tertulia platforms add {name}"
        return f"{name} is not configured.", command if is_added else f"add [platforms.{name}]"
    if name == "web":
        has_account = target.chat_id is None and home is not None and home.account
        hint = "set chat_id and account (the name of the token) in [store.homes.web]; use --to web"
        return None if has_account else ("A web chat belongs to a token; here is none.", hint)
    if target.chat_id is None and home is None:
        return f"{name} has no home.", f"set home in [platforms.{name}], or use --to {name}:CHAT"
    return None


@schedules.command()
@_id_argument
@json_option
@click.pass_obj
def pause(options: CommandOptions, schedule_id: int) -> None:
    """Stop running SCHEDULE until it is resumed."""
    _change(options, schedule_id, Schedules.pause, "is paused")


@schedules.command()
@_id_argument
@json_option
@click.pass_obj
def resume(options: CommandOptions, schedule_id: int) -> None:
    """Run SCHEDULE again, from now on."""
    _change(options, schedule_id, Schedules.resume, "is active again")


@schedules.command()
@_id_argument
@json_option
@click.pass_obj
def remove(options: CommandOptions, schedule_id: int) -> None:
    """Delete SCHEDULE and the history of its runs. Its messages stay in their sessions."""
    with locations.open_existing_store(options) as store:
        schedule = store.schedules.require(schedule_id)
        store.schedules.remove(schedule_id)
    _report(options, schedule, "is removed", with_next=False)


@schedules.command()
@_id_argument
@json_option
@click.pass_obj
def run(options: CommandOptions, schedule_id: int) -> None:
    """Run SCHEDULE now, in the gateway that is running or the next one that starts."""
    with locations.open_existing_store(options) as store:
        schedule_run = store.schedules.run_now(schedule_id)
    sentence = f"Schedule {schedule_id} runs as soon as a gateway is running."
    output.print_result(options, run_to_dict(schedule_run), sentence)


@schedules.command()
@_id_argument
@_limit
@json_option
@click.pass_obj
def history(options: CommandOptions, schedule_id: int, limit: int) -> None:
    """Show the runs of SCHEDULE, the newest first."""
    with locations.open_to_read(options) as store:
        runs = store.schedules.history(schedule_id, limit=limit).items
    nothing = f"Schedule {schedule_id} has not run yet."
    output.print_items(options, runs, run_to_dict, _run_table, nothing)


def _run_table(runs: Sequence[ScheduleRun]) -> Table:
    zone = machine_zone()
    table = output.new_table(
        "run", "planned", "state", "attempts", "session", "result", elastic="result"
    )
    for schedule_run in runs:
        table.add_row(
            str(schedule_run.id),
            format.format_time(schedule_run.planned_at, zone),
            output.cell(schedule_run.state),
            str(schedule_run.attempts),
            output.cell(schedule_run.session_id or ""),
            output.cell(schedule_run.problem or schedule_run.result or ""),
        )
    return table


def to_dict(schedule: Schedule) -> dict[str, Any]:
    """Return a schedule for JSON output."""
    return {
        "id": schedule.id,
        "owner": schedule.owner,
        "when": describe_rule(schedule.rule),
        "task": schedule.task,
        "target": schedule.target,
        "session": schedule.session,
        "misfire": schedule.misfire,
        "state": schedule.state,
        "next_at": format.utc_text(schedule.next_at),
        "created_at": format.utc_text(schedule.created_at),
    }


def run_to_dict(run: ScheduleRun) -> dict[str, Any]:
    """Return a run for JSON output."""
    return {
        "id": run.id,
        "schedule": run.schedule.id,
        "planned_at": format.utc_text(run.planned_at),
        "since": format.utc_text(run.since),
        "is_manual": run.is_manual,
        "state": run.state,
        "attempts": run.attempts,
        "ended_at": format.utc_text(run.ended_at),
        "session_id": run.session_id,
        "result": run.result,
        "problem": run.problem,
    }


def _change(
    options: CommandOptions,
    schedule_id: int,
    call: Callable[[Schedules, int], Schedule],
    change: str,
) -> None:
    """Change a schedule and print it."""
    with locations.open_existing_store(options) as store:
        schedule = call(store.schedules, schedule_id)
    _report(options, schedule, change)


def _report(
    options: CommandOptions, schedule: Schedule, change: str, *, with_next: bool = True
) -> None:
    """Print a schedule and its change; with `with_next` also the time of its next run."""
    next_run = ""
    if with_next and schedule.state == "active" and schedule.next_at is not None:
        zone = machine_zone()
        next_run = f", next {format.format_time(schedule.next_at, zone)} ({zone})"
    rule = describe_rule(schedule.rule)
    sentence = f"Schedule {schedule.id} ({rule}) {change}{next_run}."
    if with_next and schedule.target == LOCAL:
        folder = os.path.join(locations.data_folder(), "schedules", str(schedule.id))
        sentence += f" Its results are files in {folder}."
    output.print_result(options, to_dict(schedule), sentence)

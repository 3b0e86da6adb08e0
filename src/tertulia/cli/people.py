"""`tertulia people`: the people the agent knows, their roles, and those who ask to be let in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, get_args

import click
import msgspec

from tertulia.cli import locations, output
from tertulia.cli.options import TEXT, CommandGroup, CommandOptions, json_option
from tertulia.cli.pair import approve, refuse, to_dict
from tertulia.core.memory import MAX_LENGTH, Memory
from tertulia.core.source import LOCAL
from tertulia.core.text import format
from tertulia.errors import NotFound
from tertulia.records.machine_zone import machine_zone
from tertulia.records.people import Person, Role

if TYPE_CHECKING:
    from rich.table import Table


_SHOWN_SESSIONS = 10


@click.group(cls=CommandGroup)
def people() -> None:
    """List people and set their roles; let people in, or refuse them."""


@people.command("list")
@click.option("--role", type=click.Choice(get_args(Role)), help="Only people with this role.")
@click.option(
    "--limit", metavar="N", type=click.IntRange(1, 1000), default=100, show_default=True,
    help="How many at most.",
)  # fmt: skip
@json_option
@click.pass_obj
def list_(options: CommandOptions, role: Role | None, limit: int) -> None:
    """List the people the agent knows. `tertulia pair list` shows those who ask to be let in."""
    with locations.open_to_read(options) as store:
        rows = store.people.find(role=role, limit=limit)
    output.print_items(options, rows, to_dict, _table, "There are no such people.")


@people.command()
@click.argument("person_id", metavar="PERSON", type=TEXT)
@json_option
@click.pass_obj
def show(options: CommandOptions, person_id: str) -> None:
    """Show PERSON, such as telegram:42: name, role, time zone and conversations."""
    with locations.open_to_read(options) as store:
        person = _require(store.people.get(person_id), person_id)
        sessions = store.sessions.find(person=person.id, limit=_SHOWN_SESSIONS).items
    if options.json:
        session_ids = [session.id for session in sessions]
        output.print_json({**to_dict(person), "zone": person.zone, "session_ids": session_ids})
        return
    zone = machine_zone()
    seen_at = person.seen_at
    facts = [
        ("person", person.id),
        ("name", person.name),
        ("role", _role(person)),
        ("time zone", person.zone),
        ("since", format.format_time(person.created_at, zone)),
        ("last wrote", None if seen_at is None else format.format_time(seen_at, zone)),
    ]
    facts += [("conversation", f"{session.id} {session.title or ''}") for session in sessions]
    output.print_renderables(options, output.facts_table(facts))


@people.command()
@click.argument("person_id", metavar="PERSON", type=TEXT)
@click.argument("new_role", metavar="ROLE", type=click.Choice(get_args(Role)))
@json_option
@click.pass_obj
def role(options: CommandOptions, person_id: str, new_role: Role) -> None:
    """Give PERSON, such as telegram:42, the ROLE owner, member or guest."""
    with locations.open_existing_store(options) as store:
        store.people.set_role(person_id, new_role, by="local")
        person = _require(store.people.get(person_id), person_id)
    sentence = f"{output.display_line(person.id, 80)} is {person.role} now."
    output.print_result(options, to_dict(person), sentence)


@people.command()
@click.argument("person_id", metavar="PERSON", type=TEXT)
@json_option
@click.pass_obj
def memory(options: CommandOptions, person_id: str) -> None:
    """Print what the agent remembers of PERSON, such as telegram:42, as Markdown."""
    with locations.open_to_read(options) as store:
        memories = store.memories.of_person(person_id)
        if not memories:
            _require(store.people.get(person_id), person_id)
    if options.json:
        output.print_json([msgspec.to_builtins(memory) for memory in memories])
    elif not memories:
        output.print_text(options, "The agent remembers nothing of that person.")
    else:
        output.print_text(options, "\n".join(map(_memory_line, reversed(memories))))


def _memory_line(memory: Memory) -> str:
    note = " (proposed)" if memory.state == "proposed" else ""
    return f"- {output.display_line(memory.text, MAX_LENGTH)}{note}"


people.add_command(approve)
people.add_command(refuse)


def _require(person: Person | None, person_id: str) -> Person:
    if person is None:
        raise NotFound(
            f"There is no person {person_id!r}.", hint="List them with: tertulia people list"
        )
    return person


def _role(person: Person) -> Role:
    """Return the role: whoever uses the terminal of this machine is its owner."""
    return "owner" if person.platform == LOCAL else person.role


def _table(rows: Sequence[Person]) -> Table:
    zone = machine_zone()
    table = output.new_table("person", "name", "role", "since", elastic="name")
    for person in rows:
        table.add_row(
            output.cell(person.id),
            output.cell(
                person.name or ("you, at the terminal" if person.platform == LOCAL else "")
            ),
            output.cell(_role(person)),
            format.format_time(person.created_at, zone),
        )
    return table

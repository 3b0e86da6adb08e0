"""`tertulia pair`: control which people may write to the agent."""

from __future__ import annotations

from typing import Any, Literal

import click

from tertulia.cli import locations, output
from tertulia.cli.options import TEXT, CommandGroup, CommandOptions, json_option
from tertulia.core.text import format
from tertulia.records.machine_zone import machine_zone
from tertulia.records.people import Pairing, Person

_MAX_PEOPLE = 1000


@click.group(cls=CommandGroup)
def pair() -> None:
    """Allow people to write to the agent, or stop allowing it."""


@pair.command("list")
@json_option
@click.pass_obj
def list_(options: CommandOptions) -> None:
    """List the people who may write, and those who asked to.

    Codes are not shown: the owner types the code that the person shows.
    """
    with locations.open_to_read(options) as store:
        pairings = store.people.pending_pairings()
        people = store.people.find(limit=_MAX_PEOPLE)
    people = [person for person in people if person.role != "guest"]
    if options.json:
        output.print_json(
            {
                "waiting": [pairing_to_dict(pairing) for pairing in pairings],
                "people": [to_dict(person) for person in people],
            }
        )
        return
    if not pairings and not people:
        output.print_text(options, "Nobody may write yet, and nobody has asked to.")
        return
    zone = machine_zone()
    table = output.new_table("person", "name", "role", "since", elastic="name")
    for pairing in pairings:
        since = format.format_time(pairing.asked_at, zone)
        table.add_row(output.cell(pairing.person), "", output.cell("asks", "yellow"), since)
    for person in people:
        since = format.format_time(person.created_at, zone)
        table.add_row(
            output.cell(person.id), output.cell(person.name or ""), output.cell(person.role), since
        )
    output.print_renderables(options, table)


@pair.command()
@click.argument("code", type=TEXT)
@click.option(
    "--role",
    type=click.Choice(["member", "owner"]),
    default="member",
    show_default=True,
    help="The role of the person.",
)
@json_option
@click.pass_obj
def approve(options: CommandOptions, code: str, role: Literal["member", "owner"]) -> None:
    """Allow the person who shows CODE to write."""
    with locations.open_existing_store(options) as store:
        person = store.people.approve(code, role=role, by="local")
    sentence = f"{_display_name(person)} may write now, as {person.role}."
    output.print_result(options, to_dict(person), sentence)


@pair.command()
@click.argument("person_id", metavar="PERSON", type=TEXT)
@json_option
@click.pass_obj
def refuse(options: CommandOptions, person_id: str) -> None:
    """Refuse PERSON, such as telegram:42, who asks to write: no new code for a day."""
    with locations.open_existing_store(options) as store:
        store.people.refuse(person_id, by="local")
    sentence = f"{output.display_line(person_id, 80)} is refused, and gets no new code for a day."
    output.print_result(options, {"id": person_id}, sentence)


@pair.command()
@click.argument("person_id", metavar="PERSON", type=TEXT)
@json_option
@click.pass_obj
def revoke(options: CommandOptions, person_id: str) -> None:
    """Stop allowing PERSON, such as telegram:42, to write. Their messages are kept."""
    with locations.open_existing_store(options) as store:
        store.people.set_role(person_id, "guest", by="local")
        person = store.people.get(person_id)
    assert person is not None
    output.print_result(options, to_dict(person), f"{_display_name(person)} may no longer write.")


def to_dict(person: Person) -> dict[str, Any]:
    """Return a person for JSON output."""
    return {
        "id": person.id,
        "platform": person.platform,
        "name": person.name,
        "role": person.role,
        "since": format.utc_text(person.created_at),
    }


def pairing_to_dict(pairing: Pairing) -> dict[str, Any]:
    """Return a waiting request for JSON output, without its code."""
    return {
        "id": pairing.person,
        "platform": pairing.platform,
        "asked_at": format.utc_text(pairing.asked_at),
        "until": format.utc_text(pairing.until),
    }


def _display_name(person: Person) -> str:
    return output.display_line(f"{person.name} ({person.id})" if person.name else person.id, 80)

"""`tertulia pair`: who may write to the agent."""

from __future__ import annotations

from typing import Any, Literal

import click

from tertulia.cli import (
    locations,
    output,
)
from tertulia.cli.options import WORDS, Group, Request, json_option
from tertulia.core.text import format
from tertulia.records.people import Pairing, Person

_ALL = 1000


@click.group(cls=Group)
def pair() -> None:
    """Let people in, and out again."""


@pair.command("list")
@json_option
@click.pass_obj
def list_(request: Request) -> None:
    """List who asks to be let in, and who is in.

    Codes are not shown: the owner types the one that the person shows.
    """
    with locations.existing(request) as store:
        waiting = store.people.waiting()
        let_in = [one for one in store.people.find(limit=_ALL) if one.role != "guest"]
    if request.json:
        output.print_json(
            {"waiting": list(map(_asking, waiting)), "people": list(map(to_dict, let_in))}
        )
        return
    if not waiting and not let_in:
        output.say(request, "Nobody has asked, and nobody was let in.")
        return
    zone = locations.zone()
    table = output.table("person", "name", "role", "since", elastic="name")
    for one in waiting:
        since = format.stamp(one.asked_at, zone)
        table.add_row(output.cell(one.person), "", output.cell("asks", "yellow"), since)
    for person in let_in:
        since = format.stamp(person.created_at, zone)
        table.add_row(
            output.cell(person.id), output.cell(person.name or ""), output.cell(person.role), since
        )
    output.show(request, table)


@pair.command()
@click.argument("code", type=WORDS)
@click.option(
    "--role",
    type=click.Choice(["member", "owner"]),
    default="member",
    show_default=True,
    help="What they may do.",
)
@json_option
@click.pass_obj
def approve(request: Request, code: str, role: Literal["member", "owner"]) -> None:
    """Let the person in who shows CODE."""
    with locations.existing(request) as store:
        person = store.people.approve(code, role=role, by="local")
    if request.json:
        output.print_json(to_dict(person))
    else:
        output.say(request, f"{_called(person)} may write now, as {person.role}.")


@pair.command()
@click.argument("person", type=WORDS)
@json_option
@click.pass_obj
def revoke(request: Request, person: str) -> None:
    """Let PERSON, such as telegram:42, write no longer. What was said is kept."""
    with locations.existing(request) as store:
        store.people.set_role(person, "guest")
        found = store.people.get(person)
    assert found is not None
    if request.json:
        output.print_json(to_dict(found))
    else:
        output.say(request, f"{_called(found)} may write no longer.")


def to_dict(person: Person) -> dict[str, Any]:
    """A person for programs."""
    return {
        "id": person.id,
        "platform": person.platform,
        "name": person.name,
        "role": person.role,
        "since": person.created_at.isoformat().replace("+00:00", "Z"),
    }


def _asking(one: Pairing) -> dict[str, Any]:
    return {
        "id": one.person,
        "platform": one.platform,
        "asked_at": one.asked_at.isoformat().replace("+00:00", "Z"),
        "until": one.until.isoformat().replace("+00:00", "Z"),
    }


def _called(person: Person) -> str:
    return output.one_line(f"{person.name} ({person.id})" if person.name else person.id, 80)

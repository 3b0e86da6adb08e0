"""People: list them, set their roles, and approve strangers by their pairing codes."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from tertulia.core.session import Page
from tertulia.errors import ConfigError, IllegalMove, NotFound
from tertulia.http.auth import API
from tertulia.http.parameters import MAX_IDS, Count, Cursor, Text
from tertulia.http.routing import ApiCall, Operation
from tertulia.records.people import Pairing, Person, Role
from tertulia.records.people_events import PeopleEvent


class PeopleQuery(msgspec.Struct, frozen=True, kw_only=True):
    """`ids` are identities with spaces between them: only these people are listed."""

    ids: str = ""
    role: Role | None = None
    limit: Count = 100
    after: Text = ""


class PeoplePage(msgspec.Struct, frozen=True):
    items: tuple[Person, ...]


class PairingList(msgspec.Struct, frozen=True):
    items: tuple[Pairing, ...]


class ApprovalRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Either the code that the person shows, or the identity of a person who asks.

    A code proves who shows it. An identity is that of the platform; a name can be anybody's.
    """

    code: Annotated[str, Meta(min_length=1, max_length=64)] | None = None
    person: Text | None = None
    role: Role = "member"


class RefusalRequest(msgspec.Struct, frozen=True):
    person: Text


class RoleRequest(msgspec.Struct, frozen=True):
    role: Role


class ZoneRequest(msgspec.Struct, frozen=True):
    """A name such as `Europe/Madrid`; null for the zone of the store."""

    zone: Text | None


class PeopleEventQuery(msgspec.Struct, frozen=True, kw_only=True):
    """With a `person`, an identity or user id, only what was decided about them."""

    person: Text | None = None
    limit: Count = 50
    cursor: Cursor | None = None


async def list_people(call: ApiCall) -> PeoplePage:
    query: PeopleQuery = call.query
    people = call.api.store.people
    if query.ids:
        return PeoplePage(tuple(await people.get_many(query.ids.split(" ")[:MAX_IDS])))
    persons = await people.find(role=query.role, limit=query.limit, after=query.after)
    return PeoplePage(tuple(persons))


async def set_zone(call: ApiCall) -> Person:
    await call.api.store.people.set_zone(call.path["person"], call.body.zone, by=call.actor)
    return await _require_person(call)


async def set_role(call: ApiCall) -> Person:
    people = call.api.store.people
    before: Person | None = await people.get(call.path["person"])
    if before is not None and before.platform == API:
        raise IllegalMove(
            "The role of a token comes from the configuration.", hint="Change it under http.tokens."
        )
    await people.set_role(call.path["person"], call.body.role, by=call.actor)
    return await _require_person(call)


async def _require_person(call: ApiCall) -> Person:
    person: Person | None = await call.api.store.people.get(call.path["person"])
    if person is None:
        raise NotFound(f"There is no person {call.path['person']!r}.", hint="See GET /people.")
    return person


async def list_people_events(call: ApiCall) -> Page[PeopleEvent]:
    query: PeopleEventQuery = call.query
    return await call.api.store.people.events(
        person=query.person, limit=query.limit, cursor=query.cursor
    )


async def list_pairings(call: ApiCall) -> PairingList:
    return PairingList(tuple(await call.api.store.people.pending_pairings()))


async def approve_pairing(call: ApiCall) -> Person:
    body: ApprovalRequest = call.body
    people = call.api.store.people
    if body.code is not None and body.person is None:
        return await people.approve(body.code, role=body.role, by=call.actor)
    if body.person is not None and body.code is None:
        return await people.approve_person(body.person, role=body.role, by=call.actor)
    raise ConfigError("A person is approved by code or identity.", hint="Give code or person.")


async def refuse_pairing(call: ApiCall) -> None:
    await call.api.store.people.refuse(call.body.person, by=call.actor)


TABLE = (
    Operation(
        method="GET", path="/people", summary="List people, by identity.",
        act=list_people, role="owner", query=PeopleQuery, answer=PeoplePage,
    ),
    Operation(
        method="GET", path="/people/events", act=list_people_events, role="owner",
        query=PeopleEventQuery, answer=Page[PeopleEvent],
        summary="List what was decided about people, newest first, and who decided it.",
    ),
    Operation(
        method="PUT", path="/people/{person}/role", summary="Set the role of a person.",
        act=set_role, role="owner", body=RoleRequest, answer=Person,
    ),
    Operation(
        method="PUT", path="/people/{person}/zone", act=set_zone, role="owner", body=ZoneRequest,
        summary="Set the time zone of a person, which daily resets follow.", answer=Person,
    ),
    Operation(
        method="GET", path="/pairings", summary="List strangers who wait to be approved.",
        act=list_pairings, role="owner", answer=PairingList,
    ),
    Operation(
        method="POST", path="/pairings/approve", act=approve_pairing, role="owner",
        summary="Approve a person by pairing code or identity.", body=ApprovalRequest,
        answer=Person,
    ),
    Operation(
        method="POST", path="/pairings/refuse", act=refuse_pairing, role="owner",
        summary="Refuse a stranger: the code ends, and for a day there is no other.",
        body=RefusalRequest,
    ),
)  # fmt: skip

"""Deliveries, accepted messages and people: what the owner looks after."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from tertulia.core import cursor as cursors
from tertulia.core.session import Page
from tertulia.errors import ConfigError, IllegalMove, NotFound
from tertulia.http.routing import (
    ApiCall,
    Operation,
)
from tertulia.http.sessions import Count, Cursor, Text
from tertulia.records.people import Pairing, Person, Role
from tertulia.records.queues.inbox import (
    ArrivalState,
    InboxItem,
)
from tertulia.records.queues.outbox import (
    Delivery,
    DeliveryState,
)


class DeliveryQuery(msgspec.Struct, frozen=True, kw_only=True):
    state: DeliveryState | None = None
    session_id: Text | None = None
    limit: Count = 50
    cursor: Cursor | None = None


class Settle(msgspec.Struct, frozen=True):
    """What became of a delivery: it was sent after all, is to be sent again, or is given up."""

    outcome: Literal["sent", "retry", "dead"]


class InboxQuery(msgspec.Struct, frozen=True, kw_only=True):
    state: ArrivalState | None = None
    key: Text | None = None
    limit: Count = 50
    cursor: Cursor | None = None


class PeopleQuery(msgspec.Struct, frozen=True, kw_only=True):
    role: Role | None = None
    limit: Count = 100
    after: Text = ""


class People(msgspec.Struct, frozen=True):
    items: tuple[Person, ...]


class Pairings(msgspec.Struct, frozen=True):
    items: tuple[Pairing, ...]


class Approval(msgspec.Struct, frozen=True):
    code: Annotated[str, Meta(min_length=1, max_length=64)]
    role: Role = "member"


class NewRole(msgspec.Struct, frozen=True):
    role: Role


async def list_deliveries(call: ApiCall) -> Page[Delivery]:
    given: DeliveryQuery = call.query
    found: Page[Delivery] = await call.api.store.outbox.find(
        state=given.state, session_id=given.session_id, limit=given.limit, cursor=given.cursor
    )
    return found


async def settle_delivery(call: ApiCall) -> Delivery:
    parcel = await _parcel(call)
    if parcel.state not in ("unknown", "dead"):
        raise IllegalMove(
            f"The delivery is {parcel.state}.",
            hint="By hand, only what is unknown or dead is settled.",
        )
    outbox = call.api.store.outbox
    given: Settle = call.body
    if given.outcome == "sent":
        found: Delivery = await outbox.done(parcel)
    else:
        found = await outbox.failed(parcel, "settled by hand", outcome=given.outcome)
    return found


async def list_arrivals(call: ApiCall) -> Page[InboxItem]:
    given: InboxQuery = call.query
    found: Page[InboxItem] = await call.api.store.inbox.find(
        state=given.state, key=given.key, limit=given.limit, cursor=given.cursor
    )
    return found


async def list_people(call: ApiCall) -> People:
    given: PeopleQuery = call.query
    found = await call.api.store.people.find(role=given.role, limit=given.limit, after=given.after)
    return People(tuple(found))


async def set_role(call: ApiCall) -> Person:
    people = call.api.store.people
    await people.set_role(call.path["person"], call.body.role)
    found: Person | None = await people.get(call.path["person"])
    if found is None:
        raise NotFound(f"Nobody is called {call.path['person']!r}.")
    return found


async def list_pairings(call: ApiCall) -> Pairings:
    return Pairings(tuple(await call.api.store.people.waiting()))


async def approve_pairing(call: ApiCall) -> Person:
    found: Person = await call.api.store.people.approve(
        call.body.code, role=call.body.role, by=f"token:{call.caller.name}"
    )
    return found


async def _parcel(call: ApiCall) -> Delivery:
    given = call.path["id"]
    if not given.isascii() or not given.isdigit() or len(given) > 18:
        raise ConfigError("A delivery is named by its number.", hint="See GET /deliveries.")
    number = int(given)
    page = await call.api.store.outbox.find(limit=1, cursor=cursors.write(number - 1))
    for parcel in page.items:
        if parcel.id == number:
            found: Delivery = parcel
            return found
    raise NotFound(f"There is no delivery {number}.")


TABLE = (
    Operation(
        method="GET", path="/deliveries", summary="Deliveries in the order they were put in.",
        act=list_deliveries, role="owner", query=DeliveryQuery, answer=Page[Delivery],
    ),
    Operation(
        method="POST", path="/deliveries/{id}/settle", act=settle_delivery, role="owner",
        summary="Say what became of a delivery that is unknown or dead, or send it again.",
        body=Settle, answer=Delivery,
    ),
    Operation(
        method="GET", path="/inbox", summary="Accepted messages in the order they came.",
        act=list_arrivals, role="owner", query=InboxQuery, answer=Page[InboxItem],
    ),
    Operation(
        method="GET", path="/people", summary="People by identity.",
        act=list_people, role="owner", query=PeopleQuery, answer=People,
    ),
    Operation(
        method="PUT", path="/people/{person}/role", summary="What a person may do.",
        act=set_role, role="owner", body=NewRole, answer=Person,
    ),
    Operation(
        method="GET", path="/pairings", summary="Strangers who asked to be let in.",
        act=list_pairings, role="owner", answer=Pairings,
    ),
    Operation(
        method="POST", path="/pairings/approve", summary="Let the person with a code in.",
        act=approve_pairing, role="owner", body=Approval, answer=Person,
    ),
)  # fmt: skip

"""People: tells who may talk, who asks to, and who decided that."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final
from urllib.parse import urlencode

from tertulia.console.page_definition import CONSOLE, ConsolePage, PageCall, gather_values
from tertulia.records.people import ROLES

_LIMIT: Final = 100
_EVENTS: Final = 50


async def load_people(call: PageCall) -> dict[str, Any]:
    """Load the strangers who ask to be let in, and the people with their roles.

    The script loads the table with costs after the page: they are those of all people.
    """
    filters = call.choose("role", "after")
    values = await gather_values(
        pairings=call.operate("list_pairings"),
        people=call.operate("list_people", query={"limit": _LIMIT, **filters}),
    )
    people = values["people"].items
    spent = None
    if call.choose("part", "costs"):
        spent = (await call.operate("sum_usage", query={"by": "person"})).sums
    return {
        "pairings": values["pairings"].items,
        "people": people,
        "next": people[-1].id if len(people) == _LIMIT else None,
        "spent": spent,
        "costs_query": urlencode({**filters, "costs": "yes"}),
        "roles": ROLES,
        "role": call.query.get("role", ""),
    }


async def load_decisions(call: PageCall) -> dict[str, Any]:
    """Load what was decided about people, newest first, about all or one of them."""
    filters = call.choose("person")
    page = await call.operate(
        "list_people_events", query={"limit": _EVENTS, **filters, **call.choose("cursor")}
    )
    names = await load_names(call, [event.person for event in page.items])
    older = urlencode({**filters, "cursor": page.next or ""})
    return {
        "events": page.items,
        "older_events": page.next,
        "older_address": f"{CONSOLE}/people/decisions?{older}",
        "person": filters.get("person", ""),
        "names": names,
    }


async def load_names(call: PageCall, persons: Iterable[str]) -> dict[str, str]:
    """Load what people call themselves, by identity; for whoever has no name, the user id."""
    ids = " ".join({person: None for person in persons if person})
    if not ids:
        return {}
    page = await call.operate("list_people", query={"ids": ids})
    return {each.id: each.name or each.user_id for each in page.items}


PAGES = (
    ConsolePage(
        path="/people", name="people", title="People", section="people", role="owner",
        load=load_people, live=("live_pairings",), part="people",
    ),
    ConsolePage(
        path="/people/decisions", name="decisions", title="Who decided", section="people",
        role="owner", load=load_decisions,
    ),
)  # fmt: skip

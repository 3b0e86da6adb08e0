"""People: tells who may talk, and who asks to."""

from __future__ import annotations

from typing import Any, Final

from tertulia.console.page_definition import ConsolePage, PageCall, gather_values
from tertulia.records.people import ROLES

_LIMIT: Final = 100


async def load_people(call: PageCall) -> dict[str, Any]:
    """Load the strangers who ask to be let in, and the people with their roles."""
    query = {"limit": _LIMIT, **call.choose("role", "after")}
    values = await gather_values(
        pairings=call.operate("list_pairings"),
        people=call.operate("list_people", query=query),
        usage=call.operate("sum_usage", query={"by": "person"}),
        events=call.operate("list_people_events", query={"limit": 20, **call.choose("cursor")}),
    )
    people = values["people"].items
    return {
        "pairings": values["pairings"].items,
        "people": people,
        "next": people[-1].id if len(people) == _LIMIT else None,
        "spent": values["usage"].sums,
        "roles": ROLES,
        "events": values["events"].items,
        "older_events": values["events"].next,
        "role": call.query.get("role", ""),
    }


PAGES = (
    ConsolePage(
        path="/people", name="people", title="People", section="people", role="owner",
        load=load_people, live=("live_pairings",), part="people",
    ),
)  # fmt: skip

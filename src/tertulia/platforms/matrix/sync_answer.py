"""Reading the answer of /sync: the rooms in it, their events, and where a room concerns us."""

from __future__ import annotations

from collections.abc import Iterable

from tertulia.platforms.matrix.client_api import Json, as_dict, as_list, as_text


def rooms_of(answer: Json, kind: str) -> Iterable[tuple[str, Json]]:
    """Return the rooms of a kind (join, invite, leave) with their parts of the answer."""
    rooms = as_dict(as_dict(answer.get("rooms")).get(kind))
    return [(room_id, as_dict(part)) for room_id, part in rooms.items() if room_id.startswith("!")]


def events_of(part: Json, kind: str) -> list[Json]:
    """Return the events of a kind (state, timeline) in the part of a room."""
    events = as_list(as_dict(part.get(kind)).get("events"))
    return [event for event in events if isinstance(event, dict)]


def membership(event: Json, user_id: str) -> str | None:
    """Return our membership after an event, or None if the event is not about it."""
    if event.get("type") != "m.room.member" or event.get("state_key") != user_id:
        return None
    return as_text(as_dict(event.get("content")).get("membership"))


def is_join(event: Json, user_id: str) -> bool:
    """Return whether an event is our joining, and not a change of our name."""
    if membership(event, user_id) != "join":
        return False
    unsigned = as_dict(event.get("unsigned"))
    if "prev_content" in unsigned:
        return as_dict(unsigned["prev_content"]).get("membership") != "join"
    return "replaces_state" not in unsigned


def _is_invited_join(event: Json) -> bool:
    previous = as_dict(as_dict(event.get("unsigned")).get("prev_content"))
    return previous.get("membership") == "invite"


def start_positions(events: list[Json], user_id: str) -> list[int]:
    """Return the positions from which a room concerns us: an invitation, or a join without one."""
    return [
        position
        for position, event in enumerate(events)
        if membership(event, user_id) == "invite"
        or (is_join(event, user_id) and not _is_invited_join(event))
    ]


def after_start(events: list[Json], user_id: str) -> list[Json]:
    """Return the events since we were invited; what was written before was not for us."""
    starts = start_positions(events, user_id)
    if not starts:
        starts = [at for at, event in enumerate(events) if is_join(event, user_id)]
    return events[starts[-1] + 1 :] if starts else events

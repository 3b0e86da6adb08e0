"""The navigation: which pages a person sees in it, by their role."""

from __future__ import annotations

import msgspec

from tertulia.http.auth import Caller
from tertulia.records.people import ROLES, Role


class Section(msgspec.Struct, frozen=True):
    """An entry of the navigation. `is_first`: it stands at the bottom of a phone's screen, too.

    `is_counted`: beside its title stands how much waits there for the owner.
    """

    name: str
    path: str
    title: str
    role: Role = "owner"
    key: str = ""
    is_first: bool = False
    is_counted: bool = False


SECTIONS: tuple[Section, ...] = (
    Section("now", "/", "Now", "member", "n", True),
    Section("sessions", "/sessions", "Sessions", "member", "s", True),
    Section("search", "/search", "Search", "member", "", True),
    Section("deliveries", "/deliveries", "Deliveries", "owner", "b", True, is_counted=True),
    Section("chat", "/chat", "Chat", "guest"),
    Section("people", "/people", "People", "owner", "p", is_counted=True),
    Section("usage", "/usage", "Usage", "member", "u"),
    Section("schedules", "/schedules", "Schedules", "member"),
    Section("processes", "/processes", "Processes", "member"),
    Section("policies", "/policies", "Policies", "owner"),
    Section("platforms", "/platforms", "Platforms"),
    Section("nodes", "/nodes", "Nodes"),
    Section("browsers", "/browsers", "Browsers", "guest"),
)

_FIRST = 5  # as many fit on the screen of a phone


def sections_for(caller: Caller) -> tuple[Section, ...]:
    """Return the entries that lead to pages which this person may see."""
    rank = ROLES.index(caller.role)
    visible = [section for section in SECTIONS if ROLES.index(section.role) >= rank]
    if len(visible) <= _FIRST:
        visible = [msgspec.structs.replace(section, is_first=True) for section in visible]
    return tuple(visible)

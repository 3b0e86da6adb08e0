"""Promises of `sessions.find`: every filter, newest activity first, stable pages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tertulia.core.session import Session
from tertulia.core.source import Source
from tertulia.errors import ConfigError
from tertulia.store import Store
from tertulia.testing.fixtures import Handles, dm, user_message


def all_ids(
    store: Store, between: Callable[[], object] = lambda: None, **filters: Any
) -> list[str]:
    """Return the ids of all pages; call `between` between one page and the next."""
    sessions_found: list[Session] = []
    cursor = None
    while True:
        page = store.sessions.find(cursor=cursor, **filters)
        sessions_found += page.items
        if page.next is None:
            return [session.id for session in sessions_found]
        cursor = page.next
        between()


class SessionFindPromises:
    """Promises of `find`, `count` and `has_any`."""

    def populate(self, handles: Handles, store: Store) -> dict[str, str]:
        """Create some sessions; return their ids by a name for each, in the order of activity."""
        ids: dict[str, str] = {}

        def add(name: str, source: Source, **options: Any) -> None:
            ids[name] = store.sessions.open(source, **options).id
            handles.clock.forward(minutes=1)

        add("anna 1", dm("anna", user_name="Anna Bolena"))
        add("anna 2", dm("anna", user_name="Anna Bolena"), force_new=True)
        add("anna elsewhere", dm("anna", "signal"))
        add("ben", dm("ben"))
        add("ben in a group", Source("telegram", "g", chat_type="group", user_id="ben"))
        add("everybody", Source("telegram", "g", chat_type="group", chat_name="The Circle"))
        store.transcript(ids["ben"]).append(user_message("the harbour at dawn"))
        handles.clock.forward(minutes=1)
        store.sessions.rename(ids["anna 1"], "A trip to Cádiz")
        store.settle()
        return ids

    def test_sessions_are_ordered_by_activity(self, handles: Handles, store: Store) -> None:
        ids = self.populate(handles, store)
        by_activity = ["ben", "everybody", "ben in a group", "anna elsewhere", "anna 2", "anna 1"]
        assert all_ids(store) == [ids[name] for name in by_activity]

    @pytest.mark.parametrize(
        ("filters", "names"),
        [
            ({"state": "ended"}, ["anna 1"]),
            ({"state": "current", "platform": "signal"}, ["anna elsewhere"]),
            ({"platform": "signal"}, ["anna elsewhere"]),
            ({"platform": "matrix"}, []),
            ({"key": "agent:main:telegram:dm:anna"}, ["anna 2", "anna 1"]),
            ({"key": "agent:main:telegram:dm:anna", "state": "ended"}, ["anna 1"]),
            ({"key": "agent:main:telegram:dm:an"}, []),
            ({"person": "telegram:anna"}, ["anna 2", "anna 1"]),
            ({"person": "anna", "platform": "signal"}, ["anna elsewhere"]),
            ({"person": "ben"}, ["ben", "ben in a group"]),
            ({"person": "ben", "text": "harbour"}, ["ben"]),
            ({"person": "telegram:anna", "text": "harbour"}, []),
            ({"person": "nobody"}, []),
            ({"active_minutes": 3.5}, ["ben", "everybody", "ben in a group"]),
            ({"active_minutes": 3.5, "person": "ben"}, ["ben", "ben in a group"]),
            ({"text": "cadiz"}, ["anna 1"]),
            ({"text": "bolena"}, ["anna 2", "anna 1"]),
            ({"text": "bolena", "state": "current"}, ["anna 2"]),
            ({"text": "circle"}, ["everybody"]),
            ({"text": "harb*"}, ["ben"]),
            ({"text": '"'}, []),
        ],
    )
    def test_filters_limit_the_result(
        self, handles: Handles, store: Store, filters: dict[str, Any], names: list[str]
    ) -> None:
        ids = self.populate(handles, store)
        assert all_ids(store, **filters) == [ids[name] for name in names]
        assert all_ids(store, limit=1, **filters) == [ids[name] for name in names]

    def test_an_id_that_two_people_have_is_refused(self, handles: Handles, store: Store) -> None:
        self.populate(handles, store)
        with pytest.raises(ConfigError) as caught:
            store.sessions.find(person="anna")
        assert "telegram:anna" in str(caught.value)
        assert "signal:anna" in str(caught.value)

    @pytest.mark.parametrize(
        "filters",
        [
            {"limit": 0},
            {"limit": 1001},
            {"state": "open"},
            {"cursor": "x"},
            {"cursor": "WzFd"},
            {"cursor": "é"},
            {"active_minutes": float("nan")},
            {"active_minutes": 1e300},
        ],
    )
    def test_contradictory_filters_are_refused(self, store: Store, filters: dict[str, Any]) -> None:
        with pytest.raises(ConfigError) as caught:
            store.sessions.find(**filters)
        assert caught.value.hint

    def test_pages_hold_still_under_writes(
        self, handles: Handles, store: Store, other: Store
    ) -> None:
        quiet = []
        for number in range(40):
            quiet.append(store.sessions.open(dm(f"quiet{number}")).id)
            store.sessions.open(dm(f"loud{number}"))
            if number % 3:  # several have the same time
                handles.clock.forward(minutes=1)
        for number in range(0, 40, 4):
            store.sessions.end(quiet[number], "done")
        numbers = iter(range(1000))

        def write_between_pages() -> None:
            handles.clock.forward(minutes=1)
            other.sessions.open(dm(f"new{next(numbers)}"))
            other.sessions.open(dm(f"loud{next(numbers) % 40}"))

        sessions_found = all_ids(store, write_between_pages, limit=7)
        assert len(sessions_found) == len(set(sessions_found))
        # Sessions of the same time are ordered by their number, the newest first.
        assert [session_id for session_id in sessions_found if session_id in quiet] == quiet[::-1]

    def test_ended_sessions_are_counted(self, store: Store, other: Store) -> None:
        assert (store.sessions.has_any(), store.sessions.count()) == (False, 0)
        session = store.sessions.open(dm("anna"))
        store.sessions.end(session.id, "done")
        assert (other.sessions.has_any(), other.sessions.count()) == (True, 1)
        store.sessions.delete(session.id)
        assert (other.sessions.has_any(), other.sessions.count()) == (False, 0)

    def test_sessions_ended_before_a_time_are_listed_oldest_first(
        self, handles: Handles, store: Store
    ) -> None:
        ids = [store.sessions.open(dm(f"anna{number}")).id for number in range(5)]
        for session_id in ids[:4]:
            handles.clock.forward(minutes=1)
            store.sessions.end(session_id, "done")
        now = handles.clock.now()
        assert store.sessions.ended(before=now) == ids[:3]
        assert store.sessions.ended(before=now, limit=2) == ids[:2]

"""The table of `tertulia sessions list`."""

from __future__ import annotations

import tertulia
from tertulia import Session
from tertulia.cli import session_list
from tests.cli.conftest import Demo


def headings(sessions: list[Session], width: int) -> list[str]:
    table = session_list.table(sessions, dict.fromkeys((s.id for s in sessions), 0), width)
    return [str(column.header) for column in table.columns]


def test_narrow_terminals_show_fewer_columns(demo: Demo) -> None:
    with tertulia.open(demo.path) as store:
        sessions = [store.sessions.require(demo.old)]
    always = ["id", "name", "platform", "state", "active"]
    assert headings(sessions, 94) == always
    assert headings(sessions, 95) == [*always, "cost"]
    assert headings(sessions, 110) == [*always, "messages", "tokens", "cost"]

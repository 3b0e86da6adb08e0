"""The table of `tertulia sessions list`."""

from __future__ import annotations

import pytest
from rich.console import Console

import tertulia
from tertulia import Session, Source
from tertulia.cli import session_list
from tests.cli.conftest import CommandLine, Demo


def headings(sessions: list[Session], width: int) -> list[str]:
    names = {session.id: "x" for session in sessions}
    lengths = dict.fromkeys(names, 0)
    table = session_list.table(sessions, names, lengths, width)
    return [str(column.header) for column in table.columns]


def test_narrow_terminals_show_fewer_columns(demo: Demo) -> None:
    with tertulia.open(demo.path) as store:
        sessions = [store.sessions.require(demo.old)]
    assert headings(sessions, 39) == ["", "name"]
    assert headings(sessions, 60) == ["", "name", "where", "active", "id"]
    assert headings(sessions, 90) == ["", "name", "where", "active", "messages", "id"]
    wide = ["", "name", "where", "active", "messages", "tokens", "cost", "id"]
    assert headings(sessions, 130) == wide


@pytest.mark.parametrize("width", [80, 105, 125, 160])
def test_name_is_the_last_to_shrink(demo: Demo, width: int) -> None:
    with tertulia.open(demo.path) as store:
        session = store.sessions.require(demo.old)
    name = "A conversation about the garden"
    console = Console(width=width, color_system=None)
    with console.capture() as capture:
        console.print(session_list.table([session], {session.id: name}, {session.id: 2}, width))
    assert name in capture.get()


def test_mark_says_whether_a_session_goes_on(cli: CommandLine) -> None:
    text = cli("sessions", "list").stdout
    assert "Viaje a Lisboa" in text
    assert "○" in text
    assert "●" in text


def test_session_without_a_title_shows_what_was_said_first(demo: Demo) -> None:
    ana = Source("slack", "C1", user_id="U1", user_name="Ana")
    with tertulia.open(demo.path) as store, store.turn(ana, "Invoice, please"):
        pass
    text = CommandLine(demo.path)("sessions", "list").stdout
    (line,) = [line for line in text.splitlines() if "Invoice" in line]
    assert '"Invoice, please"' in line
    assert "slack, Ana" in line

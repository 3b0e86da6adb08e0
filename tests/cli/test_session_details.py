"""Facts of a session and search hits, as tables and JSON."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import tertulia
from tertulia import Store
from tertulia.cli import session_details
from tests.cli.conftest import Demo


@pytest.fixture
def store(demo: Demo) -> Iterator[Store]:
    with tertulia.open(demo.path) as opened:
        yield opened


def test_json_has_the_total_of_the_usage(store: Store, demo: Demo) -> None:
    fields = session_details.to_dict(store.sessions.require(demo.old))
    assert fields["usage"]["total"] == 812 + 64 + 2048
    assert fields["title"] == "Viaje a Lisboa"


def test_facts_leave_out_empty_values(store: Store, demo: Demo) -> None:
    def names(session_id: str) -> set[str]:
        table = session_details.facts(store.sessions.require(session_id), 4)
        return {str(cell) for cell in table.columns[0].cells}

    assert names(demo.old) - names(demo.hostile) == {"title", "ended", "cost"}


def test_details_are_shown_on_request_only(store: Store, demo: Demo) -> None:
    session = store.sessions.set_metadata(demo.old, {"imported": {"a": 1}})
    for whole in (False, True):
        table = session_details.facts(session, 4, whole=whole)
        names = {str(cell) for cell in table.columns[0].cells}
        assert ("metadata" in names) is whole
        assert ("key" in names) is whole


def test_hits_of_deleted_sessions_are_skipped(
    store: Store, demo: Demo, capsys: pytest.CaptureFixture[str]
) -> None:
    from rich.console import Console

    hits = store.search("soleado").items
    assert len(hits) == 1
    session_details.print_hits(Console(), hits, {demo.old: None}, "soleado")
    assert capsys.readouterr().out == ""
    session = store.sessions.require(demo.old)
    session_details.print_hits(Console(), hits, {demo.old: session}, "soleado")
    assert f"{demo.old} #4" in capsys.readouterr().out

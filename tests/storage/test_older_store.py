"""A store that an earlier version has filled is migrated with what waits in it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import tertulia
from tertulia import Source, Store
from tertulia.storage import statements
from tests.records.store_inspection import FAST, execute
from tests.servers.postgres import Server

ANA = Source("telegram", "42", user_id="42")


@pytest.fixture(params=["sqlite", "postgres"])
def empty(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The place of a database without any table."""
    if request.param == "sqlite":
        yield str(tmp_path / "talk.db")
        return
    running: Server = request.getfixturevalue("postgres")
    address = running.database()
    yield address
    running.drop(address)


def open_before(where: str, number: str, monkeypatch: pytest.MonkeyPatch) -> Store:
    """Open a store that has only the migrations before one."""
    everything = statements.migrations
    with monkeypatch.context() as patch:
        patch.setattr(
            statements,
            "migrations",
            lambda dialect: [script for script in everything(dialect) if script[0] < number],
        )
        return tertulia.open(where, settings=FAST)


def test_what_waited_before_pauses_had_a_beginning(
    empty: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_before(empty, "0009", monkeypatch) as old:
        old._indexer.stop()
        for key, attempts, not_before in (("a", 0, 5), ("b", 1, 6), ("c", 1, 2**52)):
            execute(
                old,
                "insert into inbox (key, source, body, state, attempts, not_before, received_at,"
                " is_next) values (?, ?, ?, 'waiting', ?, ?, 4, 1)",
                key,
                '{"platform": "telegram", "chat_id": "42"}',
                f'{{"text": "{key}", "message_id": null, "media": []}}',
                attempts,
                not_before,
            )
    with tertulia.open(empty, settings=FAST) as store:
        assert [item.text for item in store.inbox.claim()] == ["a", "b"]
        assert [item.text for item in store.inbox.find(state="waiting").items] == ["c"]
        assert store.check() == []

"""The store itself: opening, closing, zone, prompt, expunge. Its records have their own tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
import tzlocal

import tertulia
from tertulia import ConfigError, NotAStore, Settings, Source, Store, StoreError
from tertulia.testing import FakeClock

ANA = Source("telegram", "42", user_id="42", user_name="Ana")


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def store(tmp_path: Path, clock: FakeClock) -> Iterator[Store]:
    settings = Settings(zone="UTC", durability="fast")
    with tertulia.open(tmp_path / "talk.db", settings=settings, clock=clock) as store:
        yield store


def test_closed_store_refuses_calls(tmp_path: Path) -> None:
    with tertulia.open(tmp_path / "talk.db") as store:
        store.sessions.open(ANA)
    with pytest.raises(StoreError):
        store.sessions.count()


@pytest.mark.parametrize(
    ("name", "message"), [("moved_to", "were moved to"), ("moving", "being moved to")]
)
def test_moved_store_is_not_opened(tmp_path: Path, name: str, message: str) -> None:
    path = tmp_path / "talk.db"
    with tertulia.open(path) as store:
        value = {"name": name, "value": "postgresql://elsewhere"}
        store.context.db.write(lambda tx: tx.run("installation_set", value))
    with pytest.raises(NotAStore, match=message):
        tertulia.open(path)


def test_zone_is_that_of_the_settings_or_of_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tertulia.open(tmp_path / "a.db", settings=Settings(zone="Asia/Tokyo")) as store:
        assert str(store.context.zone) == "Asia/Tokyo"
    monkeypatch.setenv("TZ", "Europe/Madrid")
    monkeypatch.setattr(tzlocal, "get_localzone", lambda: ZoneInfo(os.environ["TZ"]))
    with tertulia.open(tmp_path / "b.db") as store:
        assert str(store.context.zone) == "Europe/Madrid"
    monkeypatch.delenv("TZ")
    monkeypatch.setattr(os, "readlink", lambda path: "/usr/share/zoneinfo/America/Lima")
    with tertulia.open(tmp_path / "c.db") as store:
        assert str(store.context.zone) == "America/Lima"


def test_unknown_machine_zone_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Mars/Olympus")
    monkeypatch.setattr(tzlocal, "get_localzone", lambda: ZoneInfo(os.environ["TZ"]))
    with pytest.raises(ConfigError, match="cannot be determined") as caught:
        tertulia.open(tmp_path / "talk.db")
    assert caught.value.field == "zone"


def test_context_prompt_names_the_session_ended_before(store: Store, clock: FakeClock) -> None:
    with store.turn(ANA, "hola") as turn:
        turn.add_assistant("¡hola!")
    clock.forward(days=3)
    session = store.sessions.open(ANA)
    assert turn.session.id in store.context_prompt(session)
    fork = store.sessions.fork(turn.session.id)  # its view contains the messages of its parent
    assert turn.session.id not in store.context_prompt(fork)


def test_expunge_deletes_only_sessions_that_ended_before(store: Store, clock: FakeClock) -> None:
    old = store.sessions.open(ANA)
    store.sessions.reset(old.key)
    time = clock.forward(hours=1)
    recent = store.sessions.current(old.key)
    assert recent is not None
    store.sessions.reset(old.key)
    assert store.expunge(ended_before=time) == 1
    assert store.sessions.get(old.id) is None
    assert store.sessions.get(recent.id) is not None


def test_message_id_may_be_a_number_or_text(store: Store) -> None:
    with store.turn(ANA, "hola", message_id=7) as turn:
        turn.add_assistant("¡hola!")
    with store.turn(ANA, "hola", message_id="7") as again:
        assert (again.duplicate, again.answer) == (True, "¡hola!")

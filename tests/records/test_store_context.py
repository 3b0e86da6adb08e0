"""The context that the records of a store share: clock, zone, redaction, process guard."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

import tertulia
from tertulia import ConfigError, Settings, Source
from tertulia.storage import installation
from tertulia.storage.base import Transaction
from tertulia.testing import FakeClock

ANA = Source("telegram", "42", user_id="42")


class NaiveClock:
    def now(self) -> datetime:
        return datetime(2026, 3, 4, 12)


def test_clock_is_read_in_utc(tmp_path: Path) -> None:
    tokyo = timezone(timedelta(hours=9))
    clock = FakeClock(datetime(2026, 3, 4, 21, tzinfo=tokyo))
    with tertulia.open(tmp_path / "talk.db", clock=clock) as store:
        assert store.context.clock.now() == clock.now()
        assert store.context.clock.now().tzinfo is UTC


def test_clock_without_a_time_zone_is_refused(tmp_path: Path) -> None:
    with tertulia.open(tmp_path / "talk.db", clock=NaiveClock()) as store:
        with pytest.raises(ConfigError, match="has no time zone") as caught:
            store.now()
        assert caught.value.field == "clock"


def test_zone_of_a_person_replaces_that_of_the_store(tmp_path: Path) -> None:
    with tertulia.open(tmp_path / "talk.db", settings=Settings(zone="Europe/Madrid")) as store:
        assert str(store.context.zone_of(None)) == "Europe/Madrid"
        assert str(store.context.zone_of("Asia/Tokyo")) == "Asia/Tokyo"


def test_keys_are_redacted_in_logs_only_on_request(tmp_path: Path) -> None:
    key = tertulia.session_key(ANA)
    with tertulia.open(tmp_path / "talk.db") as store:
        assert store.context.redacted_key(key) == key
    with tertulia.open(tmp_path / "talk.db", settings=Settings(redact_pii=True)) as store:
        shown_key = store.context.redacted_key(key)
        assert "42" not in shown_key.split(":")
        assert shown_key == store.context.redacted_key(key)


def test_process_guard_of_the_settings_is_called_with_the_key(tmp_path: Path) -> None:
    settings = Settings(has_active_processes=lambda key: key == "busy")
    with tertulia.open(tmp_path / "talk.db", settings=settings) as store:
        assert store.context.has_processes("busy")
        assert not store.context.has_processes("idle")


def test_a_write_is_stored_whole_or_not_at_all(tmp_path: Path) -> None:
    def put_then_fail(tx: Transaction) -> None:
        installation.put(tx, "note", "lost")
        raise LookupError

    with tertulia.open(tmp_path / "talk.db") as store:
        with pytest.raises(LookupError):
            store.context.write(put_then_fail)
        assert store.context.read(lambda tx: installation.get(tx, "note")) is None
        store.context.write(lambda tx: installation.put(tx, "note", "kept"))
    with tertulia.open(tmp_path / "talk.db") as store:
        assert store.context.read(lambda tx: installation.get(tx, "note")) == "kept"

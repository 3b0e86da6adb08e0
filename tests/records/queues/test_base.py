"""Checks, waiting and paging that the queues share."""

from __future__ import annotations

import threading
import time
from typing import NamedTuple

import pytest

from tertulia import ConfigError, Source, Store
from tertulia.core import cursor as cursors
from tertulia.records.queues import base
from tertulia.testing import FakeClock

ANA = Source("telegram", "42", user_id="42")


class Entry(NamedTuple):
    id: int


def test_choice_must_be_an_allowed_word() -> None:
    base.check_choice("state", "done", ("waiting", "done"))
    with pytest.raises(ConfigError, match="Allowed: waiting, done") as caught:
        base.check_choice("state", "asleep", ("waiting", "done"))
    assert caught.value.field == "state"


@pytest.mark.parametrize("limit", [0, base.MAX_LIMIT + 1])
def test_limit_out_of_range_is_refused(limit: int) -> None:
    with pytest.raises(ConfigError):
        base.check_limit(limit)


def test_lease_is_converted_to_microseconds() -> None:
    assert base.lease_micros(1.5) == 1_500_000
    for seconds in (0, -1, float("inf"), float("nan")):
        with pytest.raises(ConfigError):
            base.lease_micros(seconds)


def test_retry_time_is_never_in_the_past(clock: FakeClock) -> None:
    now = clock.now()
    assert base.time_after(now, None) == now
    assert base.time_after(now, -5) == now
    assert (base.time_after(now, 5) - now).total_seconds() == 5
    with pytest.raises(ConfigError, match="number of seconds"):
        base.time_after(now, 1e300)


def test_page_has_a_cursor_only_if_there_is_more() -> None:
    entries = [Entry(3), Entry(5), Entry(8)]
    page = base.page_of(entries, 2)
    assert page.items == (Entry(3), Entry(5))
    assert page.next == cursors.encode(5)
    assert base.id_before_page(page.next) == 5
    assert base.page_of(entries, 3).next is None
    assert base.id_before_page(None) == 0


def test_wait_returns_false_after_its_time(store: Store) -> None:
    began = time.monotonic()
    assert not store.inbox.wait(0.05)
    assert time.monotonic() - began >= 0.05


def test_wait_is_woken_by_a_notification(store: Store) -> None:
    thread = threading.Timer(0.1, store.inbox.put, (ANA, "hola"))
    thread.start()
    assert store.inbox.wait(60)
    thread.join()


def test_only_claimed_entries_can_be_settled(store: Store) -> None:
    with pytest.raises(ConfigError, match="claim") as caught:
        store.inbox.done(5)  # type: ignore[arg-type]
    assert caught.value.field == "item"
    with pytest.raises(ConfigError, match="claim") as caught:
        store.outbox.done("x")  # type: ignore[arg-type]
    assert caught.value.field == "delivery"

"""The mechanism of every queue: claim, wait, renew, settle and find."""

from __future__ import annotations

import threading
import time
from typing import NamedTuple

import pytest

from tertulia import ConfigError, Source, Store
from tertulia.core import cursor as cursors
from tertulia.records.queues import base
from tertulia.storage.base import Params, Transaction
from tertulia.testing import FakeClock

ANA = Source("telegram", "42", user_id="42")


class Entry(NamedTuple):
    id: int


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


def test_page_has_a_cursor_only_if_there_is_more(store: Store) -> None:
    entries = [Entry(3), Entry(5), Entry(8)]

    def read(tx: Transaction, params: Params) -> list[Entry]:
        return [entry for entry in entries if entry.id > params["after"]][: params["limit"]]

    page = base.find(store.context, 2, None, read)
    assert page.items == (Entry(3), Entry(5))
    assert page.next == cursors.encode(5)
    rest = base.find(store.context, 2, page.next, read)
    assert (rest.items, rest.next) == ((Entry(8),), None)
    assert base.find(store.context, 3, None, read).next is None
    assert base.find(store.context, 3, None, read, first=5).items == (Entry(8),)


def test_wait_returns_false_after_its_time(store: Store) -> None:
    began = time.monotonic()
    assert not store.inbox.wait(0.05)
    assert time.monotonic() - began >= 0.05


def test_wait_is_woken_by_a_notification(store: Store) -> None:
    thread = threading.Timer(0.1, store.inbox.put, (ANA, "hola"))
    thread.start()
    assert store.inbox.wait(60)
    thread.join()


@pytest.mark.parametrize(
    ("queue", "field"),
    [("inbox", "item"), ("outbox", "delivery"), ("schedules", "occurrence")],
)
def test_only_claimed_entries_can_be_renewed_or_settled(
    store: Store, queue: str, field: str
) -> None:
    for call in ("renew", "done"):
        with pytest.raises(ConfigError, match="such as this store returns") as caught:
            getattr(getattr(store, queue), call)(None)
        assert caught.value.field == field


def test_entries_are_counted_up_to_a_limit(store: Store) -> None:
    for number in range(3):
        store.inbox.put(Source("telegram", "42", user_id="42"), "x", message_id=number)
        store.outbox.put("hello", "telegram:42")
    store.inbox.claim()
    assert (store.inbox.count("waiting"), store.inbox.count("taken")) == (2, 1)
    assert (store.outbox.count("waiting"), store.outbox.count("waiting", limit=2)) == (3, 2)
    with pytest.raises(ConfigError):
        store.outbox.count("gone")  # type: ignore[arg-type]

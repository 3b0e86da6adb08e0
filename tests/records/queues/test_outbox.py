"""The outbox on SQLite. `tertulia.testing` has the promises that both databases keep."""

from __future__ import annotations

import pytest

from tertulia import ConfigError, NotFound, Source, StaleWrite, Store
from tertulia.records.queues import outbox

ANA = Source("telegram", "42", user_id="42", account="work")


def test_sent_delivery_stays_stored(store: Store) -> None:
    store.outbox.put("hello", "telegram:42")
    store.outbox.done(*store.outbox.claim())
    assert [delivery.state for delivery in store.outbox.find().items] == ["sent"]


def test_same_key_is_put_in_once(store: Store) -> None:
    first = store.outbox.put("hello", "telegram:42", delivery="k")
    again = store.outbox.put("changed", "telegram:42", delivery="k")
    assert again == first
    assert len(store.outbox.find().items) == 1


def test_account_of_the_origin_is_used_only_in_its_own_chat(store: Store) -> None:
    (back,) = outbox.build_deliveries(store.context, "hello", "origin", ANA)
    (other,) = outbox.build_deliveries(store.context, "hello", "telegram:43", ANA)
    assert (back.account, back.chat_id) == ("work", "42")
    assert (other.account, other.chat_id) == ("", "43")
    assert outbox.lane_of(back) != outbox.lane_of(other)


def test_long_text_is_split_and_its_first_part_has_the_key(store: Store) -> None:
    parts = outbox.build_deliveries(store.context, "x " * 5000, "telegram:42", None, delivery="k")
    assert [part.delivery for part in parts] == ["k", "k/2", "k/3"]


def test_key_that_no_database_can_index_is_replaced(store: Store) -> None:
    (part,) = outbox.build_deliveries(
        store.context, "hello", "telegram:42", None, delivery="k\0" * 999
    )
    assert part.delivery.isprintable()
    assert len(part.delivery) < 999


def test_target_without_a_chat_needs_a_home(store: Store) -> None:
    with pytest.raises(ConfigError, match="no home channel for telegram"):
        store.outbox.put("hello", "telegram")


def test_settling_an_unclaimed_delivery_names_its_state(store: Store) -> None:
    store.outbox.put("hello", "telegram:42")
    (delivery,) = store.outbox.claim()
    store.outbox.done(delivery)
    with pytest.raises(StaleWrite, match="sent now"):
        store.outbox.renew(delivery)


def test_deleted_delivery_is_not_found(store: Store) -> None:
    session = store.sessions.open(ANA)
    store.outbox.put("hello", "telegram:42", session_id=session.id)
    (delivery,) = store.outbox.claim()
    store.sessions.delete(session.id)
    with pytest.raises(NotFound, match="no delivery"):
        store.outbox.renew(delivery)

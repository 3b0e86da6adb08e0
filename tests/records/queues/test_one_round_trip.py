"""Accepting, claiming and settling in one round trip: the same results, also without an answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tertulia
from tertulia import LimitExceeded, Settings, Source, StaleWrite, Store
from tertulia.records.queues.inbox import Inbox, claim_person
from tests.records.store_inspection import execute, without_index
from tests.servers.empty_stores import NewPlace
from tests.servers.postgres import Server
from tests.servers.proxy import Cut, Proxy, proxy

ANA = Source("telegram", "ana", user_id="ana")
CUTS: list[Cut] = ["request", "answer", "farewell"]


@pytest.fixture
def line(postgres: Server) -> Iterator[tuple[Store, Proxy]]:
    """A store behind a proxy, and the proxy."""
    address = postgres.database(postgres.template)
    settings = Settings(zone="UTC", remember=True)
    with (
        proxy(address) as running,
        without_index(tertulia.open(running.address, settings=settings)) as store,
    ):
        # Only the calls of the test use the line.
        setattr(store.context.db, "notify", lambda channel: None)  # noqa: B010
        yield store, running
        assert store.check() == []
    postgres.drop(address)


@pytest.mark.parametrize("cut", CUTS)
def test_message_is_accepted_once_though_the_line_breaks(
    line: tuple[Store, Proxy], cut: Cut
) -> None:
    store, running = line
    store.inbox.put(ANA, "before", message_id=1)
    running.cut_at_next(cut)
    item = store.inbox.put(ANA, "hello", message_id=2)
    assert item.is_new
    assert [stored.text for stored in store.inbox.find().items] == ["before", "hello"]
    assert not store.inbox.put(ANA, "hello", message_id=2).is_new


@pytest.mark.parametrize("cut", CUTS)
def test_deliveries_are_settled_once_though_the_line_breaks(
    line: tuple[Store, Proxy], cut: Cut
) -> None:
    store, running = line
    for text in ("one", "two", "three"):
        store.outbox.put(text, "telegram:ana")
    store.outbox.put("elsewhere", "telegram:ben")
    claimed = store.outbox.claim()
    assert len(claimed) == 2
    running.cut_at_next(cut)
    settled = store.outbox.done_many([(delivery, "id") for delivery in claimed])
    assert [delivery.state for delivery in settled if not isinstance(delivery, StaleWrite)] == [
        "sent", "sent",
    ]  # fmt: skip
    assert [delivery.body["text"] for delivery in store.outbox.claim()] == ["two"]


@pytest.mark.parametrize("cut", CUTS)
def test_claim_without_an_answer_is_given_out_again_after_its_lease(
    line: tuple[Store, Proxy], cut: Cut
) -> None:
    store, running = line
    store.inbox.put(ANA, "hello", message_id=1)
    running.cut_at_next(cut)
    items = store.inbox.claim(lease_seconds=0.001)
    if cut == "answer" and not items:
        assert store.inbox.wait(60)
        items = store.inbox.claim()
    assert [item.text for item in items] == ["hello"]


def test_lost_claim_among_many_is_reported_for_itself(store: Store) -> None:
    store.outbox.put("one", "telegram:ana")
    store.outbox.put("two", "telegram:ben")
    first, second = store.outbox.claim()
    store.outbox.failed(first, "the platform refused", outcome="dead")
    store.outbox.failed(first, "again", outcome="retry")
    lost, sent = store.outbox.done_many([(first, None), (second, None)])
    assert isinstance(lost, StaleWrite)
    assert not isinstance(sent, StaleWrite)
    assert sent.state == "sent"


def test_accounts_get_no_more_than_their_room(store: Store) -> None:
    for number in range(4):
        for account in ("", "second"):
            origin = Source("telegram", f"c{number}", account=account)
            store.outbox.put("hello", "origin", origin=origin)
    rooms = {("telegram", ""): 1, ("telegram", "second"): 3, ("web", None): 5}
    claimed = store.outbox.claim(100, accounts=rooms)
    assert Counter(delivery.account for delivery in claimed) == {"": 1, "second": 3}
    # In turn, so that the first account does not take all.
    again = store.outbox.claim(2, accounts=[("telegram", ""), ("telegram", "second")])
    assert sorted(delivery.account for delivery in again) == ["", "second"]


def test_limit_and_links_are_left_to_the_general_path(store: Store) -> None:
    store.inbox.put(ANA, "one", message_id=1, waiting_limit=1)
    with pytest.raises(LimitExceeded):
        store.inbox.put(ANA, "two", message_id=2, waiting_limit=1)
    with pytest.raises(LimitExceeded):
        store.inbox.put(
            Source("telegram", "ben", user_id="ben"), "x", message_id=1, waiting_limit=0
        )
    assert not store.inbox.put(ANA, "one", message_id=1, waiting_limit=1).is_new


# -- the order of claims, against a model

PEOPLE = ["ana", "ben", "cara", "dan"]
messages = st.lists(st.tuples(st.sampled_from(PEOPLE), st.integers(0, 3)), max_size=12)
running = st.dictionaries(st.sampled_from(PEOPLE), st.integers(0, 3), max_size=3)
claims = st.lists(
    st.tuples(st.integers(1, 5), st.none() | st.integers(1, 3), running), min_size=1, max_size=3
)


@pytest.fixture(scope="module")
def any_store(new_place: NewPlace) -> Iterator[Store]:
    """One store of each database for all examples."""
    settings = Settings(durability="fast")
    with new_place() as place, without_index(tertulia.open(place, settings=settings)) as store:
        yield store


@given(messages=messages, claims=claims)
def test_claims_go_round_the_people(
    any_store: Store, messages: list[tuple[str, int]], claims: list[Any]
) -> None:
    execute(any_store, "delete from inbox")
    inbox = Inbox(any_store.context)
    waiting: dict[tuple[str, int], list[int]] = {}
    for number, (person, chat) in enumerate(messages):
        source = Source("telegram", f"{person}-{chat}", chat_type="group", user_id=person)
        item = inbox.put(source, "x", message_id=number)
        waiting.setdefault((claim_person(source), chat), []).append(item.id)
    last = ""
    taken: set[tuple[str, int]] = set()
    for limit, per_person, by_name in claims:
        counts = {
            claim_person(Source("telegram", "x", user_id=name)): count
            for name, count in by_name.items()
        }
        expected, last = _expected(waiting, taken, last, limit, per_person, counts)
        items = inbox.claim(limit, per_person=per_person, running=counts)
        assert [item.id for item in items] == sorted(expected)


def _expected(
    waiting: dict[tuple[str, int], list[int]],
    taken: set[tuple[str, int]],
    last: str,
    limit: int,
    per_person: int | None,
    running: dict[str, int],
) -> tuple[list[int], str]:
    """Return what a claim should get, and whom it serves last: one of each person in turn."""
    counts = Counter(running)
    claimed: list[int] = []
    is_served = True
    while is_served and len(claimed) < limit:
        is_served = False
        people = sorted({person for person, _ in waiting}, key=lambda name: (name <= last, name))
        for person in people:
            heads = {
                chat: ids[0]
                for chat, ids in waiting.items()
                if chat[0] == person and chat not in taken
            }
            is_full = per_person is not None and counts[person] >= per_person
            if not heads or is_full or len(claimed) == limit:
                continue
            chat = min(heads, key=lambda chat: heads[chat])
            claimed.append(heads[chat])
            taken.add(chat)
            counts[person] += 1
            last, is_served = person, True
    return claimed, last

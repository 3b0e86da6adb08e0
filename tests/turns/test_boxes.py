"""The outbox and the inbox: in order, each thing with one taker, each outcome told once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tertulia import ConfigError, HomeChannel, NotFound, Source, StaleWrite, Store
from tertulia.records.inbox import Arrival
from tertulia.records.outbox import Parcel
from tertulia.testing import FakeClock, Stage
from tertulia.testing.stage import at_once
from tests.storage.inside import sqlite_of
from tests.turns.scene import ANA, BEN, ask, execute, until


def texts(parcels: list[Parcel] | tuple[Parcel, ...]) -> list[str]:
    return [parcel.body["text"] for parcel in parcels]


def words(arrivals: list[Arrival] | tuple[Arrival, ...]) -> list[str | None]:
    return [arrival.text for arrival in arrivals]


def let_claims_run_out(store: Store) -> None:
    for box in ("outbox", "inbox"):
        execute(store, f"update {box} set lease_until = 1 where lease_until > 0")


# -- the outbox


def test_a_delivery_is_put_in_and_sent(store: Store, other: Store, clock: FakeClock) -> None:
    put = store.outbox.put("hello", "telegram:42:7", session_id="s1")
    assert (put.state, put.attempts, put.sent_at) == ("waiting", 0, None)
    assert (put.platform, put.chat_id, put.thread_id) == ("telegram", "42", "7")
    assert put.delivery
    assert (put.created_at, put.not_before) == (clock.now(), clock.now())
    (claimed,) = other.outbox.claim()
    assert (claimed.id, claimed.state, claimed.attempts) == (put.id, "sending", 1)
    sent = store.outbox.done(claimed)
    assert (sent.state, sent.sent_at) == ("sent", clock.now())
    assert store.outbox.claim() == []


def test_the_same_delivery_is_put_in_once(store: Store, other: Store) -> None:
    first = store.outbox.put("hello", "telegram:42", delivery="d1")
    again = other.outbox.put("hello?", "telegram:43", delivery="d1")
    assert again == first
    store.outbox.done(*store.outbox.claim())
    assert other.outbox.put("hello", "telegram:42", delivery="d1").state == "sent"
    assert store.outbox.claim() == []


def test_two_deliveries_have_two_keys(store: Store) -> None:
    keys = {store.outbox.put("hello", "telegram:42").delivery for _ in range(10)}
    assert len(keys) == 10


def test_a_delivery_put_in_at_once_from_everywhere_is_there_once(
    stage: Stage, store: Store
) -> None:
    handles = [stage.open() for _ in range(3)]
    put = at_once(
        *(lambda h=h: h.outbox.put("hi", "telegram:42", delivery="d") for h in handles * 3)
    )
    assert len({parcel.id for parcel in put}) == 1
    assert len(store.outbox.find().items) == 1


def test_each_chat_is_sent_to_in_order(store: Store, other: Store) -> None:
    places = ("telegram:1", "telegram:2", "telegram:1:9", "discord:1", "local")
    for number in range(3):
        for place in places:
            store.outbox.put(f"{place} {number}", place)
    for number in range(3):
        claimed = other.outbox.claim(limit=100)
        assert texts(claimed) == [f"{place} {number}" for place in places]
        assert store.outbox.claim(limit=100) == []
        for parcel in claimed:
            other.outbox.done(parcel)


def test_two_accounts_are_two_chats(store: Store) -> None:
    for account in ("", "second"):
        origin = Source("telegram", "42", account=account)
        store.outbox.put(f"by {account}", "origin", origin=origin)
    assert texts(store.outbox.claim()) == ["by ", "by second"]


def test_a_claim_takes_the_oldest_first_and_no_more_than_asked(store: Store) -> None:
    for number in range(5):
        store.outbox.put(str(number), f"telegram:{number}")
    assert texts(store.outbox.claim(limit=2)) == ["0", "1"]
    assert texts(store.outbox.claim(limit=2)) == ["2", "3"]
    assert texts(store.outbox.claim(limit=2)) == ["4"]


def test_two_claimers_never_get_the_same(stage: Stage) -> None:
    handles = [stage.open() for _ in range(4)]
    for number in range(60):
        handles[0].outbox.put(str(number), f"telegram:{number % 20}")

    def work(store: Store) -> list[str]:
        sent: list[str] = []
        while claimed := store.outbox.claim(limit=3):
            sent += texts(claimed)
            for parcel in claimed:
                store.outbox.done(parcel)
        return sent

    found = [text for part in at_once(*(lambda h=h: work(h) for h in handles)) for text in part]
    rest = work(handles[0])  # who found all chats under way has stopped early
    assert sorted(found + rest, key=int) == [str(number) for number in range(60)]


def test_a_send_that_failed_is_tried_again_and_nothing_overtakes_it(
    store: Store, clock: FakeClock
) -> None:
    store.outbox.put("first", "telegram:42")
    store.outbox.put("second", "telegram:42")
    store.outbox.put("other chat", "telegram:43")
    first, elsewhere = store.outbox.claim()
    waiting = store.outbox.failed(first, "try later", retry_after=30)
    assert (waiting.state, waiting.problem) == ("waiting", "try later")
    store.outbox.done(elsewhere)
    clock.forward(seconds=29)
    assert store.outbox.claim() == []
    clock.forward(seconds=1)
    (again,) = store.outbox.claim()
    assert (again.id, again.attempts) == (first.id, 2)
    store.outbox.done(again)
    assert texts(store.outbox.claim()) == ["second"]


def test_without_a_pause_it_is_due_at_once(store: Store) -> None:
    store.outbox.put("hello", "telegram:42")
    for attempt in range(1, 4):
        (parcel,) = store.outbox.claim()
        assert parcel.attempts == attempt
        store.outbox.failed(parcel, "again")


@pytest.mark.parametrize("outcome", ["dead", "unknown"])
def test_what_will_not_be_sent_makes_way_and_stays_visible(store: Store, outcome: Any) -> None:
    store.outbox.put("first", "telegram:42")
    store.outbox.put("second", "telegram:42")
    (first,) = store.outbox.claim()
    ended = store.outbox.failed(first, "blocked by the person", outcome=outcome)
    assert (ended.state, ended.problem) == (outcome, "blocked by the person")
    assert texts(store.outbox.claim()) == ["second"]
    assert texts(store.outbox.find(state=outcome).items) == ["first"]


@pytest.mark.parametrize("outcome", ["dead", "unknown"])
def test_what_was_given_up_can_be_sent_again_by_hand(store: Store, outcome: Any) -> None:
    store.outbox.put("hello", "telegram:42")
    (claimed,) = store.outbox.claim()
    ended = store.outbox.failed(claimed, "?", outcome=outcome)
    assert store.outbox.claim() == []
    assert store.outbox.failed(ended, "sent again by hand").state == "waiting"
    (again,) = store.outbox.claim()
    assert again.delivery == claimed.delivery
    assert store.outbox.done(again).state == "sent"


def test_a_sender_that_is_lost_leaves_an_unknown_outcome(store: Store, other: Store) -> None:
    store.outbox.put("first", "telegram:42")
    store.outbox.put("second", "telegram:42")
    (first,) = store.outbox.claim()
    assert other.outbox.claim() == []
    let_claims_run_out(store)
    assert texts(other.outbox.claim()) == ["second"]
    (lost,) = other.outbox.find(state="unknown").items
    assert (lost.id, lost.attempts) == (first.id, 1)
    assert lost.problem
    # Whoever was only slow may still tell what became of it.
    assert store.outbox.done(first).state == "sent"


def test_a_lease_ends_by_itself(store: Store, other: Store) -> None:
    store.outbox.put("hello", "telegram:42")
    store.outbox.claim(lease_seconds=0.05)
    until(
        lambda: other.outbox.claim() == [] and other.outbox.find(state="unknown").items,
        "the claim runs out",
    )


def test_a_claim_that_is_no_longer_yours_settles_nothing(store: Store, other: Store) -> None:
    store.outbox.put("hello", "telegram:42")
    (stale,) = store.outbox.claim()
    let_claims_run_out(store)
    other.outbox.claim()
    (unknown,) = other.outbox.find(state="unknown").items
    other.outbox.failed(unknown, "sent again by hand")
    refused: list[Callable[[], object]] = [
        lambda: store.outbox.done(stale),
        lambda: store.outbox.failed(stale, "?"),
        lambda: store.outbox.failed(stale, "?", outcome="dead"),
    ]
    for settle in refused:  # while it waits again
        with pytest.raises(StaleWrite):
            settle()
    (claimed,) = other.outbox.claim()
    for settle in refused:  # while another sends it
        with pytest.raises(StaleWrite):
            settle()
    other.outbox.done(claimed)
    for settle in [*refused, lambda: other.outbox.done(claimed)]:  # when it was sent
        with pytest.raises(StaleWrite):
            settle()
    (sent,) = store.outbox.find().items
    assert (sent.state, sent.attempts) == ("sent", 2)


def test_what_was_never_claimed_cannot_be_settled(store: Store) -> None:
    parcel = store.outbox.put("hello", "telegram:42")
    with pytest.raises(StaleWrite):
        store.outbox.done(parcel)
    assert texts(store.outbox.claim()) == ["hello"]


def test_with_its_session_a_delivery_is_deleted(store: Store) -> None:
    session = store.sessions.open(ANA)
    store.outbox.put("hello", "telegram:42", session_id=session.id)
    (claimed,) = store.outbox.claim()
    store.sessions.delete(session.id)
    assert store.outbox.find().items == ()
    with pytest.raises(NotFound):
        store.outbox.done(claimed)


def test_the_outbox_is_listed_in_pages(store: Store) -> None:
    for number in range(7):
        store.outbox.put(str(number), f"telegram:{number}", session_id=f"s{number % 2}")
    found: list[str] = []
    cursor = None
    while True:
        page = store.outbox.find(limit=3, cursor=cursor)
        found += texts(page.items)
        store.outbox.put("new", "telegram:9", delivery="new")  # comes behind, and moves nothing
        cursor = page.next
        if cursor is None:
            break
    assert found == [*map(str, range(7)), "new"]
    assert texts(store.outbox.find(session_id="s1").items) == ["1", "3", "5"]
    store.outbox.claim(limit=2)
    assert texts(store.outbox.find(state="sending").items) == ["0", "1"]
    assert store.outbox.find(limit=8).next is None


@pytest.mark.parametrize(
    "ask_for",
    [
        lambda store: store.outbox.find(state="lost"),
        lambda store: store.outbox.find(limit=0),
        lambda store: store.outbox.find(cursor="nonsense"),
        lambda store: store.outbox.claim(limit=0),
        lambda store: store.outbox.claim(lease_seconds=0),
        lambda store: store.outbox.put("hello", "nowhere:42"),
        lambda store: store.outbox.put("hello", "telegram"),
        lambda store: store.inbox.find(state="lost"),
        lambda store: store.inbox.find(limit=0),
        lambda store: store.inbox.find(cursor="nonsense"),
        lambda store: store.inbox.claim(limit=-1),
        lambda store: store.inbox.claim(lease_seconds=float("nan")),
    ],
)
def test_what_makes_no_sense_is_refused(store: Store, ask_for: Callable[[Store], Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        ask_for(store)
    assert caught.value.hint


@pytest.mark.parametrize("wrong", [{"outcome": "perhaps"}, {"retry_after": float("inf")}])
def test_an_outcome_that_makes_no_sense_is_refused(store: Store, wrong: dict[str, Any]) -> None:
    store.outbox.put("hello", "telegram:42")
    (parcel,) = store.outbox.claim()
    with pytest.raises(ConfigError):
        store.outbox.failed(parcel, "?", **wrong)
    assert store.outbox.done(parcel).state == "sent"


def test_a_home_and_an_origin_are_places(stage: Stage) -> None:
    store = stage.open(homes={"telegram": HomeChannel("99", thread_id="3")})
    store.outbox.put("home", "telegram")
    store.outbox.put("back", "origin", origin=ANA)
    store.outbox.put("file", "local")
    places = [(p.platform, p.chat_id, p.thread_id) for p in store.outbox.find().items]
    assert places == [("telegram", "99", "3"), ("telegram", "42", None), ("local", None, None)]


# -- the inbox


def test_a_message_is_accepted_and_answered(store: Store, other: Store, clock: FakeClock) -> None:
    picture = {"type": "image", "path": "cat.png"}
    put = store.inbox.put(ANA, "hello", message_id=981, media=[picture])
    assert (put.is_new, put.state, put.attempts) == (True, "waiting", 0)
    assert put.received_at == clock.now()
    assert put.key == store.sessions.key(ANA)
    (claimed,) = other.inbox.claim()
    assert (claimed.source, claimed.text, claimed.message_id) == (ANA, "hello", "981")
    assert (claimed.media, claimed.state, claimed.attempts) == ((picture,), "taken", 1)
    other.inbox.done(claimed)
    assert store.inbox.claim() == []
    assert words(store.inbox.find(state="done").items) == ["hello"]


@pytest.mark.parametrize("text", [None, "", "half a pair: \ud800", "nul: \x00"])
def test_whatever_was_said_is_given_back(store: Store, text: str | None) -> None:
    store.inbox.put(ANA, text)
    assert words(store.inbox.claim()) == [text]


def test_the_same_message_is_accepted_once(store: Store, other: Store) -> None:
    first = store.inbox.put(ANA, "hello", message_id="1")
    again = other.inbox.put(ANA, "hello (edited)", message_id=1)
    assert (again.is_new, again.id, again.text) == (False, first.id, "hello")
    (claimed,) = store.inbox.claim()
    assert other.inbox.put(ANA, "hello", message_id="1").state == "taken"
    store.inbox.done(claimed)
    assert other.inbox.put(ANA, "hello", message_id="1").state == "done"
    assert store.inbox.claim() == []


def test_an_equal_id_elsewhere_is_another_message(store: Store) -> None:
    for source in (
        ANA,
        BEN,
        Source("discord", "42"),
        Source("telegram", "42", account="second"),
    ):
        assert store.inbox.put(source, "hello", message_id="1").is_new


@pytest.mark.parametrize("message_id", [None, ""])
def test_a_message_without_an_id_is_always_new(store: Store, message_id: str | None) -> None:
    assert store.inbox.put(ANA, "hello", message_id=message_id).is_new
    assert store.inbox.put(ANA, "hello", message_id=message_id).is_new


def test_a_message_accepted_at_once_from_everywhere_is_there_once(stage: Stage) -> None:
    handles = [stage.open() for _ in range(3)]
    put = at_once(*(lambda h=h: h.inbox.put(ANA, "hi", message_id="1") for h in handles * 3))
    assert sum(arrival.is_new for arrival in put) == 1
    assert len({arrival.id for arrival in put}) == 1


def test_each_conversation_is_answered_in_order_and_one_at_a_time(
    store: Store, other: Store
) -> None:
    for number in range(3):
        for source in (ANA, BEN):
            store.inbox.put(source, f"{source.chat_id} {number}")
    for number in range(3):
        claimed = other.inbox.claim(limit=10)
        assert words(claimed) == [f"42 {number}", f"43 {number}"]
        assert store.inbox.claim(limit=10) == []
        for arrival in claimed:
            other.inbox.done(arrival)


def test_linked_chats_are_one_conversation(store: Store, clock: FakeClock) -> None:
    elsewhere = Source("signal", "+34", user_id="+34")
    store.people.accept_link(elsewhere, store.people.offer_link(ANA))
    store.inbox.put(ANA, "one")
    store.inbox.put(elsewhere, "two")
    (first,) = store.inbox.claim()
    assert (first.text, store.inbox.claim()) == ("one", [])
    store.inbox.done(first)
    assert words(store.inbox.claim()) == ["two"]


def test_two_takers_never_get_the_same(stage: Stage) -> None:
    handles = [stage.open() for _ in range(4)]
    for number in range(60):
        source = Source("telegram", str(number % 20))
        handles[0].inbox.put(source, str(number), message_id=number)

    def work(store: Store) -> list[str | None]:
        taken: list[str | None] = []
        while claimed := store.inbox.claim(limit=3):
            taken += words(claimed)
            for arrival in claimed:
                store.inbox.done(arrival)
        return taken

    found = [text for part in at_once(*(lambda h=h: work(h) for h in handles)) for text in part]
    rest = work(handles[0])  # who found all conversations under way has stopped early
    assert sorted(found + rest, key=lambda text: int(text or "")) == [
        str(number) for number in range(60)
    ]


def test_a_message_whose_answer_failed_is_tried_again_in_its_place(
    store: Store, clock: FakeClock
) -> None:
    store.inbox.put(ANA, "one")
    store.inbox.put(ANA, "two")
    (first,) = store.inbox.claim()
    store.inbox.failed(first, "the model is gone", retry_after=5)
    assert store.inbox.claim() == []
    clock.forward(seconds=5)
    (again,) = store.inbox.claim()
    assert (again.id, again.attempts, again.problem) == (first.id, 2, "the model is gone")
    store.inbox.failed(again, "it cannot be answered", for_good=True)
    assert words(store.inbox.find(state="dead").items) == ["one"]
    assert words(store.inbox.claim()) == ["two"]


def test_a_message_whose_taker_was_lost_waits_again(store: Store, other: Store) -> None:
    store.inbox.put(ANA, "one")
    store.inbox.put(ANA, "two")
    (stale,) = store.inbox.claim()
    assert other.inbox.claim() == []
    let_claims_run_out(store)
    (again,) = other.inbox.claim()
    assert (again.id, again.attempts) == (stale.id, 2)
    refused: list[Callable[[], None]] = [
        lambda: store.inbox.done(stale),
        lambda: store.inbox.failed(stale, "?"),
        lambda: store.inbox.failed(stale, "?", for_good=True),
    ]
    for settle in refused:
        with pytest.raises(StaleWrite):
            settle()
    other.inbox.done(again)
    with pytest.raises(StaleWrite):
        other.inbox.done(again)
    assert words(store.inbox.claim()) == ["two"]


def test_a_lost_taker_is_noticed_by_itself(store: Store, other: Store) -> None:
    store.inbox.put(ANA, "one")
    store.inbox.claim(lease_seconds=0.05)
    until(other.inbox.claim, "the claim runs out")


def test_a_message_taken_twice_is_answered_once(store: Store, other: Store) -> None:
    """The claim may run out while the answer is being given; the turn is what says once."""
    store.inbox.put(ANA, "one", message_id="1")
    (stale,) = store.inbox.claim()
    with store.turn(stale.source, stale.text, message_id=stale.message_id) as turn:
        turn.add_assistant("1")
    let_claims_run_out(store)
    (again,) = other.inbox.claim()
    with other.turn(again.source, again.text, message_id=again.message_id) as turn:
        assert (turn.duplicate, turn.answer) == (True, "1")
    other.inbox.done(again)


def test_the_inbox_is_listed_in_pages(store: Store) -> None:
    for number in range(7):
        store.inbox.put(ANA if number % 2 else BEN, str(number))
    found: list[str | None] = []
    cursor = None
    while True:
        page = store.inbox.find(limit=3, cursor=cursor)
        found += words(page.items)
        cursor = page.next
        if cursor is None:
            break
    assert found == [*map(str, range(7))]
    assert words(store.inbox.find(key=store.sessions.key(ANA)).items) == ["1", "3", "5"]
    store.inbox.claim(limit=1)
    assert words(store.inbox.find(state="taken").items) == ["0"]


@pytest.mark.parametrize("where", ["sqlite"], indirect=True)
@pytest.mark.parametrize("name", ["outbox_expire", "outbox_claim", "inbox_expire", "inbox_claim"])
def test_claiming_looks_at_what_is_not_settled_only(store: Store, name: str) -> None:
    """However much was sent and answered before."""
    params = {"now": 1, "lease": 1, "limit": 1}
    plan = sqlite_of(store).alone(
        lambda connection: connection.execute(
            f"explain query plan {sqlite_of(store)._sql[name]}", params
        ).fetchall()
    )
    steps = [str(row[3]) for row in plan]
    assert steps
    for step in steps:
        assert not step.startswith("SCAN") or "_due" in step


def test_nothing_settled_is_lost(store: Store) -> None:
    store.outbox.put("hello", "telegram:42")
    store.outbox.done(*store.outbox.claim())
    store.inbox.put(ANA, "hello")
    store.inbox.done(*store.inbox.claim())
    assert ask(store, "select count(*) from outbox") == 1
    assert ask(store, "select count(*) from inbox") == 1


def test_a_deleted_session_leaves_nothing_in_the_inbox(store: Store) -> None:
    source = Source("telegram", "77", user_id="77")
    store.inbox.put(source, "a secret", message_id="1")
    with store.turn(source, "a secret", message_id="1") as turn:
        turn.add_assistant("kept")
    store.sessions.delete(turn.session.id)
    assert [arrival.text for arrival in store.inbox.find().items] == []

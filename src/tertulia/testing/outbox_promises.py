"""Promises of the outbox: ordered per chat, one sender per delivery, one recorded outcome."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tertulia.core.source import Source
from tertulia.core.target import HomeChannel
from tertulia.errors import ConfigError, NotFound, StaleWrite
from tertulia.records.queues.outbox import Delivery
from tertulia.store import Store
from tertulia.testing.fake_clock import FakeClock
from tertulia.testing.fixtures import Handles, dm, run_in_threads, run_out, wait_until

ANA, BEN = dm("42"), dm("43")


def texts(deliveries: list[Delivery] | tuple[Delivery, ...]) -> list[str]:
    return [delivery.body["text"] for delivery in deliveries]


class OutboxPromises:
    """Promises of the outbox."""

    def test_a_delivery_is_put_in_and_sent(
        self, store: Store, other: Store, clock: FakeClock
    ) -> None:
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

    def test_the_same_delivery_is_put_in_once(self, store: Store, other: Store) -> None:
        first = store.outbox.put("hello", "telegram:42", delivery="d1")
        again = other.outbox.put("hello?", "telegram:43", delivery="d1")
        assert again == first
        store.outbox.done(*store.outbox.claim())
        assert other.outbox.put("hello", "telegram:42", delivery="d1").state == "sent"
        assert store.outbox.claim() == []

    @pytest.mark.parametrize("key", ["d" * 1000, "nul: \x00", "half a pair: \ud800"])
    def test_a_delivery_is_found_by_any_key(self, store: Store, key: str) -> None:
        put = store.outbox.put("hello", "telegram:42", delivery=key)
        assert store.outbox.get(key) == put
        assert store.outbox.get(put.delivery) == put

    def test_two_deliveries_have_two_keys(self, store: Store) -> None:
        keys = {store.outbox.put("hello", "telegram:42").delivery for _ in range(10)}
        assert len(keys) == 10

    def test_a_delivery_put_concurrently_is_stored_once(
        self, handles: Handles, store: Store
    ) -> None:
        stores = [handles.open() for _ in range(3)]
        put = run_in_threads(
            *(lambda h=h: h.outbox.put("hi", "telegram:42", delivery="d") for h in stores * 3)
        )
        assert len({delivery.id for delivery in put}) == 1
        assert len(store.outbox.find().items) == 1

    def test_each_chat_is_sent_to_in_order(self, store: Store, other: Store) -> None:
        targets = ("telegram:1", "telegram:2", "telegram:1:9", "discord:1", "local")
        for number in range(3):
            for target in targets:
                store.outbox.put(f"{target} {number}", target)
        for number in range(3):
            claimed = other.outbox.claim(limit=100)
            assert texts(claimed) == [f"{target} {number}" for target in targets]
            assert store.outbox.claim(limit=100) == []
            for delivery in claimed:
                other.outbox.done(delivery)

    def test_only_deliveries_of_the_given_platforms_are_claimed(self, store: Store) -> None:
        for target in ("telegram:1", "discord:1", "slack:1"):
            store.outbox.put(target, target)
        assert store.outbox.wait(0, platforms=["slack"])
        assert not store.outbox.wait(0, platforms=["signal"])
        assert store.outbox.claim(platforms=["signal"]) == []
        assert texts(store.outbox.claim(platforms=["slack", "telegram"])) == [
            "telegram:1",
            "slack:1",
        ]
        assert texts(store.outbox.claim()) == ["discord:1"]

    def test_a_long_text_is_sent_in_parts(self, store: Store) -> None:
        text = " ".join(f"word{number}" for number in range(1000))
        put = store.outbox.put(text, "telegram:1", delivery="long")
        assert store.outbox.put(text, "telegram:1", delivery="long") == put
        sent: list[str] = []
        while claimed := store.outbox.claim():
            sent += texts(claimed)
            store.outbox.done(claimed[0])
        assert len(sent) > 1
        assert all(len(part) <= 4096 for part in sent)
        assert " ".join(sent) == text

    def test_two_accounts_are_two_chats(self, store: Store) -> None:
        for account in ("", "second"):
            origin = Source("telegram", "42", account=account)
            store.outbox.put(f"by: {account}.", "origin", origin=origin)
        assert texts(store.outbox.claim()) == ["by: .", "by: second."]

    def test_a_claim_takes_the_oldest_first_and_no_more_than_asked(self, store: Store) -> None:
        for number in range(5):
            store.outbox.put(str(number), f"telegram:{number}")
        assert texts(store.outbox.claim(limit=2)) == ["0", "1"]
        assert texts(store.outbox.claim(limit=2)) == ["2", "3"]
        assert texts(store.outbox.claim(limit=2)) == ["4"]

    def test_a_failed_send_is_retried_before_later_deliveries(
        self, store: Store, clock: FakeClock
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

    def test_a_failure_without_a_delay_is_due_at_once(self, store: Store) -> None:
        store.outbox.put("hello", "telegram:42")
        for attempt in range(1, 4):
            (delivery,) = store.outbox.claim()
            assert delivery.attempts == attempt
            store.outbox.failed(delivery, "again")

    @pytest.mark.parametrize("outcome", ["dead", "unknown"])
    def test_a_dead_delivery_lets_the_next_pass_and_stays_visible(
        self, store: Store, outcome: Any
    ) -> None:
        store.outbox.put("first", "telegram:42")
        store.outbox.put("second", "telegram:42")
        (first,) = store.outbox.claim()
        ended = store.outbox.failed(first, "blocked by the user", outcome=outcome)
        assert (ended.state, ended.problem) == (outcome, "blocked by the user")
        assert texts(store.outbox.claim()) == ["second"]
        assert texts(store.outbox.find(state=outcome).items) == ["first"]

    @pytest.mark.parametrize("outcome", ["dead", "unknown"])
    def test_a_dead_delivery_can_be_sent_again_by_hand(self, store: Store, outcome: Any) -> None:
        store.outbox.put("hello", "telegram:42")
        (claimed,) = store.outbox.claim()
        ended = store.outbox.failed(claimed, "?", outcome=outcome)
        assert store.outbox.claim() == []
        assert store.outbox.failed(ended, "sent again by hand").state == "waiting"
        (again,) = store.outbox.claim()
        assert again.delivery == claimed.delivery
        assert store.outbox.done(again).state == "sent"

    def test_a_sender_that_is_lost_leaves_an_unknown_outcome(
        self, store: Store, other: Store
    ) -> None:
        store.outbox.put("first", "telegram:42")
        store.outbox.put("second", "telegram:42")
        (first,) = store.outbox.claim()
        assert other.outbox.claim() == []
        run_out(store.outbox, first)
        assert texts(other.outbox.claim()) == ["second"]
        (lost,) = other.outbox.find(state="unknown").items
        assert (lost.id, lost.attempts) == (first.id, 1)
        assert lost.problem
        # A sender that was only slow may still report the outcome.
        assert store.outbox.done(first).state == "sent"

    def test_a_lost_send_is_repeated_if_the_platform_deduplicates(
        self, store: Store, other: Store
    ) -> None:
        store.outbox.put("first", "telegram:42")
        store.outbox.put("second", "telegram:42")
        (lost,) = store.outbox.claim()
        run_out(store.outbox, lost)
        (again,) = other.outbox.claim(idempotent={"telegram"})
        assert (again.id, again.delivery, again.attempts) == (lost.id, lost.delivery, 2)
        with pytest.raises(StaleWrite):
            store.outbox.done(lost)
        other.outbox.done(again)
        assert texts(other.outbox.claim()) == ["second"]

    def test_a_lease_ends_by_itself(self, store: Store, other: Store) -> None:
        store.outbox.put("hello", "telegram:42")
        store.outbox.claim(lease_seconds=0.05)
        wait_until(
            lambda: other.outbox.claim() == [] and other.outbox.find(state="unknown").items,
            "the claim runs out",
        )

    def test_a_claim_that_is_no_longer_yours_settles_nothing(
        self, store: Store, other: Store
    ) -> None:
        store.outbox.put("hello", "telegram:42")
        (stale,) = store.outbox.claim()
        run_out(store.outbox, stale)
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

    def test_newest_deliveries_of_a_chat_are_found(self, store: Store) -> None:
        origin = Source("web", "chat", account="ana", user_id="ana")
        for number in range(4):
            store.outbox.put(str(number), "origin", origin=origin)
        store.outbox.put("other account", "origin", origin=origin.with_fields(account="bob"))
        store.outbox.put("other chat", "web:den")
        newest = store.outbox.find_newest_in_chat(origin, limit=2)
        assert [delivery.body["text"] for delivery in newest] == ["3", "2"]

    def test_chat_of_a_token_is_named_by_the_same_token(self, store: Store) -> None:
        for platform in ("web", "api"):
            origin = Source(platform, "here", account="ana", user_id="ana")
            assert store.outbox.put("x", "web:there", origin=origin).account == "ana"
        assert store.outbox.put("x", "telegram:42", origin=origin).account == ""
        assert store.outbox.put("x", "web:there").account == ""

    def test_a_manual_resend_waits_for_the_running_send(self, store: Store) -> None:
        for text in ("first", "second", "third"):
            store.outbox.put(text, "telegram:42")
        (first,) = store.outbox.claim()
        dead = store.outbox.failed(first, "?", outcome="dead")
        (second,) = store.outbox.claim()
        store.outbox.failed(dead, "sent again by hand")
        assert store.outbox.claim() == []
        store.outbox.done(second)
        for text in ("first", "third"):
            (delivery,) = store.outbox.claim()
            assert delivery.body["text"] == text
            store.outbox.done(delivery)

    def test_deliveries_of_a_deleted_session_make_way(self, store: Store) -> None:
        session = store.sessions.open(ANA)
        store.outbox.put("gone", "telegram:42", session_id=session.id)
        store.outbox.put("stays", "telegram:42")
        store.outbox.claim()
        store.sessions.delete(session.id)
        assert texts(store.outbox.claim()) == ["stays"]

    def test_a_waiting_delivery_worker_is_notified(
        self, store: Store, other: Store, clock: FakeClock
    ) -> None:
        assert not other.outbox.wait(0)
        has_delivery, _ = run_in_threads(
            lambda: other.outbox.wait(60), lambda: store.outbox.put("hello", "telegram:42")
        )
        assert has_delivery
        (delivery,) = other.outbox.claim()
        assert not other.outbox.wait(0)
        other.outbox.failed(delivery, "later", retry_after=5)
        assert not other.outbox.wait(0)
        clock.forward(seconds=5)
        assert other.outbox.wait(0)

    def test_settling_no_delivery_does_nothing(self, store: Store) -> None:
        assert store.outbox.done_many([]) == []

    def test_an_unclaimed_delivery_cannot_be_settled(self, store: Store) -> None:
        delivery = store.outbox.put("hello", "telegram:42")
        with pytest.raises(StaleWrite):
            store.outbox.done(delivery)
        assert texts(store.outbox.claim()) == ["hello"]

    def test_with_its_session_a_delivery_is_deleted(self, store: Store) -> None:
        session = store.sessions.open(ANA)
        store.outbox.put("hello", "telegram:42", session_id=session.id)
        (claimed,) = store.outbox.claim()
        store.sessions.delete(session.id)
        assert store.outbox.find().items == ()
        with pytest.raises(NotFound):
            store.outbox.done(claimed)

    def test_the_outbox_is_listed_in_pages(self, store: Store) -> None:
        for number in range(7):
            store.outbox.put(str(number), f"telegram:{number}", session_id=f"s{number % 2}")
        sent_texts: list[str] = []
        cursor = None
        while True:
            page = store.outbox.find(limit=3, cursor=cursor)
            sent_texts += texts(page.items)
            store.outbox.put(
                "new", "telegram:9", delivery="new"
            )  # is last in order, and does not shift the pages
            cursor = page.next
            if cursor is None:
                break
        assert sent_texts == [*map(str, range(7)), "new"]
        assert texts(store.outbox.find(session_id="s1").items) == ["1", "3", "5"]
        store.outbox.claim(limit=2)
        assert texts(store.outbox.find(state="sending").items) == ["0", "1"]
        assert store.outbox.find(limit=8).next is None

    @pytest.mark.parametrize(
        "ask_for",
        [
            lambda store: store.outbox.find(state="lost"),
            lambda store: store.outbox.put("hello", "nowhere:42"),
            lambda store: store.outbox.put("hello", "telegram"),
            lambda store: store.inbox.find(state="lost"),
        ],
    )
    def test_an_unknown_state_or_target_is_refused(
        self, store: Store, ask_for: Callable[[Store], Any]
    ) -> None:
        with pytest.raises(ConfigError) as caught:
            ask_for(store)
        assert caught.value.hint

    @pytest.mark.parametrize("wrong", [{"outcome": "perhaps"}, {"retry_after": float("inf")}])
    def test_an_invalid_outcome_is_refused(self, store: Store, wrong: dict[str, Any]) -> None:
        store.outbox.put("hello", "telegram:42")
        (delivery,) = store.outbox.claim()
        with pytest.raises(ConfigError):
            store.outbox.failed(delivery, "?", **wrong)
        assert store.outbox.done(delivery).state == "sent"

    def test_home_and_origin_are_resolved_to_chats(self, handles: Handles) -> None:
        store = handles.open(homes={"telegram": HomeChannel("99", thread_id="3")})
        store.outbox.put("home", "telegram")
        store.outbox.put("back", "origin", origin=ANA)
        store.outbox.put("file", "local")
        targets = [(p.platform, p.chat_id, p.thread_id) for p in store.outbox.find().items]
        assert targets == [("telegram", "99", "3"), ("telegram", "42", None), ("local", None, None)]

"""Promises of the inbox: ordered per conversation, one message at a time, each answered once."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tertulia.core.source import Source
from tertulia.errors import StaleWrite
from tertulia.records.queues.inbox import InboxItem
from tertulia.store import Store
from tertulia.testing.fake_clock import FakeClock
from tertulia.testing.fixtures import Handles, dm, run_in_threads, run_out

ANA, BEN = dm("42"), dm("43")


def item_texts(items: list[InboxItem] | tuple[InboxItem, ...]) -> list[str | None]:
    return [item.text for item in items]


class InboxPromises:
    """Promises of the inbox."""

    def test_a_message_is_accepted_and_answered(
        self, store: Store, other: Store, clock: FakeClock
    ) -> None:
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
        assert item_texts(store.inbox.find(state="done").items) == ["hello"]

    @pytest.mark.parametrize("text", [None, "", "half a pair: \ud800", "nul: \x00"])
    def test_text_and_media_are_returned_unchanged(self, store: Store, text: str | None) -> None:
        store.inbox.put(ANA, text)
        assert item_texts(store.inbox.claim()) == [text]

    def test_the_same_message_is_accepted_once(self, store: Store, other: Store) -> None:
        first = store.inbox.put(ANA, "hello", message_id="1")
        again = other.inbox.put(ANA, "hello (edited)", message_id=1)
        assert (again.is_new, again.id, again.text) == (False, first.id, "hello")
        (claimed,) = store.inbox.claim()
        assert other.inbox.put(ANA, "hello", message_id="1").state == "taken"
        store.inbox.done(claimed)
        assert other.inbox.put(ANA, "hello", message_id="1").state == "done"
        assert store.inbox.claim() == []

    def test_an_equal_id_elsewhere_is_another_message(self, store: Store) -> None:
        for source in (
            ANA,
            BEN,
            Source("discord", "42"),
            Source("telegram", "42", account="second"),
        ):
            assert store.inbox.put(source, "hello", message_id="1").is_new

    @pytest.mark.parametrize("message_id", [None, ""])
    def test_a_message_without_an_id_is_always_new(
        self, store: Store, message_id: str | None
    ) -> None:
        assert store.inbox.put(ANA, "hello", message_id=message_id).is_new
        assert store.inbox.put(ANA, "hello", message_id=message_id).is_new

    def test_a_message_accepted_concurrently_is_stored_once(self, handles: Handles) -> None:
        stores = [handles.open() for _ in range(3)]
        put = run_in_threads(
            *(lambda h=h: h.inbox.put(ANA, "hi", message_id="1") for h in stores * 3)
        )
        assert sum(item.is_new for item in put) == 1
        assert len({item.id for item in put}) == 1

    def test_each_conversation_is_answered_in_order_and_one_at_a_time(
        self, store: Store, other: Store
    ) -> None:
        for number in range(3):
            for source in (ANA, BEN):
                store.inbox.put(source, f"{source.chat_id} {number}")
        for number in range(3):
            claimed = other.inbox.claim(limit=10)
            assert item_texts(claimed) == [f"42 {number}", f"43 {number}"]
            assert store.inbox.claim(limit=10) == []
            for item in claimed:
                other.inbox.done(item)

    def test_linked_chats_are_one_conversation(self, store: Store) -> None:
        elsewhere = Source("signal", "+34", user_id="+34")
        store.people.accept_link(elsewhere, store.people.offer_link(ANA))
        store.inbox.put(ANA, "one")
        store.inbox.put(elsewhere, "two")
        (first,) = store.inbox.claim()
        assert (first.text, store.inbox.claim()) == ("one", [])
        store.inbox.done(first)
        assert item_texts(store.inbox.claim()) == ["two"]

    def test_a_message_whose_answer_failed_is_tried_again_in_its_place(
        self, store: Store, clock: FakeClock
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
        assert item_texts(store.inbox.find(state="dead").items) == ["one"]
        assert item_texts(store.inbox.claim()) == ["two"]

    def test_a_message_whose_taker_was_lost_waits_again(self, store: Store, other: Store) -> None:
        store.inbox.put(ANA, "one")
        store.inbox.put(ANA, "two")
        (stale,) = store.inbox.claim()
        assert other.inbox.claim() == []
        run_out(store.inbox, stale)
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
        assert item_texts(store.inbox.claim()) == ["two"]

    def test_a_waiting_inbox_worker_is_notified(self, store: Store, other: Store) -> None:
        assert not other.inbox.wait(0)
        has_message, _ = run_in_threads(
            lambda: other.inbox.wait(60), lambda: store.inbox.put(ANA, "hello")
        )
        assert has_message
        store.inbox.put(ANA, "and")
        (first,) = store.inbox.claim()
        assert not other.inbox.wait(0)  # one at a time
        store.inbox.done(first)
        assert other.inbox.wait(0)

    def test_messages_of_a_deleted_session_make_way(self, store: Store) -> None:
        """It holds also while one of its messages is being answered."""
        store.inbox.put(ANA, "one", message_id="1")
        store.inbox.put(ANA, "two", message_id="2")
        (first,) = store.inbox.claim()
        with store.turn(ANA, "one", message_id="1") as turn:
            turn.add_assistant("1")
        store.sessions.delete(turn.session.id)
        with pytest.raises(StaleWrite):
            store.inbox.done(first)
        assert item_texts(store.inbox.claim()) == ["two"]

    def test_a_message_taken_twice_is_answered_once(self, store: Store, other: Store) -> None:
        """The claim may expire while the answer is written; the turn detects the duplicate."""
        store.inbox.put(ANA, "one", message_id="1")
        (stale,) = store.inbox.claim()
        with store.turn(stale.source, stale.text, message_id=stale.message_id) as turn:
            turn.add_assistant("1")
        run_out(store.inbox, stale)
        (again,) = other.inbox.claim()
        with other.turn(again.source, again.text, message_id=again.message_id) as turn:
            assert (turn.duplicate, turn.answer) == (True, "1")
        other.inbox.done(again)

    def test_the_inbox_is_listed_in_pages(self, store: Store) -> None:
        for number in range(7):
            store.inbox.put(ANA if number % 2 else BEN, str(number))
        texts: list[str | None] = []
        cursor = None
        while True:
            page = store.inbox.find(limit=3, cursor=cursor)
            texts += item_texts(page.items)
            cursor = page.next
            if cursor is None:
                break
        assert texts == [*map(str, range(7))]
        assert item_texts(store.inbox.find(key=store.sessions.key(ANA)).items) == ["1", "3", "5"]
        store.inbox.claim(limit=1)
        (text,) = item_texts(store.inbox.find(state="taken").items)
        assert text in ("0", "1")  # the oldest of one of the two

    def test_a_deleted_session_leaves_nothing_in_the_inbox(self, store: Store) -> None:
        source = Source("telegram", "77", user_id="77")
        store.inbox.put(source, "a secret", message_id="1")
        with store.turn(source, "a secret", message_id="1") as turn:
            turn.add_assistant("kept")
        store.sessions.delete(turn.session.id)
        assert [item.text for item in store.inbox.find().items] == []

    def test_messages_sent_in_a_row_are_gathered(
        self, store: Store, other: Store, clock: FakeClock
    ) -> None:
        first = store.inbox.put(ANA, "one", message_id="1", gather_seconds=2)
        assert store.inbox.claim() == []
        clock.forward(seconds=1)
        second = other.inbox.put(ANA, "two", message_id="2", media=[{"p": 1}], gather_seconds=2)
        assert (second.state, second.gathered_into, second.is_new) == ("gathered", first.id, True)
        clock.forward(seconds=1)
        assert store.inbox.claim() == []
        again = other.inbox.put(ANA, "two", message_id="2", gather_seconds=2)
        assert (again.id, again.is_new) == (second.id, False)
        clock.forward(seconds=1)
        (claimed,) = store.inbox.claim()
        assert (claimed.id, claimed.text, claimed.message_id) == (first.id, "one\ntwo", "1")
        assert claimed.media == ({"p": 1},)
        store.inbox.done(claimed)
        assert store.inbox.claim() == []

    def test_gathering_ends_after_its_time(self, store: Store, clock: FakeClock) -> None:
        for number in range(30):
            store.inbox.put(ANA, str(number), message_id=number, gather_seconds=2)
            clock.forward(seconds=1)
        texts: list[str | None] = []
        clock.forward(seconds=10)
        while claimed := store.inbox.claim():
            texts += item_texts(claimed)
            store.inbox.done(claimed[0])
        assert "\n".join(text or "" for text in texts).split("\n") == [*map(str, range(30))]
        assert len(texts) > 1

    def test_messages_of_others_and_claimed_messages_are_not_gathered(self, store: Store) -> None:
        ben = Source("telegram", "g", chat_type="channel", user_id="ben")
        eve = Source("telegram", "g", chat_type="channel", user_id="eve")
        handle = store.inbox
        handle.put(ben, "one", gather_seconds=2)
        assert handle.put(eve, "two", gather_seconds=2).state == "waiting"
        handle.put(ANA, "now")
        (claimed_item,) = handle.claim()
        assert handle.put(ANA, "later", gather_seconds=2).state == "waiting"
        handle.done(claimed_item)
        handle.put(ANA, "/new")
        assert handle.put(ANA, "after the command", gather_seconds=2).state == "waiting"

    def test_a_turn_can_include_a_waiting_message(self, store: Store, other: Store) -> None:
        store.inbox.put(ANA, "one", message_id="1")
        (first,) = store.inbox.claim()
        with store.turn_control(ANA, "one", message_id="1") as turn:
            late = other.inbox.put(ANA, "wait, two", message_id="2")
            turn.add_inbox_item(late)
            with pytest.raises(StaleWrite):
                turn.add_inbox_item(late)
            turn.add_assistant("both")
        store.inbox.done(first)
        assert store.inbox.claim() == []
        assert store.inbox.put(ANA, "wait, two", message_id="2").state == "done"
        messages = [(m["role"], m["content"]) for m in turn.history()]
        assert messages == [("user", "one"), ("user", "wait, two"), ("assistant", "both")]

    def test_gathered_messages_are_deleted_with_their_session(
        self, store: Store, clock: FakeClock
    ) -> None:
        store.inbox.put(ANA, "a secret", message_id="1", gather_seconds=2)
        store.inbox.put(ANA, "another", message_id="2", gather_seconds=2)
        clock.forward(seconds=5)
        (claimed,) = store.inbox.claim()
        with store.turn(ANA, claimed.text, message_id="1") as turn:
            turn.add_assistant("kept")
        store.inbox.done(claimed)
        store.sessions.delete(turn.session.id)
        assert store.inbox.find().items == ()

    def test_claims_go_round_the_people(self, store: Store, other: Store) -> None:
        for number in range(60):
            flood = Source("telegram", f"flood-{number}", user_id="7")
            store.inbox.put(flood, f"flood {number}", message_id=number)
        for user in ("1", "8", "9"):
            for number in range(2):
                source = Source("telegram", f"{user}-{number}", user_id=user)
                store.inbox.put(source, f"{user}", message_id=number)
        first = [item.source.user_id for item in store.inbox.claim(4)]
        assert sorted(str(user) for user in first) == ["1", "7", "8", "9"]
        second = [item.source.user_id for item in other.inbox.claim(5)]
        assert sorted(str(user) for user in second) == ["1", "7", "7", "8", "9"]
        assert len(store.inbox.claim(1000)) == 66 - 9

    def test_the_next_claim_begins_with_another_person(self, store: Store) -> None:
        """With room for one message at a time, nobody waits for all chats of another."""
        for number in range(5):
            flood = Source("telegram", f"flood-{number}", user_id="1")
            store.inbox.put(flood, f"flood {number}", message_id=number)
        store.inbox.put(Source("telegram", "9", user_id="9"), "hola", message_id=1)
        served = [item.source.user_id for _ in range(3) for item in store.inbox.claim(1)]
        assert served == ["1", "9", "1"]

    def test_people_at_their_limit_are_left_out(self, store: Store) -> None:
        for user in ("7", "8"):
            for number in range(5):
                source = Source("telegram", f"{user}-{number}", user_id=user)
                store.inbox.put(source, user, message_id=number)
        claimed = store.inbox.claim(10, per_person=2, running={"telegram:7": 1})
        assert sorted(item_texts(claimed), key=str) == ["7", "8", "8"]
        running = {"telegram:7": 2, "telegram:8": 2}
        assert not store.inbox.wait(0, per_person=2, running=running)
        assert store.inbox.claim(10, per_person=2, running=running) == []
        assert store.inbox.wait(0, per_person=2, running={"telegram:7": 2})
        assert store.inbox.wait(0)

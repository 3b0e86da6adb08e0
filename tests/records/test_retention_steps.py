"""What is no longer kept is removed in small steps, on both databases."""

from __future__ import annotations

from typing import NamedTuple, cast

import pytest

from tertulia import ConfigError, Source, Store
from tertulia.core.retention import Retention
from tertulia.records.media import delete_old_files
from tertulia.records.retention_steps import RemovedRows
from tertulia.storage.base import Params, Row, Transaction
from tertulia.storage.postgres.database import PostgresDatabase
from tertulia.storage.rows import to_micros
from tertulia.testing import FakeClock, Handles
from tests.records.store_inspection import ANA, BEN, ask

GUEST = Source("telegram", "77", user_id="77", user_name="Somebody")


def send_file(store: Store, who: Source, content: bytes) -> str:
    """Have a turn with a file in it; return the hash of the file."""
    media = store.media.put(content, name="a.txt")
    with store.turn(who, text="Look!", media=[media.to_dict()]) as turn:
        turn.add_assistant("Nice.")
    return media.hash or ""


def settle_one_of_each(store: Store) -> None:
    store.inbox.put(ANA, "hola", message_id=1)
    (item,) = store.inbox.claim()
    store.inbox.done(item)
    store.outbox.put("hello", "telegram:42")
    (delivery,) = store.outbox.claim()
    store.outbox.done(delivery)
    run = store.schedules.run_now(store.schedules.create(ANA, "every 900 d", "look").id)
    (claimed,) = store.schedules.claim()
    assert claimed.id == run.id
    store.schedules.done(claimed)


def test_settled_entries_are_kept_for_thirty_days(store: Store, clock: FakeClock) -> None:
    settle_one_of_each(store)
    clock.forward(days=29)
    assert store.retention.remove_all() == RemovedRows()
    clock.forward(days=2)
    assert store.retention.remove_all() == RemovedRows(messages=1, deliveries=1, runs=1)
    assert store.retention.remove_some() == RemovedRows()
    for table in ("inbox", "outbox", "occurrences"):
        assert ask(store, f"select count(*) from {table}") == 0


def test_what_waits_or_is_in_progress_stays(store: Store, clock: FakeClock) -> None:
    store.inbox.put(ANA, "waits", message_id=1)
    store.inbox.put(BEN, "is taken", message_id=2)
    store.outbox.put("hello", "telegram:42")
    assert len(store.inbox.claim(1)) == 1
    schedule = store.schedules.create(ANA, "every 900 d", "look")
    store.schedules.run_now(schedule.id)
    clock.forward(days=400)
    assert store.retention.remove_all() == RemovedRows()


def test_a_repeated_message_is_recognised_after_its_entry_was_removed(
    store: Store, clock: FakeClock
) -> None:
    store.inbox.put(ANA, "hola", message_id=1)
    (item,) = store.inbox.claim()
    with store.turn_control(ANA, "hola", message_id=1, inbox_item=item) as turn:
        turn.add_assistant("hi")
    clock.forward(days=31)
    assert store.retention.remove_all().messages == 1
    with store.turn(ANA, "hola", message_id=1) as again:
        assert again.duplicate


def test_step_removes_at_most_its_limit(store: Store, clock: FakeClock) -> None:
    for number in range(7):
        store.inbox.put(ANA, "hola", message_id=number)
        (item,) = store.inbox.claim()
        store.inbox.done(item)
    clock.forward(days=31)
    assert [store.retention.remove_some(3).messages for _ in range(4)] == [3, 3, 1, 0]


def test_strangers_are_forgotten_and_others_are_not(store: Store, clock: FakeClock) -> None:
    store.people.request_pairing(GUEST)
    store.people.remember(BEN, role="member")
    with store.turn(ANA, text="hola") as turn:
        turn.add_assistant("hi")
    clock.forward(days=31)
    removed = store.retention.remove_all()
    assert (removed.people, removed.codes) == (1, 1)
    assert [person.user_id for person in store.people.find()] == ["42", "43"]


def test_decisions_about_a_stranger_go_with_the_stranger(store: Store, clock: FakeClock) -> None:
    store.people.request_pairing(GUEST)
    store.people.remember(BEN, role="member")
    store.people.set_role("telegram:43", "owner", by="token:root")
    clock.forward(days=30)
    store.people.request_pairing(GUEST)
    store.people.refuse("telegram:77", by="token:root")  # yesterday
    clock.forward(days=2)
    removed = store.retention.remove_all()
    assert (removed.people, removed.people_events) == (1, 1)
    assert [event.person for event in store.people.events().items] == ["telegram:43"]
    assert ask(store, "select count(*) from people_events where person like '%77%'") == 0


def test_sessions_are_kept_for_ever_unless_a_setting_says_otherwise(handles: Handles) -> None:
    store = handles.open()
    with store.turn(ANA, text="hola") as turn:
        turn.add_assistant("hi")
    session = store.sessions.end(turn.session.id, "done")
    with store.turn(BEN, text="hola") as turn:
        turn.add_assistant("hi")
    handles.clock.forward(days=4000)
    assert store.retention.remove_all().sessions == 0
    strict = handles.open(retention=Retention(sessions_days=365))
    assert strict.retention.remove_all().sessions == 1
    assert store.sessions.get(session.id) is None
    assert store.sessions.get(turn.session.id) is not None


def test_files_are_removed_and_their_messages_stay(handles: Handles) -> None:
    store = handles.open()
    hashes = {who.chat_id: send_file(store, who, who.chat_id.encode()) for who in (ANA, BEN)}
    handles.clock.forward(days=400)
    assert store.retention.remove_all().files == 0
    strict = handles.open(retention=Retention(media_days=90))
    assert send_file(store, BEN, BEN.chat_id.encode()) == hashes[BEN.chat_id]  # counts from now on
    waiting = store.media.put(b"a file that waits to be sent").hash or ""
    assert strict.retention.remove_all().files == 1
    assert store.media.get(hashes[ANA.chat_id]) is None
    assert store.media.get(hashes[BEN.chat_id]) is not None
    session = store.sessions.current(store.sessions.conversation(ANA))
    assert session is not None
    question = store.transcript(session.id).load()[0]
    assert question["media"][0]["hash"] == hashes[ANA.chat_id]
    assert ask(store, "select count(*) from message_blobs") == 2
    handles.clock.forward(days=400)
    assert strict.retention.remove_all().files == 1
    assert store.media.get(waiting) is not None  # no message links it yet
    assert ask(store, "select count(*) from message_blobs") == 0


def test_file_that_is_stored_again_during_a_step_stays(handles: Handles) -> None:
    store, other = handles.open(retention=Retention(media_days=1)), handles.open()
    if not isinstance(store.context.db, PostgresDatabase):
        pytest.skip("here a step has the database for itself")
    hash_ = send_file(store, ANA, b"a file")
    handles.clock.forward(days=2)
    before = to_micros(handles.clock.now()) - 86_400_000_000

    class Interrupted(NamedTuple):
        """A transaction during which another handle stores the file that was just found."""

        tx: Transaction

        def all(self, statement: str, params: Params) -> list[Row]:
            rows = self.tx.all(statement, params)
            assert rows == [(f"media:{hash_}",)]
            send_file(other, BEN, b"a file")
            return rows

        def changed(self, statement: str, params: Params) -> int:
            return self.tx.changed(statement, params)

    def work(tx: Transaction) -> int:
        return delete_old_files(cast(Transaction, Interrupted(tx)), before=before, limit=10)

    assert store.context.db.write(work, lane="retention") == 0
    assert store.media.get(hash_) == b"a file"
    assert store.check() == []


def test_nothing_is_removed_if_everything_is_kept_for_ever(handles: Handles) -> None:
    for_ever = Retention(settled_days=None, stranger_days=None)
    store = handles.open(retention=for_ever)
    settle_one_of_each(store)
    handles.clock.forward(days=4000)
    assert store.retention.remove_all() == RemovedRows()


@pytest.mark.parametrize("days", [0, -1, float("nan"), 1e9])
def test_invalid_number_of_days_is_refused(days: float) -> None:
    with pytest.raises(ConfigError):
        Retention(settled_days=days)

"""The numbered promises of `storage/base.py`, as far as one process can test them.

Promise 2, that an acknowledged write survives `kill -9`, needs a process that is killed:
`tests/crash/test_sqlite.py` in the source of Tertulia does that for SQLite.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tertulia.errors import ConfigError, Error, IllegalMove, StoreError
from tertulia.storage.base import Database, Transaction
from tertulia.store import Store
from tertulia.testing.fixtures import Handles, dm, run_in_threads, user_message, wait_until


class WorkFailed(Exception):
    """An error that only the work of these tests raises."""


def database(store: Store) -> Database:
    return store.context.db


def put_value(tx: Transaction, name: str, value: object) -> None:
    """Store a value under a name, in a table of texts that every store has."""
    text = str(value) if isinstance(value, int) else value
    tx.run("installation_set", {"name": name, "value": text})


def get_value(tx: Transaction, name: str) -> Any:
    row = tx.one("installation_get", {"name": name})
    return None if row is None else int(row[0]) if row[0].isdigit() else row[0]


def count_up(tx: Transaction) -> int:
    """Read a counter, then write it: an update is lost if two writers overlap."""
    number = int(get_value(tx, "count") or 0) + 1
    put_value(tx, "count", number)
    return number


class DatabasePromises:
    """Promises of a database: atomic, serial, isolated and consistent, with its own errors."""

    def test_a_write_that_raises_stores_nothing(self, store: Store, other: Store) -> None:
        def work(tx: Transaction) -> None:
            put_value(tx, "first", 1)
            put_value(tx, "second", 2)
            raise WorkFailed

        with pytest.raises(WorkFailed):
            database(store).write(work)
        for handle in (store, other):
            assert database(handle).read(lambda tx: get_value(tx, "first")) is None
        database(store).write(lambda tx: put_value(tx, "third", 3))
        values = database(other).read(lambda tx: [get_value(tx, n) for n in ("first", "third")])
        assert values == [None, 3]

    def test_a_committed_write_is_visible_to_every_handle(self, store: Store, other: Store) -> None:
        for number in range(20):
            writer, reader = (store, other) if number % 2 else (other, store)
            database(writer).write(partial(put_value, name="n", value=number))
            assert database(reader).read(lambda tx: get_value(tx, "n")) == number

    def test_writes_are_serial_across_threads_and_handles(self, store: Store, other: Store) -> None:
        def climb(handle: Store) -> list[int]:
            return [database(handle).write(count_up) for _ in range(50)]

        climbs = (partial(climb, handle) for handle in (store, other) * 4)
        numbers_written = sorted(
            number for numbers in run_in_threads(*climbs) for number in numbers
        )
        assert numbers_written == list(range(1, 401))

    def test_failing_work_does_not_affect_other_work(self, store: Store) -> None:
        def climb(fails: bool) -> int:
            def work(tx: Transaction) -> None:
                count_up(tx)
                if fails:
                    raise WorkFailed

            failed = 0
            for _ in range(50):
                try:
                    database(store).write(work)
                except WorkFailed:
                    failed += 1
            return failed

        assert (
            run_in_threads(*(partial(climb, fails) for fails in (False, True) * 4)) == [0, 50] * 4
        )
        assert database(store).read(lambda tx: get_value(tx, "count")) == 200

    def test_a_read_sees_one_state(self, store: Store, other: Store) -> None:
        database(store).write(lambda tx: put_value(tx, "n", 1))

        def work(tx: Transaction) -> tuple[Any, Any]:
            first = get_value(tx, "n")
            database(other).write(lambda tx: put_value(tx, "n", 2))
            return first, get_value(tx, "n")

        assert database(store).read(work) == (1, 1)
        assert database(store).read(lambda tx: get_value(tx, "n")) == 2

    def test_a_read_does_not_wait_for_a_writer(self, store: Store, other: Store) -> None:
        database(store).write(lambda tx: put_value(tx, "n", 1))
        is_inside, may_go = threading.Event(), threading.Event()

        def work(tx: Transaction) -> None:
            put_value(tx, "n", 2)
            is_inside.set()
            may_go.wait()

        writer = threading.Thread(target=database(store).write, args=(work,))
        writer.start()
        is_inside.wait()
        try:
            for handle in (store, other):
                assert database(handle).read(lambda tx: get_value(tx, "n")) == 1
        finally:
            may_go.set()
            writer.join()
        assert database(other).read(lambda tx: get_value(tx, "n")) == 2

    def test_a_refusal_of_the_database_is_a_store_error(self, store: Store) -> None:
        with pytest.raises(StoreError) as caught:
            database(store).write(lambda tx: put_value(tx, "nothing", None))
        assert caught.value.hint
        with pytest.raises(StoreError):
            database(store).read(lambda tx: put_value(tx, "written", "by a reader"))
        assert database(store).read(lambda tx: get_value(tx, "written")) is None

    @pytest.mark.parametrize(
        ("statement", "params"),
        [
            ("installation_set", {"name": "value", "value": "half a pair: \ud800"}),
            ("ticket_insert", {"key": "k", "lease": 2**63}),
        ],
        ids=["text", "number"],
    )
    def test_values_that_no_database_can_store_are_refused(
        self, store: Store, statement: str, params: dict[str, Any]
    ) -> None:
        with pytest.raises(Error) as caught:
            database(store).write(lambda tx: tx.run(statement, params))
        assert caught.value.hint
        with pytest.raises(Error):
            database(store).read(lambda tx: get_value(tx, "\udfff"))
        database(store).write(lambda tx: put_value(tx, "value", "whole"))

    @pytest.mark.parametrize("number", [2**63, 2**200, -(2**63) - 1])
    def test_a_number_that_no_column_can_hold_is_a_wrong_argument(
        self, store: Store, number: int
    ) -> None:
        session = store.sessions.open(dm("anna"))
        calls: list[Callable[[], object]] = [
            lambda: store.transcript(session.id).at(number),
            lambda: store.outbox.find_in_chat(dm("anna"), after=number),
            lambda: store.sessions.set_metadata(session.id, {}, version=number),
        ]
        for call in calls:
            with pytest.raises(ConfigError):
                call()

    def test_a_refused_write_leaves_no_trace_in_later_ones(self, store: Store) -> None:
        ticket = {"key": "k", "lease": 1_000_000}

        def refused(tx: Transaction) -> None:
            put_value(tx, "n", 1)
            put_value(tx, "nothing", None)
            tx.run("ticket_insert", ticket)

        for _ in range(10):  # often enough for a driver to prepare the statements
            with pytest.raises(StoreError):
                database(store).write(refused)
        assert database(store).write(lambda tx: tx.one("ticket_insert", ticket)) is not None
        assert database(store).read(lambda tx: get_value(tx, "n")) is None

    def test_a_write_can_count_changed_rows(self, store: Store) -> None:
        def work(tx: Transaction) -> tuple[int, int]:
            (ticket,) = tx.one("ticket_insert", {"key": "k", "lease": 1_000_000}) or (0,)
            drop = {"id": ticket}
            return tx.changed("ticket_delete", drop), tx.changed("ticket_delete", drop)

        assert database(store).write(work) == (1, 0)

    @pytest.mark.parametrize("kind", ["read", "write"])
    def test_closing_waits_for_running_calls(self, store: Store, kind: str) -> None:
        is_inside, may_go = threading.Event(), threading.Event()
        order: list[str] = []

        def work(tx: Transaction) -> None:
            is_inside.set()
            may_go.wait()
            get_value(tx, "n")
            order.append("done")

        def close() -> None:
            store.close()
            order.append("closed")

        worker = threading.Thread(target=getattr(database(store), kind), args=(work,))
        worker.start()
        is_inside.wait()
        closer = threading.Thread(target=close)
        closer.start()
        # Any time is enough for a `close` that does not wait to finish.
        closer.join(0.2)
        may_go.set()
        worker.join()
        closer.join()
        assert order == ["done", "closed"]

    @pytest.mark.parametrize("kind", ["read", "write"])
    def test_closing_from_within_a_call_is_refused(self, store: Store, kind: str) -> None:
        """A signal handler may do so. It would wait for the call that it interrupted."""
        with pytest.raises(IllegalMove, match="from within one of its calls"):
            getattr(database(store), kind)(lambda tx: database(store).close())
        database(store).write(lambda tx: put_value(tx, "n", 1))

    def test_a_closed_store_refuses_every_call(self, handles: Handles, store: Store) -> None:
        session = store.sessions.open(dm("anna"))
        transcript = store.transcript(session.id)
        store.close()
        store.close()
        calls: list[Callable[[], object]] = [
            lambda: store.sessions.open(dm("anna")),
            lambda: store.sessions.get(session.id),
            store.sessions.find,
            lambda: transcript.append(user_message("hello")),
            transcript.load,
            store.usage.sum,
            lambda: store.search("hello"),
            store.settle,
            store.check,
        ]
        for call in calls:
            with pytest.raises(StoreError) as caught:
                call()
            assert caught.value.hint
        assert handles.open().transcript(session.id).load() == []

    def test_a_store_is_a_context_manager(self, handles: Handles) -> None:
        with handles.open() as store:
            session = store.sessions.open(dm("anna"))
        with pytest.raises(StoreError):
            store.sessions.count()
        assert handles.open().sessions.get(session.id) is not None

    def test_a_notification_reaches_every_handle(self, store: Store, other: Store) -> None:
        """Notifications reach handles that wait; the test notifies until one has arrived."""
        is_notified = threading.Event()

        def listen(handle: Store) -> None:
            seen_count = database(handle).notifications("noon")
            while database(handle).notifications("noon") == seen_count:
                database(handle).wait("noon", seen_count, 60)

        def notify_again() -> bool:
            database(store).notify("noon")
            return is_notified.is_set()

        def wait_once(handle: Store) -> None:
            listen(handle)
            is_notified.set()

        run_in_threads(
            partial(wait_once, other), partial(wait_until, notify_again, "the notification arrives")
        )

    def test_a_commit_of_any_handle_counts_as_a_change(self, store: Store, other: Store) -> None:
        before = database(store).count_changes()
        for writer, value in ((store, "3"), (other, "4")):
            database(writer).write(partial(put_value, name="changes", value=value))
            after = database(store).count_changes()
            assert after > before
            before = after
        database(store).write_quietly(lambda tx: put_value(tx, "changes", "2"))
        assert database(other).read(lambda tx: get_value(tx, "changes")) == 2
        assert database(store).count_changes() >= before

    def test_waiting_for_a_notification_times_out(self, store: Store) -> None:
        database(store).wait("midnight", database(store).notifications("midnight"), 0.01)

    def test_a_notification_before_the_wait_is_not_missed(self, store: Store) -> None:
        before = database(store).notifications("noon")
        database(store).notify("noon")
        database(store).wait("noon", before, 1e6)

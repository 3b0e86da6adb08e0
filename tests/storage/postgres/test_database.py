"""Lost connections and restarts of a server: an error or a correct retry, and nothing twice."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from psycopg.pq.abc import PGresult

from tertulia import Source, Store, StoreUnavailable, Usage
from tertulia.storage.postgres import database
from tertulia.storage.postgres.batch import Batch
from tertulia.testing.fault_points import Moment, watch_commits
from tertulia.testing.fixtures import texts, user_message, wait_until
from tests.records.store_inspection import log_of
from tests.servers.postgres import Server
from tests.servers.proxy import TIMEOUT, Cut, Proxy, proxy
from tests.storage.postgres.server_stores import ANNA, in_threads, opened, refused, terminate_all


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("postgresql://ana:secret@db:54329/talk", "postgresql://db:54329/talk"),
        ("postgresql://db/talk", "postgresql://db/talk"),
        ("host=db port=6000 dbname=talk password=secret", "postgresql://db:6000/talk"),
    ],
)
def test_shown_address_has_the_port_and_no_password(address: str, name: str) -> None:
    assert database.public_name(address) == name


class TestLostConnection:
    def test_connections_lost_between_transactions_are_replaced(self, address: str) -> None:
        with opened(address) as store:
            session = store.sessions.open(ANNA)
            # So that several lie in the pool.
            in_threads(6, lambda n: store.transcript(session.id).append(user_message(str(n))))
            for number in range(6, 9):
                assert terminate_all(address) > 0
                assert store.transcript(session.id).count() == number
                assert terminate_all(address) > 0
                store.transcript(session.id).append(user_message(str(number)))
            found = sorted(texts(store.transcript(session.id)), key=int)
            assert found == [*map(str, range(9))]

    def test_write_runs_again_when_its_connection_is_lost(self, address: str) -> None:
        with opened(address) as store:
            session = store.sessions.open(ANNA)
            cuts = [3, 2, 1]

            def cut(number: int, moment: Moment) -> None:
                if moment == "before" and cuts:
                    cuts.pop()
                    assert terminate_all(address) > 0

            watch_commits(store, cut)
            store.transcript(session.id).append(user_message("one"))
            assert cuts == []
            assert texts(store.transcript(session.id)) == ["one"]

    def test_read_runs_again_when_its_connection_is_lost(self, address: str) -> None:
        with opened(address) as store:
            session = store.sessions.open(ANNA)
            cuts = [1]

            def work(tx: Any) -> Any:
                found = tx.one("session_by_id", {"id": session.id})
                if cuts:
                    cuts.pop()
                    terminate_all(address)
                    return tx.one("session_by_id", {"id": session.id})
                return found

            assert store.context.db.read(work) is not None
            assert cuts == []


class TestUnansweredCommit:
    """The connection is cut during a commit, before or after the server has received it."""

    @pytest.fixture
    def line(self, address: str) -> Iterator[Proxy]:
        with proxy(address) as line:
            yield line

    @staticmethod
    def cut_once(store: Store, line: Proxy, cut: Cut, *, for_good: bool = False) -> None:
        done: list[int] = []

        def at(number: int, moment: Moment) -> None:
            if moment == "before" and not done:
                done.append(number)
                line.is_open = not for_good
                line.cut_at_next(cut)

        watch_commits(store, at)

    @pytest.mark.parametrize("cut", ["request", "answer", "farewell"])
    def test_message_is_stored_once(self, line: Proxy, cut: Cut) -> None:
        with opened(line.address) as store:
            session = store.sessions.open(ANNA)
            self.cut_once(store, line, cut)
            assert store.transcript(session.id).append(user_message("one")) == 1
            assert line.was_cut.wait(TIMEOUT)
            assert store.transcript(session.id).append(user_message("two")) == 2
            assert texts(store.transcript(session.id)) == ["one", "two"]
            assert store.check() == []

    def test_batch_that_cannot_be_ended_counts_as_lost_connection(
        self, address: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As after a shutdown message of the server, before the closed connection is noticed."""
        run, failures = Batch.run, iter(["once"])

        def busy(batch: Batch) -> list[PGresult]:
            results = run(batch)
            for _ in failures:
                raise psycopg.OperationalError("cannot exit pipeline mode while busy")
            return results

        with opened(address) as store:
            session = store.sessions.open(ANNA)
            monkeypatch.setattr(Batch, "run", busy)
            assert store.transcript(session.id).append(user_message("one")) == 1
            assert next(failures, None) is None
            failures = iter(["once more"])
            assert texts(store.transcript(session.id)) == ["one"]
            assert next(failures, None) is None

    @pytest.mark.parametrize("cut", ["request", "answer", "farewell"])
    @pytest.mark.parametrize("step", [1, 2, 3])
    def test_turn_goes_on_after_a_lost_connection(
        self, line: Proxy, address: str, cut: Cut, step: int
    ) -> None:
        """For each of its transactions: entering, a delivery, the answer."""
        with opened(line.address) as store:

            def at(number: int, moment: Moment) -> None:
                if (number, moment) == (step, "before") and not line.was_cut.is_set():
                    line.cut_at_next(cut)

            watch_commits(store, at)
            with store.turn(ANNA, "hello", message_id="1") as turn:
                turn.deliver("one moment", delivery="d1")
                turn.add_assistant("hi", deliver="origin")
            assert line.was_cut.wait(TIMEOUT)
            assert [row.content for row in log_of(store, turn.session)] == ["hello", "hi"]
            deliveries = store.outbox.find().items
            assert sorted(delivery.body["text"] for delivery in deliveries) == ["hi", "one moment"]
            with store.turn(ANNA, "hello", message_id="1") as again:
                assert (again.duplicate, again.answer) == (True, "hi")
            assert store.check() == []

    @pytest.mark.parametrize("cut", ["request", "answer", "farewell"])
    def test_turn_entered_by_one_statement_goes_on_after_a_lost_connection(
        self, line: Proxy, cut: Cut
    ) -> None:
        with opened(line.address) as store:
            with store.turn(ANNA, "first", message_id="1") as turn:
                turn.add_assistant("1")
            self.cut_once(store, line, cut)
            with store.turn(ANNA, "hello", message_id="2", wait=0) as turn:
                assert line.was_cut.wait(TIMEOUT)
                assert not turn.duplicate
                turn.add_assistant("hi", usage=Usage(1, 1))
            contents = [row.content for row in log_of(store, turn.session)]
            assert contents == ["first", "1", "hello", "hi"]
            assert store.check() == []

    @pytest.mark.parametrize(("cut", "stored"), [("request", []), ("answer", ["one"])])
    def test_outcome_is_unknown_while_the_server_is_unreachable(
        self, line: Proxy, address: str, cut: Cut, stored: list[str]
    ) -> None:
        with opened(line.address, busy_seconds=2) as store:
            session = store.sessions.open(ANNA)
            self.cut_once(store, line, cut, for_good=True)
            with pytest.raises(StoreUnavailable, match="unknown whether") as caught:
                store.transcript(session.id).append(user_message("one"))
            assert caught.value.outcome == "unknown"
            assert "check" in (caught.value.hint or "")
            with opened(address) as direct:
                assert texts(direct.transcript(session.id)) == stored
            line.is_open = True
            assert texts(store.transcript(session.id)) == stored
            store.transcript(session.id).append(user_message("two"))
            assert texts(store.transcript(session.id)) == [*stored, "two"]


@pytest.mark.check
class TestRestart:
    def test_calls_after_a_restart_succeed(self, own: Server) -> None:
        with opened(own.database(), busy_seconds=30) as store:
            session = store.sessions.open(ANNA)
            in_threads(5, lambda n: store.transcript(session.id).append(user_message(str(n))))
            own.restart()
            assert store.transcript(session.id).count() == 5
            own.restart()
            store.transcript(session.id).append(user_message("5"))
            assert store.transcript(session.id).count() == 6

    def test_calls_fail_while_the_server_is_down(self, own: Server) -> None:
        with opened(own.database(), busy_seconds=1) as store:
            session = store.sessions.open(ANNA)
            own.stop()
            try:
                with refused(StoreUnavailable, "connection"):
                    store.transcript(session.id).append(user_message("in vain"))
                with refused(StoreUnavailable, "connection"):
                    store.transcript(session.id).load()
            finally:
                own.start()
            wait_until(lambda: _is_back(store), "it answers again")
            store.transcript(session.id).append(user_message("at last"))
            assert texts(store.transcript(session.id)) == ["at last"]

    def test_restart_under_load_loses_and_repeats_nothing(self, own: Server) -> None:
        """An acknowledged message is stored once; with an unknown outcome, once or not at all."""
        acknowledged: list[str] = []
        refusals: list[str] = []
        is_over = threading.Event()
        with opened(own.database(), busy_seconds=30) as store:

            def write(number: int) -> None:
                session = store.sessions.open(Source("telegram", str(number)))
                count = 0
                while not is_over.is_set():
                    text = f"{number} {count}"
                    count += 1
                    try:
                        store.transcript(session.id).append(user_message(text))
                        acknowledged.append(text)
                    except StoreUnavailable as problem:
                        if problem.data.get("outcome") != "unknown":
                            raise
                        refusals.append(text)

            def wait_for_more() -> None:
                before = len(acknowledged)
                wait_until(lambda: len(acknowledged) > before + 50, "they write")

            def disturb() -> None:
                try:
                    for _ in range(2):
                        wait_for_more()
                        own.restart()
                    wait_for_more()
                finally:
                    is_over.set()

            in_threads(4, write, meanwhile=disturb)
            stored = [
                text
                for session in store.sessions.find().items
                for text in texts(store.transcript(session.id))
            ]
            assert len(stored) == len({*stored}), "something is there twice"
            assert {*acknowledged} <= {*stored} <= {*acknowledged, *refusals}
            assert store.check() == []


def _is_back(store: Store) -> bool:
    try:
        store.sessions.count()
    except StoreUnavailable:
        return False
    return True


@pytest.mark.parametrize("call", ["read", "query", "attempt", "write"])
def test_interrupted_call_does_not_keep_the_store_from_closing(
    address: str, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """An interrupt may come right after the call was noted."""
    store = opened(address)
    db = store.context.db
    calls: dict[str, Callable[[], object]] = {
        "read": lambda: db.read(lambda tx: None),
        "query": lambda: db.query("db_now"),
        "attempt": lambda: db.attempt([("db_now", {})], lanes=["one"]),
        "write": lambda: db.write(lambda tx: None),
    }

    def interrupt() -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(db, "_check_usable", interrupt)
        with pytest.raises(KeyboardInterrupt):
            calls[call]()
    in_threads(1, lambda _: store.close())


NOTE_SETTINGS = """
create table noted (at bigint generated always as identity, wanted text, value text);
create function note_settings() returns trigger language plpgsql as $$
begin
    insert into noted (wanted, value)
    select name, current_setting(name) from unnest(
        array['jit', 'lock_timeout', 'synchronous_commit', 'transaction_isolation']
    ) as name;
    return null;
end $$;
create trigger note_settings after insert on turns execute function note_settings();
create trigger note_settings after update on outbox execute function note_settings();
"""


class TestSettingsOfTransactions:
    @pytest.mark.parametrize("durability", ["safe", "fast"])
    def test_turn_that_enters_in_one_statement_has_its_limits(
        self, address: str, durability: str
    ) -> None:
        with opened(address, durability=durability) as store:
            for number in range(6):  # the first enters by the general path, the last is prepared
                if number == 1:
                    _execute(address, NOTE_SETTINGS)
                with store.turn(ANNA, "hello", message_id=str(number)) as turn:
                    turn.add_assistant("hi")
        assert _noted(address, "lock_timeout") == {"100ms"}
        assert _noted(address, "transaction_isolation") == {"read committed"}
        wanted = {"safe": {"on"}, "fast": {"off"}}
        assert _noted(address, "synchronous_commit") == wanted[durability]

    def test_claim_is_not_compiled(self, address: str) -> None:
        """The server expects it to read so many rows that it would compile it at each call."""
        with opened(address) as store:
            _execute(address, NOTE_SETTINGS)
            store.outbox.put("hello", "telegram:1")
            assert len(store.outbox.claim(5, accounts={("telegram", None): 5})) == 1
        assert _noted(address, "jit") == {"off"}


def _execute(address: str, script: str) -> None:
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute(script.encode())


def _noted(address: str, name: str) -> set[str]:
    with psycopg.connect(address) as connection:
        rows = connection.execute("select value from noted where wanted = %s", (name,))
        return {value for (value,) in rows}

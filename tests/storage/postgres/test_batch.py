"""Statements that are sent together: their results, their errors, and prepared statements."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import errors

from tertulia import ConfigError
from tertulia.storage.base import Transaction
from tertulia.storage.postgres.batch import Batch, BatchConnection
from tertulia.storage.statements import Query
from tertulia.testing.fixtures import texts, user_message, wait_until
from tests.servers.proxy import proxy
from tests.storage.postgres.server_stores import ANNA, as_owner, opened

NUMBER = Query(b"select $1")
REPEATED = 8  # enough for a statement to be prepared


@pytest.fixture
def connection(address: str) -> Iterator[BatchConnection]:
    with BatchConnection.connect(address, autocommit=True) as connection:
        yield connection


def ask(batch: Batch, query: Query, *values: Any) -> list[tuple[Any, ...]]:
    batch.put(query, values)
    return batch.rows(batch.run()[-1])


def prepared(batch: Batch) -> int:
    (count,) = ask(batch, Query(b"select count(*) from pg_prepared_statements"))[0]
    assert isinstance(count, int)
    return count


def test_results_come_in_the_order_of_the_statements(connection: BatchConnection) -> None:
    batch = connection.batch
    batch.put(Query(b"create temporary table t (n bigint)"))
    for number in range(REPEATED):
        batch.put(Query(b"insert into t values ($1)"), [number])
    batch.put(Query(b"select n from t order by n"))
    batch.put(Query(b"delete from t where n < $1"), [3])
    batch.put(Query(b"select n from t where n > $1"), [100])
    *_, rows, deleted, none = batch.run()
    assert batch.rows(rows) == [(number,) for number in range(REPEATED)]
    assert (deleted.command_tuples, batch.rows(deleted)) == (3, [])
    assert batch.rows(none) == []


def test_values_come_back_as_they_were(connection: BatchConnection) -> None:
    batch = connection.batch
    query = Query(b"select $1::bigint, $2::text, $3::bytea, $4::boolean, $5::text, $6::float8")
    values = (2**62, "añ😀%s $1", b"\0\xff", True, None, 0.25)
    for _ in range(REPEATED):
        assert ask(batch, query, *values) == [values]


def test_everything_in_a_batch_is_one_transaction(connection: BatchConnection) -> None:
    batch = connection.batch
    ask(batch, Query(b"create temporary table t (n bigint primary key)"))
    insert = Query(b"insert into t values ($1)")
    for number in (1, 2, 1, 3):
        batch.put(insert, [number])
    with pytest.raises(errors.UniqueViolation):
        batch.run()
    assert ask(batch, Query(b"select n from t")) == []
    for number in (1, 2, 3):
        batch.put(insert, [number])
    batch.run()
    assert ask(batch, Query(b"select count(*) from t")) == [(3,)]


def test_large_batch_is_sent_while_its_results_arrive(connection: BatchConnection) -> None:
    batch, text = connection.batch, "x" * 20_000
    for _ in range(500):
        batch.put(Query(b"select $1::text"), [text])
    results = batch.run()
    assert len(results) == 500
    assert batch.rows(results[-1]) == [(text,)]


def test_statement_is_prepared_after_some_uses_for_each_type(connection: BatchConnection) -> None:
    batch = connection.batch
    query = Query(b"select cast($1 as text)")
    before = prepared(batch)
    ask(batch, query, "x")
    assert prepared(batch) == before
    for _ in range(REPEATED):
        assert ask(batch, query, "x") == [("x",)]
    # The statement that counts them has been prepared meanwhile, too.
    assert prepared(batch) >= before + 1
    for _ in range(REPEATED):
        assert ask(batch, query, 5) == [("5",)]


def test_statement_that_was_skipped_is_prepared_again(connection: BatchConnection) -> None:
    batch = connection.batch
    late, bad = Query(b"select $1::bigint + 1"), Query(b"select 1 / $1::bigint")
    for divisor in (0, 0, 0, 0, 0, 1, 0, 1):
        batch.put(bad, [divisor])
        batch.put(late, [1])
        if divisor:
            assert batch.rows(batch.run()[-1]) == [(2,)]
        else:
            with pytest.raises(errors.DivisionByZero):
                batch.run()


def test_statement_that_cannot_be_prepared_raises_its_error(connection: BatchConnection) -> None:
    batch = connection.batch
    for _ in range(REPEATED):
        batch.put(Query(b"select * from no_such_table"))
        batch.put(NUMBER, [1])
        with pytest.raises(errors.UndefinedTable):
            batch.run()
    assert ask(batch, Query(b"select 1::bigint")) == [(1,)]


def test_lost_prepared_statements_are_prepared_again(connection: BatchConnection) -> None:
    batch = connection.batch
    query = Query(b"select $1::bigint")
    for _ in range(REPEATED):
        ask(batch, query, 1)
    ask(batch, Query(b"deallocate all"))
    with pytest.raises(errors.InvalidSqlStatementName):
        ask(batch, query, 1)
    for _ in range(REPEATED):
        assert ask(batch, query, 2) == [(2,)]


def test_store_goes_on_if_prepared_statements_were_lost(address: str) -> None:
    """As behind a pooler that lends another connection of the server."""
    with opened(address) as store:
        session = store.sessions.open(ANNA)
        transcript = store.transcript(session.id)

        def write(first: int) -> None:
            for number in range(first, first + REPEATED):
                with store.turn(ANNA, str(number), message_id=number) as turn:
                    turn.add_assistant("hi")

        write(0)
        store.context.db.write(_deallocate)
        write(REPEATED)
        store.context.db.write(_deallocate)
        assert len(texts(transcript)) == 4 * REPEATED
        assert store.check() == []


def _deallocate(tx: Any) -> None:
    tx._batch.put(Query(b"deallocate all"))
    tx.receive()


def test_value_that_cannot_be_sent_leaves_no_statement_behind(address: str) -> None:
    with opened(address) as store:
        session = store.sessions.open(ANNA)

        def work(tx: Transaction) -> None:
            tx.run("session_by_id", {"id": session.id})
            tx.run("session_by_id", {"id": "a\0b"})

        for call in (store.context.db.write, store.context.db.read):
            with pytest.raises(ConfigError):
                call(work)
        store.transcript(session.id).append(user_message("one"))
        assert texts(store.transcript(session.id)) == ["one"]


def test_refused_statement_writes_nothing_to_the_log_of_psycopg(
    address: str, caplog: pytest.LogCaptureFixture
) -> None:
    def work(tx: Transaction) -> None:
        tx.run("session_by_id", {"id": 5})  # refused
        for _ in range(200):
            tx.run("db_now")  # the error comes while these are put or sent; they are skipped
        tx.one("db_now")

    with opened(address) as store, caplog.at_level(logging.WARNING, "psycopg"):
        with pytest.raises(ConfigError):
            store.context.db.write(work)
        with pytest.raises(ConfigError):
            store.context.db.read(work)
    assert [record.getMessage() for record in caplog.records if record.name == "psycopg"] == []


def test_without_pipelines_each_statement_is_waited_for(
    connection: BatchConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with a libpq before 14."""
    monkeypatch.setattr(type(psycopg.capabilities), "has_pipeline", lambda self: False)
    batch = connection.batch
    batch.put(Query(b"select $1::bigint"), [1])
    batch.put(Query(b"select $1::text"), ["x"])
    assert [batch.rows(result) for result in batch.run()] == [[(1,)], [("x",)]]
    batch.put(Query(b"select 1 / $1::bigint"), [0])
    batch.put(Query(b"select 1"))
    with pytest.raises(errors.DivisionByZero):
        batch.run()


def test_interrupted_wait_closes_the_connection(address: str, connection: BatchConnection) -> None:
    main = threading.main_thread().ident
    assert main is not None
    # A program in the background of a shell is started with the signal ignored.
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)

    def interrupt() -> None:
        with as_owner(address) as owner:
            wait_until(lambda: _is_sleeping(owner), "the statement runs")
        signal.pthread_kill(main, signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    connection.batch.put(Query(b"select pg_sleep(60)"))
    try:
        with pytest.raises(KeyboardInterrupt):
            connection.batch.run()
    finally:
        signal.signal(signal.SIGINT, handler)
    thread.join()
    assert connection.closed


def _is_sleeping(owner: psycopg.Connection[Any]) -> bool:
    query = "select 1 from pg_stat_activity where wait_event = 'PgSleep'"
    return owner.execute(query).fetchone() is not None


def test_cut_connection_raises_and_is_closed(address: str) -> None:
    with (
        proxy(address) as line,
        BatchConnection.connect(line.address, autocommit=True) as connection,
    ):
        ask(connection.batch, Query(b"select 1::bigint"))
        line.cut_at_next("answer")
        connection.batch.put(Query(b"select 1::bigint"))
        with pytest.raises(psycopg.OperationalError) as caught:
            connection.batch.run()
        assert caught.value.sqlstate is None
        assert connection.closed


@pytest.mark.parametrize("in_thread", [False, True])
def test_single_prepared_statement_answers_refuses_and_is_lost(
    address: str, connection: BatchConnection, in_thread: bool
) -> None:
    """The main thread waits in Python, others in libpq: both see the same."""
    batch = connection.batch
    results: list[Any] = []
    quotient = Query(b"select 12 / $1::bigint")

    def run() -> None:
        results.extend(ask(batch, quotient, number) for number in (1, 2, 3, 4, 4, 6))
        for _ in range(2):  # the connection is usable after an error
            try:
                ask(batch, quotient, 0)
            except errors.DivisionByZero:
                results.append("refused")
        with as_owner(address) as owner:
            owner.execute("select pg_terminate_backend(%s)", (connection.info.backend_pid,))
        try:
            ask(batch, quotient, 1)
        except psycopg.OperationalError:
            results.append("lost")

    if in_thread:
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
    else:
        run()
    assert results == [
        [(12,)],
        [(6,)],
        [(4,)],
        [(3,)],
        [(3,)],
        [(2,)],
        "refused",
        "refused",
        "lost",
    ]
    assert connection.closed

"""Statements that are sent together and waited for once.

This is libpq's pipeline mode without psycopg's cursors around it: those need five times the
processor time of the two statements of a turn (decision 0042). psycopg still connects, converts
values in both directions and names the errors.
"""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Final, NamedTuple

import psycopg
from psycopg import pq
from psycopg.adapt import PyFormat, Transformer
from psycopg.errors import InvalidSqlStatementName, error_from_result
from psycopg.pq.abc import PGconn, PGresult

from tertulia.storage.base import Row
from tertulia.storage.statements import Query

# A statement is prepared when it is used for the fourth time: most of them are used once or twice
# on a connection, and a prepared one takes memory of the server until the connection is closed.
_PREPARE_AFTER: Final = 3
_PREPARED_LIMIT: Final = 300
_DONE: Final = pq.ExecStatus.COMMAND_OK
_END: Final = pq.ExecStatus.PIPELINE_SYNC
_GOOD: Final = frozenset((_DONE, pq.ExecStatus.TUPLES_OK))
_AUTO: Final = tuple([PyFormat.AUTO] * size for size in range(64))

# A query and the types of its parameters: PostgreSQL prepares it for each combination of them.
_Key = tuple[bytes, tuple[int, ...]]


class _Command(NamedTuple):
    """One statement with its values in the form of the network."""

    key: _Key
    values: Sequence[Any]
    formats: Sequence[pq.Format] | None


class Batch:
    """The statements of one connection that wait to be sent.

    Outside of a transaction, PostgreSQL takes everything that `run` sends as one transaction. After
    an error it skips the rest.
    """

    def __init__(self, connection: psycopg.Connection[Row]) -> None:
        self.has_pipeline = psycopg.capabilities.has_pipeline()
        self._pgconn: PGconn = connection.pgconn
        self._encoding = connection.info.encoding
        self._types = Transformer(connection)
        self._commands: list[_Command] = []
        self._uses: dict[_Key, int] = {}
        self._names: dict[_Key, bytes] = {}
        self._names_made = 0
        # No other client of a pooler between here and the server has the same names.
        self._prefix = b"tertulia_%s_" % os.urandom(6).hex().encode()
        self._wait = _waiter(self._pgconn.socket)

    def put(self, query: Query, values: Sequence[Any] = ()) -> None:
        """Add a statement; raise psycopg's or Python's error for a value that cannot be sent."""
        types = self._types
        size = len(values)
        formats = _AUTO[size] if size < len(_AUTO) else [PyFormat.AUTO] * size
        buffers = types.dump_sequence(values, formats)
        self._commands.append(_Command((query.text, types.types or ()), buffers, types.formats))

    def clear(self) -> None:
        """Forget the statements that were not sent."""
        self._commands.clear()

    def run(self) -> list[PGresult]:
        """Send all statements; return the result of each.

        Raise psycopg's error of the first one that failed. If the connection was lost, or this call
        was interrupted, the connection is closed.
        """
        commands, self._commands = self._commands, []
        try:
            if len(commands) == 1 and commands[0].key in self._names:
                results = self._exchange_one(commands[0])
            elif self.has_pipeline:
                results = self._exchange(commands)
            else:
                results = self._run_in_turn(commands)
        except BaseException:
            self._pgconn.finish()
            raise
        for result in results:
            if result.status not in _GOOD:
                error = error_from_result(result, self._encoding)
                if isinstance(error, InvalidSqlStatementName):
                    # A pooler has lent another connection of the server, for example.
                    self._names.clear()
                    self._uses.clear()
                raise error
        return results

    def rows(self, result: PGresult) -> list[Row]:
        """Return the rows of a result; none for a statement that returns no rows."""
        count = result.ntuples
        if not count:
            return []
        self._types.set_pgresult(result)
        return self._types.load_rows(0, count, tuple)

    def _exchange_one(self, command: _Command) -> list[PGresult]:
        """Run one prepared statement, which is a transaction of its own without a pipeline too.

        At each call of libpq another thread may take the interpreter, so there is only one. The
        main thread needs more: an interrupt from the keyboard ends its wait.
        """
        pgconn, name = self._pgconn, self._names[command.key]
        if threading.get_ident() != threading.main_thread().ident:
            results = [pgconn.exec_prepared(name, command.values, command.formats)]
        else:
            pgconn.send_query_prepared(name, command.values, command.formats)
            results = self._receive(None)
        if pgconn.status == pq.ConnStatus.BAD:
            raise psycopg.OperationalError(pgconn.get_error_message(self._encoding))
        return results

    def _exchange(self, commands: Sequence[_Command]) -> list[PGresult]:
        pgconn = self._pgconn
        prepared: dict[int, _Key] = {}  # by the number of the result
        pgconn.enter_pipeline_mode()
        for number, (key, values, formats) in enumerate(commands):
            name = self._names.get(key)
            if name is None:
                name = self._new_name(key)
                if name is None:
                    pgconn.send_query_params(key[0], values, key[1], formats)
                    continue
                pgconn.send_prepare(name, *key)
                prepared[number + len(prepared)] = key
                self._names[key] = name
            pgconn.send_query_prepared(name, values, formats)
        pgconn.pipeline_sync()
        results = self._receive(_END)
        pgconn.exit_pipeline_mode()
        if not prepared:
            return results
        for number, key in prepared.items():
            if results[number].status != _DONE:
                self._names.pop(key, None)
        # The error of a statement that could not be prepared stays, as its result.
        return [
            result
            for number, result in enumerate(results)
            if number not in prepared or result.status not in _GOOD
        ]

    def _new_name(self, key: _Key) -> bytes | None:
        """Return the name under which a statement is to be prepared, or None if it is not yet."""
        uses = self._uses[key] = self._uses.get(key, 0) + 1
        if uses <= _PREPARE_AFTER or len(self._names) >= _PREPARED_LIMIT:
            return None
        self._names_made += 1
        return self._prefix + b"%d" % self._names_made

    def _receive(self, end: pq.ExecStatus | None) -> list[PGresult]:
        """Send what was not sent yet, and return all results.

        In a pipeline they end with `end`; the results of a statement outside of one with None.
        """
        pgconn, wait = self._pgconn, self._wait
        results: list[PGresult] = []
        is_unsent = pgconn.flush()
        while True:
            while pgconn.is_busy():
                wait(is_unsent)
                pgconn.consume_input()
                if is_unsent:
                    is_unsent = pgconn.flush()
            result = pgconn.get_result()
            if result is None:
                if pgconn.status == pq.ConnStatus.BAD:
                    raise psycopg.OperationalError(pgconn.get_error_message(self._encoding))
                if end is None:
                    return results
                continue
            if result.status == end:
                return results
            results.append(result)

    def _run_in_turn(self, commands: Sequence[_Command]) -> list[PGresult]:
        """Do the same with a libpq before 14, which has no pipelines: wait for each statement."""
        results: list[PGresult] = []
        for (text, types), values, formats in commands:
            results.append(self._pgconn.exec_params(text, values, types, formats))
            if results[-1].status not in _GOOD:
                break
        return results


class BatchConnection(psycopg.Connection[Row]):
    """A connection with its batch of statements, how often it was lent, and when it came back."""

    uses = 0
    used_at = 0.0

    @cached_property
    def batch(self) -> Batch:
        return Batch(self)


def _waiter(socket: int) -> Callable[[int], object]:
    """Return a function that waits until a socket can be read, or written to if its value is 1."""
    if not hasattr(select, "poll"):  # Windows
        return lambda is_unsent: select.select([socket], [socket] if is_unsent else [], [])
    reader, both = select.poll(), select.poll()
    reader.register(socket, select.POLLIN)
    both.register(socket, select.POLLIN | select.POLLOUT)
    return lambda is_unsent: (both if is_unsent else reader).poll()

"""Plain SQLite: the same inserts and the same durability, without any checks.

The tables have the same columns as those of the store. Bound values are already encoded; no value
is checked, no total is updated, no row is read back. Any store on SQLite needs at least this time.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import msgspec

from benchmarks.corpus import RARE_WORD, Message
from benchmarks.measure import percentile, timed

SCHEMA = """
create table if not exists messages (
  place integer primary key, turn integer not null, role text not null, author text,
  at integer not null, body text not null, away text) strict;
create table if not exists usage (
  id integer primary key, session_id text not null, turn integer, at integer not null,
  platform text not null, person text, model text, provider text, base_url text,
  input integer not null, output integer not null, cache_read integer not null,
  cache_write integer not null, reasoning integer not null, cost integer,
  certainty integer not null, cost_source text) strict;
create table if not exists sessions (
  ref integer primary key, id text not null, key text not null, updated_at integer not null,
  origin text not null) strict;
create virtual table if not exists words using fts5(
  text, tokenize = "unicode61 remove_diacritics 2");
"""

PUT_MESSAGE = """insert into messages (place, turn, role, author, at, body, away)
  values (?, ?, ?, null, ?, ?, null)"""
PUT_USAGE = """insert into usage (session_id, turn, at, platform, person, model,
  input, output, cache_read, cache_write, reasoning, certainty)
  values (?, ?, ?, 'telegram', '1', 'gpt-5-mini', 812, 64, 0, 0, 0, 0)"""
PUT_SESSION = "insert into sessions (ref, id, key, updated_at, origin) values (?, ?, ?, ?, ?)"
TOUCH = "update sessions set updated_at = ? where ref = ?"
FIND = "select ref, id, key, updated_at, origin from sessions where ref = ?"
NEWEST = "select body from messages where place < ? order by place desc limit 50"
NEWEST_SESSIONS = """select * from sessions where ended_at is null and platform = 'telegram'
  order by updated_at desc, ref desc limit 50"""
SEARCH = """select rowid, snippet(words, 0, '[', ']', '…', 12), bm25(words)
  from words where words match ? order by rank limit 20"""

ORIGIN = '{"platform":"telegram","chat_id":"%s","user_name":"Ada"}'
NOW = 1_760_000_000_000


def connect(path: Path, durability: str) -> apsw.Connection:
    connection = apsw.Connection(str(path))
    connection.set_busy_timeout(60_000)
    connection.pragma("journal_mode", "wal")
    connection.pragma("synchronous", "FULL" if durability == "safe" else "NORMAL")
    connection.execute(SCHEMA)
    return connection


def encoded(turn: Iterable[Message]) -> list[tuple[str, str]]:
    """Role and body of each message, ready to be bound."""
    return [(str(message["role"]), msgspec.json.encode(message).decode()) for message in turn]


class RawTurns:
    """A turn: four messages and one usage row in one transaction, in sessions counted from 0."""

    def __init__(self, path: Path, durability: str, sessions: int = 1) -> None:
        self._connection = connect(path, durability)
        self._places = [itertools.count((session + 1) << 32) for session in range(sessions)]
        self._turns = itertools.count(1)

    def write(self, session: int, messages: list[tuple[str, str]]) -> None:
        execute = self._connection.execute
        places = self._places[session]
        turn = next(self._turns)
        execute("begin immediate")
        rows = [(next(places), turn, role, NOW, body) for role, body in messages]
        self._connection.executemany(PUT_MESSAGE, rows)
        execute(PUT_USAGE, (f"20261115_120000_{session:08x}", turn, NOW))
        execute("commit")

    def touch(self, session: int) -> None:
        """Set the time of a session of the file, which `fill_sessions` has written."""
        execute = self._connection.execute
        execute("begin immediate")
        execute(TOUCH, (NOW + next(self._turns), session + 1))
        execute("commit")

    def close(self) -> None:
        self._connection.close()


def fill_sessions(path: Path, count: int) -> None:
    with closing(connect(path, "safe")) as connection, connection:
        connection.executemany(PUT_SESSION, (_session(ref) for ref in range(1, count + 1)))


def commit_seconds(path: Path, times: int = 60) -> float:
    """Return how long one small durable commit takes on this machine now.

    Three of four commits are faster; with the median, a half busy machine would count as idle.
    """
    with closing(RawSessions(path, 100)) as raw:
        return percentile(timed(raw.touch, times), 0.75)


class RawSessions:
    """Updates of one session row, each in its own transaction."""

    def __init__(self, path: Path, count: int) -> None:
        refs = list(range(1, count + 1))
        fill_sessions(path, count)
        # Open it again: the log of a large transaction would stay allocated, and commits that
        # overwrite the log cost half of those that extend it.
        self._connection = connect(path, "safe")
        self._now = itertools.count(NOW)
        random.Random(count).shuffle(refs)
        self._pick = itertools.cycle(refs)

    def touch(self) -> None:
        execute = self._connection.execute
        execute("begin immediate")
        execute(TOUCH, (next(self._now), next(self._pick)))
        execute("commit")

    def close(self) -> None:
        self._connection.close()


class RawList:
    """The 50 sessions with the newest activity, from the file of a store, with its own index.

    All columns are read, and the JSON in two of them is decoded: a caller needs no less.
    """

    def __init__(self, path: Path) -> None:
        self._connection = apsw.Connection(str(path), apsw.SQLITE_OPEN_READONLY)
        names = [str(row[1]) for row in self._connection.execute("pragma table_info(sessions)")]
        self._json = [names.index(name) for name in ("origin", "metadata")]

    def newest(self) -> list[object]:
        decode, (origin, metadata) = msgspec.json.decode, self._json
        rows: list[Any] = self._connection.execute(NEWEST_SESSIONS).fetchall()
        return [(row, decode(row[origin]), decode(row[metadata])) for row in rows]

    def close(self) -> None:
        self._connection.close()


class RawSession:
    """One long session, and reading its newest messages, decoded."""

    def __init__(self, path: Path, turns: Iterable[list[Message]]) -> None:
        self._connection = connect(path, "fast")
        places = itertools.count(1 << 32)
        with self._connection:
            self._connection.executemany(
                PUT_MESSAGE,
                (
                    (next(places), number, role, NOW, body)
                    for number, turn in enumerate(turns)
                    for role, body in encoded(turn)
                ),
            )

    def newest(self) -> list[object]:
        decode = msgspec.json.decode
        messages = [decode(body) for (body,) in self._connection.execute(NEWEST, (2 << 32,))]
        messages.reverse()
        return messages

    def close(self) -> None:
        self._connection.close()


class RawSearch:
    """A full-text index of the texts only."""

    def __init__(self, path: Path, turns: Iterable[list[Message]]) -> None:
        self._connection = connect(path, "fast")
        with self._connection:
            self._connection.executemany(
                "insert into words (text) values (?)",
                ((str(message["content"]),) for turn in turns for message in turn),
            )

    def search(self) -> list[object]:
        return list(self._connection.execute(SEARCH, (RARE_WORD,)))

    def close(self) -> None:
        self._connection.close()


def _session(ref: int) -> tuple[int, str, str, int, str]:
    chat = str(100_000 + ref)
    key = f"agent:main:telegram:dm:{chat}"
    return ref, f"20261115_120000_{ref:08x}", key, NOW, ORIGIN % chat

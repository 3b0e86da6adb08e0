"""The cost of a turn in a small and in a large store.

Run it by hand; it writes some gigabytes:

    python -m benchmarks.size [--sessions 1000000] [--messages 10] [--database sqlite|postgres]

Two stores of the same kind, one with 1,000 sessions and one with many, are filled by plain SQL,
with every index in place. Then whole turns (question, answer, usage, delivery) run in randomly
chosen sessions of both stores alternately; the medians and their ratio are printed.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import apsw
import psycopg

import tertulia
from tertulia import Settings, Source, Store, Usage
from tests.servers.postgres import own_server

FEW = 1_000
TURNS = 400
SETTINGS = Settings(zone="UTC")

# One statement per table: numbers 1 … n become sessions, each with the given messages.
FILL = (
    """insert into sessions (id, key, agent, platform, chat_type, person, owner, origin, created_at,
         updated_at, last_seq, turns, indexed_seq, is_card_indexed)
       select 's' || n, 'agent:main:telegram:dm:' || n, 'main', 'telegram', 'dm', 'telegram:' || n,
         'telegram:' || n, '{"platform":"telegram","chat_id":"' || n || '"}', {now}, {now} + n,
         {messages}, {messages} / 2, {messages}, 1
       from ({numbers}) numbered""",
    """insert into revisions (session, number, ranges, made_by, start_seq, at)
       select ref, 1, '[[' || ref || ',1,null]]', 'start', 0, {now} from sessions""",
    """insert into messages (place, turn, role, at, body)
       select (ref << 32) + m, (m + 1) / 2, case when m % 2 = 1 then 'user' else 'assistant' end,
         {now}, '{"role":"user","content":"' || {padding} || '"}'
       from sessions cross join ({each}) messages_of""",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=1_000_000)
    parser.add_argument("--messages", type=int, default=10, help="in each session")
    parser.add_argument("--database", choices=("sqlite", "postgres"), default="sqlite")
    options = parser.parse_args()
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="tertulia-size-"))
        make_store: Callable[[str, int], str]
        if options.database == "sqlite":
            make_store = lambda name, n: _sqlite(Path(folder) / f"{name}.db", n, options.messages)  # noqa: E731
        else:
            server = stack.enter_context(own_server(is_durable=True))
            make_store = lambda name, n: _postgres(server.database(), n, options.messages)  # noqa: E731
        stores = {}
        for name, sessions in (("few", FEW), ("many", options.sessions)):
            began = time.perf_counter()
            address = make_store(name, sessions)
            took = time.perf_counter() - began
            print(f"{name}: {sessions:,} sessions, {sessions * options.messages:,} messages"
                  f" made in {took:.0f} s", flush=True)  # fmt: skip
            stores[name] = stack.enter_context(_open(address)), sessions
        _measure(stores)


def _measure(stores: dict[str, tuple[Store, int]]) -> None:
    chance = random.Random(1)
    times: dict[str, list[float]] = {name: [] for name in stores}
    for number in range(TURNS + 50):
        for name, (store, sessions) in stores.items():
            took = _turn(store, chance.randint(1, sessions), number)
            if number >= 50:  # the first turns fill caches
                times[name].append(took)
    medians = {name: statistics.median(seconds) for name, seconds in times.items()}
    for name, median in medians.items():
        worst = max(times[name])
        summary = f"median {median * 1000:.2f} ms, worst {worst * 1000:.1f} ms"
        print(f"a turn with {name} sessions: {summary}")
    print(f"growth: {medians['many'] / medians['few']:.2f}")


def _turn(store: Store, session: int, number: int) -> float:
    source = Source("telegram", str(session), user_id=str(session))
    began = time.perf_counter()
    with store.turn(source, "a question of some words", message_id=number) as turn:
        turn.history(max_messages=50)
        turn.add_assistant(
            "an answer", usage=Usage(10, 5, model="m", cost_usd=0.0), deliver="origin"
        )
    return time.perf_counter() - began


@contextmanager
def _open(address: str) -> Iterator[Store]:
    policies = tertulia.Policies(default=tertulia.ResetPolicy(mode="none"))
    with tertulia.open(address, settings=Settings(zone="UTC", policies=policies)) as store:
        store._indexer.stop()
        yield store


def _fill_template(sql: str, messages: int, **parts: str) -> str:
    values = {"now": "1760000000000000", "messages": str(messages), **parts}
    for name, value in values.items():
        sql = sql.replace("{" + name + "}", value)
    return sql


def _sqlite(path: Path, sessions: int, messages: int) -> str:
    tertulia.open(path, settings=SETTINGS).close()

    def number_query(name: str, upto: int) -> str:
        numbers = f"select 1 union all select {name} + 1 from c where {name} < {upto}"
        return f"with recursive c({name}) as ({numbers}) select {name} from c"

    connection = apsw.Connection(str(path))
    connection.pragma("synchronous", 0)
    connection.execute("begin")
    for sql in FILL:
        parts = {"numbers": number_query("n", sessions), "each": number_query("m", messages)}
        connection.execute(_fill_template(sql, messages, **parts, padding="hex(zeroblob(200))"))
    connection.execute("commit")
    connection.execute("analyze")
    connection.close()
    return str(path)


def _postgres(address: str, sessions: int, messages: int) -> str:
    tertulia.open(address, settings=SETTINGS).close()

    def number_query(name: str, upto: int) -> str:
        return f"select generate_series(1, {upto})::bigint as {name}"

    with psycopg.connect(address, autocommit=True) as connection:
        for sql in FILL:
            parts = {"numbers": number_query("n", sessions), "each": number_query("m", messages)}
            connection.execute(_fill_template(sql, messages, **parts, padding="repeat('0', 400)"))
        connection.execute("vacuum analyze")
        connection.execute("checkpoint")
    return address


if __name__ == "__main__":
    main()

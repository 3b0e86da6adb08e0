"""Turns per second of 1, 2 and 4 nodes on one PostgreSQL, beside pgbench. By hand:

    python -m benchmarks.nodes [--seconds 10] [--threads 4]

A node is a process with some threads; each plays whole turns (a question, an answer, its usage: two
transactions) in sessions of its own. pgbench does only the inserts of such a turn, in two
transactions as well, with as many clients, in the same server, right after. The server has its data
on a disk and waits for it.
"""

from __future__ import annotations

import argparse
import itertools
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import psycopg

import tertulia
from tertulia import Policies, ResetPolicy, Settings, Source, Usage
from tests.servers.postgres import Server, own_server, programs

NODES = (1, 2, 4)
TEXT = "a question of some words, " * 15  # 400 bytes
SETTINGS = Settings(zone="UTC", policies=Policies(default=ResetPolicy(mode="none")))

# The rows of a turn, and nothing else: what any store has to write.
TABLES = """
create table bench_messages (
  place bigint primary key, turn bigint, role text, at bigint, body text);
create table bench_turns (
  session bigint, number bigint, state text, began_at bigint, first_seq bigint,
  primary key (session, number));
create table bench_usage (id bigint generated always as identity primary key, session_id text,
  turn bigint, at bigint, platform text, model text, input bigint, output bigint);
create sequence bench_places;
"""
SCRIPT = """
begin;
insert into bench_messages values (nextval('bench_places'), 1, 'user', 1, repeat('x', 440));
insert into bench_turns values (nextval('bench_places'), 1, 'open', 1, 1);
commit;
begin;
insert into bench_messages values (nextval('bench_places'), 1, 'assistant', 1, repeat('x', 440));
insert into bench_usage (session_id, turn, at, platform, model, input, output)
  values ('20261116_000000_00000000', 1, 1, 'telegram', 'm', 10, 5);
commit;
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--threads", type=int, default=4)
    parser.add_argument("--node", nargs=2, metavar=("STORE", "NAME"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.node:
        where, name = given.node
        print(_node(where, name, given.threads, given.seconds))
        return
    with own_server(is_durable=True) as server:
        print("nodes  turns/s  pgbench/s  ratio")
        for count in NODES:
            turns = _nodes(server, count, given.threads, given.seconds)
            raw = _pgbench(server, count * given.threads, given.seconds)
            print(f"{count:>5}  {turns:>7.0f}  {raw:>9.0f}  {turns / raw:>5.2f}", flush=True)


def _nodes(server: Server, count: int, threads: int, seconds: float) -> float:
    address = server.database()
    tertulia.open(address, settings=SETTINGS).close()
    how = ["--seconds", str(seconds), "--threads", str(threads), "--node", address]
    children = [
        subprocess.Popen(
            [sys.executable, "-m", "benchmarks.nodes", *how, f"n{number}"],
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(count)
    ]
    return sum(float(child.communicate()[0]) for child in children)


def _node(where: str, name: str, threads: int, seconds: float) -> float:
    """Turns per second of this process, after a second to warm up."""
    done = [0] * threads
    is_measured = threading.Event()
    is_over = threading.Event()

    def play(place: int) -> None:
        usage = Usage(10, 5, model="m", cost_usd=0.0)
        for number in itertools.count():
            source = Source("telegram", f"{name}-{place}-{number % 16}", user_id=f"{name}-{place}")
            with store.turn(source, TEXT, message_id=f"{name}-{place}-{number}") as turn:
                turn.add_assistant(TEXT, usage=usage)
            if is_over.is_set():
                return
            done[place] += is_measured.is_set()

    with tertulia.open(where, settings=SETTINGS) as store:
        store._indexer.stop()
        players = [threading.Thread(target=play, args=(place,)) for place in range(threads)]
        for player in players:
            player.start()
        time.sleep(1)
        is_measured.set()
        began = time.perf_counter()
        time.sleep(seconds)
        took = time.perf_counter() - began
        is_over.set()
        for player in players:
            player.join()
    return sum(done) / took


def _pgbench(server: Server, clients: int, seconds: float) -> float:
    """How often the script runs per second."""
    address = server.database()
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute(TABLES)
    found = programs()
    assert found is not None
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "turn.sql"
        script.write_text(SCRIPT)
        told = subprocess.run(
            [found / "pgbench", "-n", "-M", "prepared", "-c", str(clients), "-j", "2",
             "-T", str(round(seconds)), "-f", script, address],
            capture_output=True,
            text=True,
            check=True,
        ).stdout  # fmt: skip
    (line,) = (line for line in told.splitlines() if line.startswith("tps ="))
    return float(line.split()[2])


if __name__ == "__main__":
    main()

"""Turns per second of 1, 2 and 4 nodes on one PostgreSQL, compared with pgbench.

Run it by hand:

    python -m benchmarks.nodes [--seconds 10] [--threads 4]

A node is a process with several threads; each runs whole turns (a question, an answer, its usage:
two transactions) in its own sessions. Right after it, pgbench runs only the inserts of such turns
on the same server, also in two transactions and with as many clients. The server writes to a disk
and waits for it.
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

# The rows of a turn and nothing else: the minimum that any store writes.
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
    options = parser.parse_args()
    if options.node:
        address, name = options.node
        print(_node(address, name, options.threads, options.seconds))
        return
    with own_server(is_durable=True) as server:
        print("nodes  turns/s  pgbench/s  ratio")
        for count in NODES:
            turns = _nodes(server, count, options.threads, options.seconds)
            raw = _pgbench(server, count * options.threads, options.seconds)
            print(f"{count:>5}  {turns:>7.0f}  {raw:>9.0f}  {turns / raw:>5.2f}", flush=True)


def _nodes(server: Server, count: int, threads: int, seconds: float) -> float:
    address = server.database()
    tertulia.open(address, settings=SETTINGS).close()
    arguments = ["--seconds", str(seconds), "--threads", str(threads), "--node", address]
    children = [
        subprocess.Popen(
            [sys.executable, "-m", "benchmarks.nodes", *arguments, f"n{number}"],
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(count)
    ]
    return sum(float(child.communicate()[0]) for child in children)


def _node(address: str, name: str, threads: int, seconds: float) -> float:
    """Return the turns per second of this process, after one second of warm-up."""
    done = [0] * threads
    is_measured = threading.Event()
    is_over = threading.Event()

    def run_turns(index: int) -> None:
        usage = Usage(10, 5, model="m", cost_usd=0.0)
        for number in itertools.count():
            source = Source("telegram", f"{name}-{index}-{number % 16}", user_id=f"{name}-{index}")
            with store.turn(source, TEXT, message_id=f"{name}-{index}-{number}") as turn:
                turn.add_assistant(TEXT, usage=usage)
            if is_over.is_set():
                return
            done[index] += is_measured.is_set()

    with tertulia.open(address, settings=SETTINGS) as store:
        store._indexer.stop()
        threads_running = [
            threading.Thread(target=run_turns, args=(index,)) for index in range(threads)
        ]
        for thread in threads_running:
            thread.start()
        time.sleep(1)
        is_measured.set()
        began = time.perf_counter()
        time.sleep(seconds)
        took = time.perf_counter() - began
        is_over.set()
        for thread in threads_running:
            thread.join()
    return sum(done) / took


def _pgbench(server: Server, clients: int, seconds: float) -> float:
    """Return how often the script runs per second."""
    address = server.database()
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute(TABLES)
    programs_folder = programs()
    assert programs_folder is not None
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "turn.sql"
        script.write_text(SCRIPT)
        output = subprocess.run(
            [programs_folder / "pgbench", "-n", "-M", "prepared", "-c", str(clients), "-j", "2",
             "-T", str(round(seconds)), "-f", script, address],
            capture_output=True,
            text=True,
            check=True,
        ).stdout  # fmt: skip
    (line,) = (line for line in output.splitlines() if line.startswith("tps ="))
    return float(line.split()[2])


if __name__ == "__main__":
    main()

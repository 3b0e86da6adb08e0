"""Turns per second of 1, 2 and 4 nodes on one PostgreSQL, compared with pgbench and with SQLite.

Run it by hand:

    python -m benchmarks.nodes [--seconds 10] [--threads 4] [--only turns|delay|gateway]

Turns: a node is a process with several threads; each runs whole turns (a question, an answer, its
usage: two transactions) in its own sessions. Right after it, pgbench runs only the inserts of such
turns on the same server, also in two transactions and with as many clients. The server writes to a
disk and waits for it.

Delay: one node whose connections go through a proxy on loopback that holds back every request for a
millisecond, as a network would, and one beside it whose proxy does not.

Gateway: a node is a whole gateway with the parrot agent (inbox, turn, outbox) and users who write
again when they are answered; before, the same gateway runs on SQLite.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import NamedTuple

import psycopg

import tertulia
from benchmarks.rows.gateway import run_gateway
from tertulia import Policies, ResetPolicy, Settings, Source, Usage
from tests.servers.postgres import Server, own_server, programs
from tests.servers.proxy import proxy

NODES = (1, 2, 4)
PARTS = ("turns", "delay", "gateway")
DELAY = 0.001
PEOPLE = 64
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


class NodeResult(NamedTuple):
    """Turns per second of one or more nodes, and the processor time that their processes took."""

    rate: float
    milliseconds: float  # of processor time for each turn


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--threads", type=int, default=4)
    parser.add_argument("--only", choices=PARTS, action="append")
    parser.add_argument(
        "--node", nargs=3, metavar=("PART", "STORE", "NAME"), help=argparse.SUPPRESS
    )
    options = parser.parse_args()
    if options.node:
        part, address, name = options.node
        if part == "gateway":
            result = _gateway_node(address, name, options.seconds)
        else:
            result = _node(address, name, options.threads, options.seconds)
        print(*result)
        return
    with own_server(is_durable=True) as server:
        for part in options.only or PARTS:
            {"turns": _turns, "delay": _delay, "gateway": _gateways}[part](server, options)


def _turns(server: Server, options: argparse.Namespace) -> None:
    print("nodes  turns/s  client ms/turn  pgbench/s  ratio")
    for count in NODES:
        ours = _nodes(server.database(), count, "turns", options)
        raw = _pgbench(server, count * options.threads, options.seconds)
        print(
            f"{count:>5}  {ours.rate:>7.0f}  {ours.milliseconds:>14.2f}  {raw:>9.0f}"
            f"  {ours.rate / raw:>5.2f}",
            flush=True,
        )


def _delay(server: Server, options: argparse.Namespace) -> None:
    print("delay  turns/s  round trips/turn  ms/turn of a thread")
    for delay in (0.0, DELAY):
        with proxy(server.database(), delay=delay) as line:
            before = line.round_trips
            ours = _nodes(line.address, 1, "turns", options)
            # The second of warm-up and the opening of the store are counted too: this is an upper
            # bound. tests/storage/postgres/test_round_trips.py counts exactly.
            trips = (line.round_trips - before) / (ours.rate * (options.seconds + 1))
        wait = options.threads / ours.rate * 1000
        print(
            f"{delay * 1000:>2.0f} ms  {ours.rate:>7.0f}  {trips:>16.1f}  {wait:>19.2f}", flush=True
        )


def _gateways(server: Server, options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as folder:
        base = _nodes(str(Path(folder, "talk.db")), 1, "gateway", options)
    print("gateways  turns/s  ms/turn  of SQLite")
    print(f"  SQLite  {base.rate:>7.0f}  {base.milliseconds:>7.2f}  {1:>9.2f}", flush=True)
    for count in NODES:
        ours = _nodes(server.database(), count, "gateway", options)
        print(
            f"{count:>8}  {ours.rate:>7.0f}  {ours.milliseconds:>7.2f}"
            f"  {ours.rate / base.rate:>9.2f}",
            flush=True,
        )


def _nodes(address: str, count: int, part: str, options: argparse.Namespace) -> NodeResult:
    tertulia.open(address, settings=SETTINGS).close()
    arguments = ["--seconds", str(options.seconds), "--threads", str(options.threads)]
    children = [
        subprocess.Popen(
            [sys.executable, "-m", "benchmarks.nodes", *arguments, "--node", part, address,
             f"n{number}"],
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(count)
    ]  # fmt: skip
    results = [NodeResult(*map(float, child.communicate()[0].split())) for child in children]
    rate = sum(result.rate for result in results)
    return NodeResult(rate, sum(result.rate * result.milliseconds for result in results) / rate)


def _gateway_node(address: str, name: str, seconds: float) -> NodeResult:
    """Return the result of a gateway with its own users, who write for some seconds."""
    used = time.process_time()
    result = asyncio.run(run_gateway(address, PEOPLE, seconds=seconds, account=name))
    used = time.process_time() - used
    return NodeResult(result.rate, used * 1000 / len(result.waits))


def _node(address: str, name: str, threads: int, seconds: float) -> NodeResult:
    """Return the result of this process, after one second of warm-up."""
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
        began, used = time.perf_counter(), time.process_time()
        time.sleep(seconds)
        took, used = time.perf_counter() - began, time.process_time() - used
        is_over.set()
        for thread in threads_running:
            thread.join()
    return NodeResult(sum(done) / took, used * 1000 / max(1, sum(done)))


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

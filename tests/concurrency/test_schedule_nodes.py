"""Four nodes, five hundred tasks due in the same second, and one node that is killed."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack

import psycopg
import pytest

import tertulia
from tertulia import Settings
from tertulia.testing import FakeClock
from tertulia.testing.fixtures import dm, wait_until
from tests.servers.postgres import Server
from tests.storage.child_process import ChildProcess

pytestmark = pytest.mark.check

NODES = 4
SCHEDULES = 500


@pytest.mark.parametrize("is_killed", [False, True])
def test_each_occurrence_runs_once_even_if_a_node_is_killed(
    postgres: Server, is_killed: bool
) -> None:
    address = postgres.database(postgres.template)
    with tertulia.open(address, settings=Settings(zone="UTC"), clock=FakeClock()) as store:
        made = {
            store.schedules.create(dm(str(n)), "in 10 min", "look").id for n in range(SCHEDULES)
        }
    with ExitStack() as stack:
        lease = 2 if is_killed else 300
        nodes = [
            stack.enter_context(
                ChildProcess("schedule_node", address, 10, lease, is_killed and number == 0)
            )
            for number in range(NODES)
        ]
        for node in nodes:
            assert node.read() == "ready"
        lines: list[list[object]] = []
        nodes[0].resume()
        if is_killed:
            # It is killed with a claimed batch of which it has run some, before the others could
            # have run everything without it.
            while not lines or lines[-1][0] != "ran":
                lines.append(nodes[0].read())
        for node in nodes[1:]:
            node.resume()
        if is_killed:
            nodes[0].kill()
        with psycopg.connect(address, autocommit=True) as connection:
            wait_until(lambda: _delivered(connection) >= SCHEDULES, "all have run")
        for node in nodes:
            if node.process.poll() is None:
                node.kill()
            lines += list(node.read_all())
    ran = Counter(number for kind, number in lines if kind == "ran")
    claimed = Counter(number for kind, number in lines if kind == "claimed")
    assert set(claimed) == made
    assert max(ran.values()) == 1
    if is_killed:
        # Occurrences that it had claimed and not run were claimed again by another node.
        assert max(claimed.values()) > 1
    else:
        assert max(claimed.values()) == 1
    with tertulia.open(address, settings=Settings(zone="UTC"), clock=FakeClock()) as store:
        deliveries = store.outbox.find(limit=1000).items
        texts = Counter(delivery.body["text"] for delivery in deliveries)
        assert texts == Counter({f"result of {number}": 1 for number in made})
        for number in sorted(made)[:20]:
            (run,) = store.schedules.history(number).items
            assert run.state == "sending"
            assert run.schedule.state == "over"
        assert store.check() == []
    postgres.drop(address)


def _delivered(connection: psycopg.Connection) -> int:
    row = connection.execute("select count(*) from outbox").fetchone()
    assert row is not None
    return int(row[0])

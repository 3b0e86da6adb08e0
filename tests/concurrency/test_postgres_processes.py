"""Several processes with several threads each, on one PostgreSQL store."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

import tertulia
from tertulia import Settings
from tertulia.testing import FakeClock
from tests.servers.postgres import Server
from tests.storage.child_process import ChildProcess
from tests.storage.child_programs import source

pytestmark = pytest.mark.check


def test_concurrent_opens_give_one_session_per_key_and_lose_nothing(postgres: Server) -> None:
    """4 processes × 8 threads: one session per key, no error, no lost message, no lost usage."""
    address = postgres.database(postgres.template)
    with ExitStack() as stack:
        children = [
            stack.enter_context(ChildProcess("converse", address, f"p{n}", 8, 20, 1))
            for n in range(4)
        ]
        for child in children:
            assert child.read() == "ready"
        for child in children:
            child.resume()
        reports = [child.read() for child in children]
    assert [report["problems"] for report in reports] == [[]] * 4
    messages = [tuple(line) for report in reports for line in report["messages"]]
    assert len({(number, session_id) for number, session_id, _ in messages}) == len(
        {number for number, _, _ in messages}
    )
    with tertulia.open(address, settings=Settings(zone="UTC")) as store:
        for session in store.sessions.find(limit=100).items:
            own = sorted(text for _, session_id, text in messages if session_id == session.id)
            assert sorted(m["content"] for m in store.transcript(session.id).load()) == own
            assert (session.usage.input, session.usage.output) == (len(own), len(own))
        assert store.check() == []
    postgres.drop(address)


def test_each_notice_is_given_to_exactly_one_process(postgres: Server) -> None:
    address, clock = postgres.database(postgres.template), FakeClock()
    with tertulia.open(address, settings=Settings(zone="UTC"), clock=clock) as store:
        before = {n: store.sessions.open(source(n)).id for n in range(20)}
    later = clock.forward(days=3).isoformat()
    with ExitStack() as stack:
        children = [
            stack.enter_context(ChildProcess("come_back", address, later, 20)) for _ in range(4)
        ]
        for child in children:
            assert child.read() == "ready"
        for child in children:
            child.resume()
        answers = [report for child in children for report in child.read_all()]
    assert len(answers) == 4 * 20
    notices = sorted((number, about) for number, _, about in answers if about is not None)
    assert notices == sorted(before.items())
    postgres.drop(address)

"""Notifications within a process and between processes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import tertulia
from tertulia.storage.notify import Notifier, notifier_of
from tertulia.storage.postgres import notify
from tertulia.testing.fixtures import dm
from tests.servers.postgres import Server

pytestmark = pytest.mark.check

PUT = """
import sys, tertulia
from tertulia import Source
with tertulia.open(sys.argv[1]) as store:
    store.inbox.put(Source("telegram", "42"), "hello")
"""


@pytest.fixture(params=["sqlite", "postgres"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return str(tmp_path / "talk.db")
    server: Server = request.getfixturevalue("postgres")
    return server.database(server.template)


def test_waiter_is_woken_by_another_process(where: str) -> None:
    with tertulia.open(where) as store:
        child = subprocess.Popen([sys.executable, "-c", PUT, where])
        assert store.inbox.wait(60)
        assert child.wait() == 0


def test_waiter_polls_without_notifications(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As behind a pooler that passes no notifications on."""
    monkeypatch.setattr(notify, "CHANNEL", "unused_channel")
    with tertulia.open(where) as store:
        child = subprocess.Popen([sys.executable, "-c", PUT, where])
        assert store.inbox.wait(60)
        assert child.wait() == 0


def test_closing_ends_a_wait(where: str) -> None:
    import threading

    store = tertulia.open(where)
    problems: list[tertulia.Error] = []

    def wait() -> None:
        try:
            store.inbox.wait(1e6)
        except tertulia.Error as problem:
            problems.append(problem)

    waiter = threading.Thread(target=wait, daemon=True)
    waiter.start()
    store.close()
    waiter.join(60)
    assert not waiter.is_alive()
    assert [problem.code for problem in problems] == ["store"]


def test_message_wakes_a_waiter(where: str) -> None:
    with tertulia.open(where) as store:
        assert not store.inbox.wait(0.01)
        store.inbox.put(dm("42"), "hello")
        assert store.inbox.wait(0)


class TestNotifier:
    def test_wait_returns_at_once_after_a_notification(self) -> None:
        notifier = Notifier()
        before = notifier.notifications("a")
        notifier.notify("a")
        assert notifier.notifications("a") == before + 1
        assert notifier.wait("a", before, 0)

    def test_channels_are_independent(self) -> None:
        notifier = Notifier()
        notifier.notify("a")
        assert not notifier.wait("b", notifier.notifications("b"), 0.01)

    def test_handles_on_one_database_share_a_notifier(self) -> None:
        notifier = notifier_of("here")
        assert notifier_of("here") is notifier
        assert notifier_of("there") is not notifier

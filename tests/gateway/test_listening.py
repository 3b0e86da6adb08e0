"""Listeners: one node listens for an account, from the stored cursor, and says how it is."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable
from functools import partial

import pytest

from tertulia import AccountProblem, aio
from tertulia.gateway import listening
from tertulia.gateway.account_pauses import AccountPauses
from tertulia.gateway.listening import AccountListener, ConnectionReporter, node_name
from tertulia.platforms.base import Adapter, Incoming, Outgoing, Passed, Receive, Update
from tertulia.records import listeners
from tertulia.records.listeners import ListenerLease
from tests.gateway.running_gateway import ANA, FAST, App, Echo, running_gateway, until


class Log:
    """A platform that keeps its updates and gives them to who listens, from a cursor on."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.listening: list[str] = []
        self.most = 0


class Polled(Adapter):
    """An adapter that polls the log; the cursor is the number of updates that were read."""

    name = "telegram"
    listens_alone = True

    def __init__(self, log: Log, node: str) -> None:
        self._log, self._node = log, node
        self.problems: list[Exception] = []
        self.sent: list[str] = []

    async def listen(self, receive: Receive) -> None:
        if self.problems:
            raise self.problems.pop(0)
        self._log.listening.append(self._node)
        self._log.most = max(self._log.most, len(self._log.listening))
        self.mark_listening()
        try:
            position = int(self.cursor or 0)
            while True:
                while position < len(self._log.texts):
                    text = self._log.texts[position]
                    position += 1
                    await receive(
                        Incoming(
                            source=ANA, text=text, message_id=f"m{position}", cursor=str(position)
                        )
                    )
                await asyncio.sleep(0.005)
        finally:
            self._log.listening.remove(self._node)

    async def send(self, message: Outgoing) -> str | None:
        self.sent.append(message.text)
        return None


def listener(
    store: aio.Store, adapter: Adapter, receive: Callable[[Update], object]
) -> AccountListener:
    async def accept(update: Update) -> None:
        receive(update)

    return AccountListener(store, adapter, accept, node=node_name(), pauses=AccountPauses())


def test_another_node_goes_on_at_the_cursor_when_the_first_stops(where: str) -> None:
    async def play() -> None:
        log, received = Log(), list[str | None]()

        def receive(update: Update) -> None:
            assert isinstance(update, Incoming)
            received.append(update.text)

        async with aio.open(where, settings=FAST) as store, aio.open(where, settings=FAST) as other:
            nodes = [
                asyncio.create_task(listener(handle, Polled(log, name), receive).run())
                for handle, name in ((store, "a"), (other, "b"))
            ]
            await until(lambda: log.listening, "a node listens")
            (first,) = log.listening
            log.texts += ["one", "two"]
            await until(lambda: len(received) == 2, "both are received")
            nodes.pop(0 if first == "a" else 1).cancel()
            log.texts.append("three")
            await until(lambda: "three" in received, "the other node listens")
            # On a busy machine its lease may have run out, and it begins to listen once more.
            await until(lambda: log.listening == [{"a": "b", "b": "a"}[first]], "only it listens")
            # The last one may come twice, if its node stopped before it had stored the cursor; the
            # inbox knows it by its id.
            assert list(dict.fromkeys(received)) == ["one", "two", "three"]
            assert log.most == 1
            nodes[0].cancel()
            await asyncio.gather(*nodes, return_exceptions=True)

    asyncio.run(play())


def test_update_that_is_not_stored_comes_again(where: str) -> None:
    async def play() -> None:
        log, received = Log(), list[str | None]()

        def receive(update: Update) -> None:
            assert isinstance(update, Incoming)
            received.append(update.text)
            if len(received) == 1:
                raise AccountProblem("No.", retry_after=0.01)

        log.texts.append("one")
        async with aio.open(where, settings=FAST) as store:
            running = asyncio.create_task(listener(store, Polled(log, "a"), receive).run())
            await until(lambda: received == ["one", "one"], "it comes again")
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    asyncio.run(play())


def test_listener_that_lost_its_lease_stops_and_does_not_move_the_cursor(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening, "_RENEW_SECONDS", 0.01)

    async def play() -> None:
        log, received = Log(), list[Update]()
        async with aio.open(where, settings=FAST) as store:
            node = listener(store, Polled(log, "a"), received.append)
            running = asyncio.create_task(node.run())
            await until(lambda: log.listening == ["a"], "it listens")
            stolen = await _steal(store)
            await until(lambda: not log.listening, "it has stopped listening")
            log.texts.append("one")
            await store.listeners.advance(stolen, "0")
            assert received == []
            await store.listeners.release(stolen)
            await until(lambda: received, "it listens again, from the stored cursor")
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    asyncio.run(play())


async def _steal(store: aio.Store) -> ListenerLease:
    """Take the lease over, as if it had run out."""
    lease = None
    while lease is None:
        store.sync.context.db.write(
            lambda tx: tx.run(
                "listener_release", {"platform": "telegram", "account": "", "epoch": 1}
            )
        )
        lease = await store.listeners.claim("telegram", "", "thief")
    return lease


def test_node_that_cannot_renew_stops_before_the_lease_ends(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening, "_RENEW_SECONDS", 0.01)
    monkeypatch.setattr(listeners, "LEASE_SECONDS", 0.3)

    async def play() -> None:
        log = Log()
        async with aio.open(where, settings=FAST) as store:
            running = asyncio.create_task(
                listener(store, Polled(log, "a"), lambda update: None).run()
            )
            await until(lambda: log.listening == ["a"], "it listens")

            async def hang(*args: object, **options: object) -> None:
                await asyncio.Event().wait()

            monkeypatch.setattr(store.listeners, "renew", hang)
            monkeypatch.setattr(store.listeners, "claim", hang)
            await until(lambda: not log.listening, "it has stopped listening")
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    asyncio.run(play())


def test_refused_account_is_reported_and_listens_again_by_itself(where: str) -> None:
    async def play() -> None:
        log = Log()
        adapter = Polled(log, "a")
        # It is refused until the first report is there, however long that takes.
        adapter.problems = [AccountProblem("The token was revoked.", retry_after=0.05)] * 1000
        async with aio.open(where, settings=FAST) as store:
            pauses = AccountPauses()
            reporter = ConnectionReporter(
                store, [adapter], node="n", pauses=pauses, count_turns=lambda: 3
            )
            running = asyncio.create_task(
                AccountListener(
                    store, adapter, lambda update: asyncio.sleep(0), node="n", pauses=pauses
                ).run()
            )
            await until(lambda: pauses.problem(("telegram", "")), "the account is paused")
            await reporter.report()
            (connection,) = await store.listeners.connections()
            assert (connection.listening, connection.problem) == (False, "The token was revoked.")
            adapter.problems.clear()
            await until(lambda: log.listening, "it listens again")
            log.texts.append("one")
            await until(lambda: pauses.problem(("telegram", "")) is None, "the pause is over")
            await reporter.report()
            (connection,) = await store.listeners.connections()
            assert (connection.listening, connection.problem) == (True, None)
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    asyncio.run(play())


def test_cursor_moves_without_a_message(where: str) -> None:
    class Quiet(App):
        listens_alone = True

        async def listen(self, receive: Receive) -> None:
            await receive(Passed(cursor="s7"))
            await super().listen(receive)

    async def play() -> None:
        app = Quiet()
        async with running_gateway(where, Echo(), apps=[app]) as node:
            assert await node.hears("hello") == "re hello"
            await node.until(lambda: app.state is not None, "it runs")
        async with aio.open(where, settings=FAST) as store:
            assert await store.listeners.connections() == []  # a node that stopped left none
            lease = await store.listeners.claim("telegram", "", "next")
            assert lease is not None
            assert lease.cursor == "s7"

    asyncio.run(play())


def test_node_of_an_ended_process_is_forgotten(where: str) -> None:
    program = (
        "import sys, tertulia\n"
        "with tertulia.open(sys.argv[1]) as store:\n"
        "    store.nodes.report('ended:1:a', version='1', turns=0)\n"
        "    store.listeners.claim('telegram', '', 'ended:1:a', lease_seconds=3600)\n"
    )
    subprocess.run([sys.executable, "-c", program, where], check=True)

    async def test() -> None:
        async with aio.open(where) as store:
            await store.nodes.report("elsewhere:1:b", version="1", turns=0)
            claim = partial(store.listeners.claim, "telegram", "", "next", lease_seconds=3600)
            assert await claim() is None
            reporter = ConnectionReporter(
                store, [], node=node_name(), pauses=AccountPauses(), count_turns=lambda: 0
            )
            await reporter.report()
            names = {node.name for node in await store.nodes.find()}
            assert "elsewhere:1:b" in names
            assert len(names) == 2
            assert await claim() is not None

    asyncio.run(test())

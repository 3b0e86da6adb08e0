"""One node: it receives, answers and delivers until SIGTERM. It may be killed at any moment.

    python -m tests.torture.node STORE PORT NAME LEASE

This is the loop of a gateway on the public API: a message is stored in the inbox before it is
acknowledged to the platform, a turn answers it and puts the answer into the outbox, a sender
delivers it.
"""

from __future__ import annotations

import logging
import random
import signal
import sys
import threading
import time
from collections.abc import Callable

from msgspec.structs import replace

import tertulia
from tertulia import Settings, Source, ToolCall, Turn, Usage
from tertulia.records.queues.inbox import InboxItem
from tests.legality.validators import faults
from tests.records.store_inspection import FAST
from tests.torture.platform import Client

WORKERS = 3


class Node:
    """The threads of one node on one store."""

    def __init__(self, location: str, port: int, name: str, lease: float) -> None:
        self._port = port
        self._name = name
        self._lease = lease
        self._stop = threading.Event()
        self._claimed: dict[int, InboxItem] = {}
        settings = replace(FAST, lease_seconds=lease, busy_seconds=10)
        self._store = _open_store(location, settings)

    def run(self) -> None:
        signal.signal(signal.SIGTERM, lambda *_: self._stop.set())
        works = [self._receive, self._deliver, self._renew, *[self._answer_next] * WORKERS]
        threads = [threading.Thread(target=self._repeat, args=(w,)) for w in works]
        for thread in threads:
            thread.start()
        print("ready", flush=True)
        for thread in threads:
            thread.join()
        self._store.close()

    def _repeat(self, work: Callable[[Client], None]) -> None:
        client = Client(self._port)
        while not self._stop.is_set():
            try:
                work(client)
            except (tertulia.StoreError, tertulia.Conflict):
                time.sleep(0.05)  # the server is unavailable, or another node has taken over

    def _receive(self, platform: Client) -> None:
        updates = platform.call("updates")
        for update in updates:
            source = Source("telegram", update["chat"], user_id=update["chat"])
            self._store.inbox.put(source, update["text"], message_id=update["id"])
            platform.call("ack", update=update)
        if not updates:
            time.sleep(0.02)

    def _answer_next(self, platform: Client) -> None:
        if not self._store.inbox.wait(0.5):
            return
        for item in self._store.inbox.claim(1, lease_seconds=self._lease):
            self._answer(platform, item)

    def _answer(self, platform: Client, item: InboxItem) -> None:
        platform.call("claimed", message=item.message_id, node=self._name)
        self._claimed[item.id] = item
        try:
            with self._store.turn(
                item.source, item.text, message_id=item.message_id, wait=self._lease * 3
            ) as turn:
                if not turn.duplicate:
                    _run_agent(turn, str(item.message_id))
            self._store.inbox.done(item)
        finally:
            self._claimed.pop(item.id, None)
        platform.call("done", message=item.message_id)

    def _deliver(self, platform: Client) -> None:
        if not self._store.outbox.wait(0.5):
            return
        for delivery in self._store.outbox.claim(
            8, lease_seconds=self._lease, idempotent={"telegram"}
        ):
            text = delivery.body["text"]
            platform.call("send", delivery=delivery.delivery, chat=delivery.chat_id, text=text)
            self._store.outbox.done(delivery)

    def _renew(self, platform: Client) -> None:
        """Renew the claims of the messages that are being answered."""
        for item in list(self._claimed.values()):
            try:
                self._store.inbox.renew(item, lease_seconds=self._lease)
            except tertulia.StaleWrite:
                self._claimed.pop(item.id, None)
        self._stop.wait(self._lease / 3)


def _run_agent(turn: Turn, message_id: str) -> None:
    """Run the same tool calls for the same message; fail on an illegal history."""
    generator = random.Random(message_id)
    for _ in range(generator.choice((0, 0, 1, 2))):
        assert not faults("openai", turn.history(max_messages=40))
        calls = [ToolCall(f"call_{n}", "look", {"n": n}) for n in range(generator.randint(1, 2))]
        turn.add_assistant(None, tool_calls=calls, usage=Usage(10, 1, model="scripted"))
        time.sleep(generator.uniform(0, 0.05))
        for call in calls:
            turn.add_tool_result(call.id, f"seen for {message_id}")
    usage = Usage(20, 2, model="scripted")
    turn.add_assistant(f"answer {message_id}", usage=usage, deliver="origin")


def _open_store(location: str, settings: Settings) -> tertulia.Store:
    while True:
        try:
            return tertulia.open(location, settings=settings)
        except tertulia.StoreUnavailable:
            time.sleep(0.1)


if __name__ == "__main__":
    logging.disable()  # broken connections are expected here
    _, store, port, name, lease = sys.argv
    Node(store, int(port), name, float(lease)).run()

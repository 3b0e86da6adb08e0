"""One node: receives, answers and delivers until it is told to stop. It may die at any moment.

    python -m tests.torture.node STORE PORT NAME LEASE

This is the loop of a gateway on the public API: what is accepted goes into the inbox before the
platform is told so, a turn answers it and puts the answer into the outbox, a sender delivers.
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

    def __init__(self, where: str, port: int, name: str, lease: float) -> None:
        self._port = port
        self._name = name
        self._lease = lease
        self._stops = threading.Event()
        self._held: dict[int, InboxItem] = {}
        settings = replace(FAST, lease_seconds=lease, busy_seconds=10)
        self._store = _opened(where, settings)

    def run(self) -> None:
        signal.signal(signal.SIGTERM, lambda *_: self._stops.set())
        works = [self._receive, self._deliver, self._keep, *[self._answer_all] * WORKERS]
        threads = [threading.Thread(target=self._again_and_again, args=(w,)) for w in works]
        for thread in threads:
            thread.start()
        print("ready", flush=True)
        for thread in threads:
            thread.join()
        self._store.close()

    def _again_and_again(self, work: Callable[[Client], None]) -> None:
        client = Client(self._port)
        while not self._stops.is_set():
            try:
                work(client)
            except (tertulia.StoreError, tertulia.Conflict):
                time.sleep(0.05)  # the server is away, or another node has taken over

    def _receive(self, platform: Client) -> None:
        found = platform.ask("updates")
        for update in found:
            source = Source("telegram", update["chat"], user_id=update["chat"])
            self._store.inbox.put(source, update["text"], message_id=update["id"])
            platform.ask("ack", update=update)
        if not found:
            time.sleep(0.02)

    def _answer_all(self, platform: Client) -> None:
        if not self._store.inbox.wait(0.5):
            return
        for arrival in self._store.inbox.claim(1, lease_seconds=self._lease):
            self._answer(platform, arrival)

    def _answer(self, platform: Client, arrival: InboxItem) -> None:
        platform.ask("claimed", message=arrival.message_id, node=self._name)
        self._held[arrival.id] = arrival
        try:
            with self._store.turn(
                arrival.source, arrival.text, message_id=arrival.message_id, wait=self._lease * 3
            ) as turn:
                if not turn.duplicate:
                    _agent(turn, str(arrival.message_id))
            self._store.inbox.done(arrival)
        finally:
            self._held.pop(arrival.id, None)
        platform.ask("done", message=arrival.message_id)

    def _deliver(self, platform: Client) -> None:
        if not self._store.outbox.wait(0.5):
            return
        for parcel in self._store.outbox.claim(
            8, lease_seconds=self._lease, idempotent={"telegram"}
        ):
            text = parcel.body["text"]
            platform.ask("send", delivery=parcel.delivery, chat=parcel.chat_id, text=text)
            self._store.outbox.done(parcel)

    def _keep(self, platform: Client) -> None:
        """Renew the claims of what is being answered."""
        for arrival in list(self._held.values()):
            try:
                self._store.inbox.renew(arrival, lease_seconds=self._lease)
            except tertulia.StaleWrite:
                self._held.pop(arrival.id, None)
        self._stops.wait(self._lease / 3)


def _agent(turn: Turn, message_id: str) -> None:
    """Calls tools or not, always in the same way for a message; never sees an illegal history."""
    chance = random.Random(message_id)
    for _ in range(chance.choice((0, 0, 1, 2))):
        assert not faults("openai", turn.history(max_messages=40))
        calls = [ToolCall(f"call_{n}", "look", {"n": n}) for n in range(chance.randint(1, 2))]
        turn.add_assistant(None, tool_calls=calls, usage=Usage(10, 1, model="scripted"))
        time.sleep(chance.uniform(0, 0.05))
        for call in calls:
            turn.add_tool_result(call.id, f"seen for {message_id}")
    usage = Usage(20, 2, model="scripted")
    turn.add_assistant(f"answer {message_id}", usage=usage, deliver="origin")


def _opened(where: str, settings: Settings) -> tertulia.Store:
    while True:
        try:
            return tertulia.open(where, settings=settings)
        except tertulia.StoreUnavailable:
            time.sleep(0.1)


if __name__ == "__main__":
    logging.disable()  # connections that break are what this is about
    _, store, port, name, lease = sys.argv
    Node(store, int(port), name, float(lease)).run()

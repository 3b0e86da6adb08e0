"""The round trips of a turn, and of the queues, to the server, counted by a proxy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

import tertulia
from tertulia import Settings, Source, Store, ToolCall, Usage
from tertulia.records.queues.outbox import Delivery
from tests.records.store_inspection import without_index
from tests.servers.postgres import Server
from tests.servers.proxy import proxy

T = TypeVar("T")
ANA = Source("telegram", "ana", user_id="ana")
PEOPLE = [Source("telegram", f"p{number}", user_id=f"p{number}") for number in range(5)]


def test_statements_without_result_cost_no_round_trip(postgres: Server) -> None:
    address = postgres.database(postgres.template)
    with proxy(address) as line:
        settings = Settings(zone="UTC")
        with without_index(tertulia.open(line.address, settings=settings)) as store:
            for number in range(20):  # enough of them for every statement to be prepared
                trips = []
                before = line.round_trips
                with store.turn(ANA, "hello", message_id=number) as turn:
                    trips.append(line.round_trips - before)
                    before = line.round_trips
                    turn.add_assistant(None, tool_calls=[ToolCall("c", "look")])
                    turn.add_tool_result("c", "blue")
                    trips.append(line.round_trips - before)
                    before = line.round_trips
                    turn.add_assistant("hi", usage=Usage(1, 1, model="m"))
                trips.append(line.round_trips - before)
            before = line.round_trips
            store.sessions.current(store.sessions.key(ANA))
            trips.append(line.round_trips - before)
    postgres.drop(address)
    assert trips == [1, 4, 1, 2]


class Line:
    """A store behind a proxy that counts."""

    def __init__(self, store: Store, line: Any) -> None:
        self.store = store
        self._line = line

    def count(self, call: Callable[[], T]) -> tuple[int, T]:
        """Return how many round trips a call takes, and its result."""
        before = self._line.round_trips
        result = call()
        return self._line.round_trips - before, result


@contextmanager
def counted_store(postgres: Server) -> Iterator[Line]:
    address = postgres.database(postgres.template)
    with proxy(address) as line:
        settings = Settings(zone="UTC")
        with without_index(tertulia.open(line.address, settings=settings)) as store:
            # The thread that sends notifications has a connection of its own, which counts too.
            setattr(store.context.db, "notify", lambda channel: None)  # noqa: B010
            yield Line(store, line)
    postgres.drop(address)


# How often a call is made before it is counted, so that its statements are prepared.
REPEATED = 12


def test_message_is_accepted_in_one_round_trip(postgres: Server) -> None:
    with counted_store(postgres) as line:
        inbox = line.store.inbox
        for number in range(REPEATED):
            accepted = partial(inbox.put, ANA, "hello", message_id=number, waiting_limit=100)
            trips, item = line.count(accepted)
            assert item.is_new
        assert trips == 1
        assert not inbox.put(ANA, "hello", message_id=3).is_new


def test_many_messages_are_claimed_in_one_round_trip(postgres: Server) -> None:
    with counted_store(postgres) as line:
        inbox = line.store.inbox
        for number in range(REPEATED):
            for person in PEOPLE:
                inbox.put(person, "hello", message_id=number)
            waited, is_due = line.count(partial(inbox.wait, 0, per_person=2, running={"x": 2}))
            claimed, items = line.count(partial(inbox.claim, 10, per_person=2, running={"x": 2}))
            assert (is_due, len(items)) == (True, len(PEOPLE))
            settled = [line.count(partial(inbox.done, item))[0] for item in items]
        assert (waited, claimed, settled) == (1, 1, [1] * len(PEOPLE))


def test_many_deliveries_are_claimed_and_settled_in_one_round_trip_each(postgres: Server) -> None:
    accounts = {("telegram", ""): 3, ("telegram", "second"): 3, ("web", None): 3}
    with counted_store(postgres) as line:
        outbox = line.store.outbox
        for _ in range(REPEATED):
            for person in PEOPLE[:3]:
                outbox.put("hello", "origin", origin=person)
            waited, is_due = line.count(partial(outbox.wait, 0, accounts=accounts))
            claimed, deliveries = line.count(partial(outbox.claim, 9, accounts=accounts))
            assert (is_due, len(deliveries)) == (True, 3)
            sent = [(delivery, "id") for delivery in deliveries]
            settled, outcomes = line.count(partial(outbox.done_many, sent))
            assert {delivery.state for delivery in outcomes if isinstance(delivery, Delivery)} == {
                "sent"
            }
        assert (waited, claimed, settled) == (1, 1, 1)


def test_what_a_gateway_reads_for_a_turn_takes_few_round_trips(postgres: Server) -> None:
    with counted_store(postgres) as line:
        store = line.store
        for number in range(REPEATED):
            with store.turn(ANA, "hello", message_id=number) as turn:
                turn.add_assistant("hi")
            roles, _ = line.count(partial(store.people.role_and_links, ANA))
            memories, _ = line.count(partial(store.memories.shown, turn.session.id))
            transcript = store.transcript(turn.session.id)
            local, _ = line.count(partial(transcript.history, timestamps="local"))
            plain, _ = line.count(transcript.history)
            short, _ = line.count(partial(transcript.history, max_tokens=8000))
        assert (roles, memories, local, plain, short) == (1, 1, 1, 1, 1)


def test_history_that_needs_more_is_read_again_in_a_transaction_that_goes_on(
    postgres: Server,
) -> None:
    with counted_store(postgres) as line:
        store = line.store
        for number in range(REPEATED):
            text = f"filler {number} " * 5_000  # stored apart from its message
            with store.turn(ANA, text, message_id=number) as turn:
                turn.add_assistant("hi")
            trips, messages = line.count(store.transcript(turn.session.id).history)
        assert [message["content"] for message in messages[-2:]] == [text, "hi"]
        assert trips > 2
        (connection,) = store.context.db._connections._ready  # type: ignore[attr-defined]
        assert connection.info.transaction_status == 0

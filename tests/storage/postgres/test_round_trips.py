"""The round trips of a turn to the server, counted by a proxy."""

from __future__ import annotations

import tertulia
from tertulia import Settings, Source, ToolCall, Usage
from tests.records.store_inspection import without_index
from tests.servers.postgres import Server
from tests.servers.proxy import proxy

ANA = Source("telegram", "ana", user_id="ana")


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

"""A whole exchange through `store.turn`, a history within tokens, and the event loop's patience."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path

import tertulia
from benchmarks import ours
from benchmarks.corpus import Corpus, Message
from benchmarks.measure import Operation, interleave, percentile
from benchmarks.raw import RawTurns, encoded
from benchmarks.report import Limit, Row, timing
from benchmarks.rows.newest import talk
from benchmarks.stage import Stage
from tertulia import Store, ToolCall, Usage

TOKENS = 8_000
SESSIONS = 200
TURNS_EACH = 40
LAG = Limit("≤", 20, "ms")


def run(stage: Stage) -> list[Row]:
    return [_exchange(stage), _budget(stage), _loop(stage)]


def _exchange(stage: Stage) -> Row:
    """Four messages in four durable steps, against raw with the same messages in four commits."""
    turns = Corpus(5).turns(200)
    with (
        ours.open_store(stage.new_path("exchange")) as store,
        closing(RawTurns(stage.new_path("raw"), "safe")) as raw,
    ):
        found = interleave(
            [
                Operation("tertulia", _whole_turn(store, turns), store.settle),
                Operation("raw", _raw_steps(raw, turns)),
            ],
            rounds=stage.sizes.rounds,
            times=stage.sizes.burst,
        )
    return timing(
        "exchange",
        "a turn with a tool call by `store.turn`, 4 transactions",
        ours=found["tertulia"].median,
        against=("raw", found["raw"].median),
        limit=Limit("≤", 1.5),
    )


def _whole_turn(store: Store, turns: list[list[Message]]) -> Callable[[], None]:
    source = ours.source(0)
    usage = Usage(812, 64, model="gpt-5-mini")
    endless = itertools.cycle(turns)
    numbers = itertools.count()

    def exchange() -> None:
        person, step, result, answer = next(endless)
        with store.turn(source, str(person["content"]), message_id=next(numbers)) as turn:
            turn.add_assistant(str(step["content"]), tool_calls=[ToolCall("call_0", "look")])
            turn.add_tool_result("call_0", str(result["content"]))
            turn.add_assistant(str(answer["content"]), usage=usage)

    return exchange


def _raw_steps(raw: RawTurns, turns: list[list[Message]]) -> Callable[[], None]:
    endless = itertools.cycle([encoded(turn) for turn in turns])

    def steps() -> None:
        for message in next(endless):
            raw.write(0, [message])

    return steps


def _budget(stage: Stage) -> Row:
    few, many = stage.sizes.messages
    with ExitStack() as stack:
        found = interleave(
            [_reader(stack, count, talk(stage, count)) for count in (few, many)],
            rounds=stage.sizes.rounds,
            times=20,
        )
    return timing(
        "budget_growth",
        f"history(max_tokens={TOKENS}) of {many:,} messages against {few:,}",
        ours=found[str(many)].median,
        against=("small", found[str(few)].median),
        limit=Limit("≤", 1.5),
    )


def _reader(stack: ExitStack, count: int, path: Path) -> Operation:
    store = stack.enter_context(ours.open_store(path))
    transcript = store.transcript(store.sessions.open(ours.source(0)).id)
    return Operation(str(count), lambda: transcript.history(max_tokens=TOKENS))


def _loop(stage: Stage) -> Row:
    lags = asyncio.run(_lags(stage.new_path("loop")))
    late, usual = percentile(lags, 0.99) * 1000, percentile(lags, 0.5) * 1000
    return Row(
        "loop_lag",
        f"event loop, {SESSIONS} sessions at once, 99th percentile",
        late,
        LAG,
        unit="ms",
        ours=f"{late:.1f} ms",
        against=f"median {usual:.1f} ms",
        numbers={"p99_ms": late, "median_ms": usual},
    )


async def _lags(path: Path) -> list[float]:
    """How late a task is woken that wants to look every five milliseconds."""
    async with tertulia.aio.open(path) as store:

        async def talk_on(number: int) -> None:
            for turn_number in range(TURNS_EACH):
                async with store.turn(ours.source(number), f"question {turn_number}") as turn:
                    await turn.history(max_tokens=TOKENS)
                    await turn.add_assistant("an answer")

        lags: list[float] = []
        talks = asyncio.gather(*(talk_on(number) for number in range(SESSIONS)))
        while not talks.done():
            began = time.perf_counter()
            await asyncio.sleep(0.005)
            lags.append(max(0.0, time.perf_counter() - began - 0.005))
        await talks
    return lags

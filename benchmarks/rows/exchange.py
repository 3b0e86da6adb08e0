"""A whole exchange through `store.turn`, a history with a token limit, and event loop lag."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path

import tertulia
from benchmarks import store_under_test
from benchmarks.corpus import Corpus, Message
from benchmarks.measure import Operation, interleave, percentile
from benchmarks.raw_sqlite import RawTurns, encoded
from benchmarks.report import Limit, Row, timing
from benchmarks.rows.newest import long_session
from benchmarks.run_context import RunContext
from tertulia import Store, ToolCall, Usage

TOKENS = 8_000
SESSIONS = 200
TURNS_EACH = 40
LAG = Limit("≤", 20, "ms")


def run(context: RunContext) -> list[Row]:
    return [_exchange(context), _budget(context), _loop(context)]


def _exchange(context: RunContext) -> Row:
    """Measure four messages in four durable steps, against raw with four commits."""
    turns = Corpus(5).turns(200)
    with (
        store_under_test.open_store(context.new_path("exchange")) as store,
        closing(RawTurns(context.new_path("raw"), "safe")) as raw,
    ):
        samples = interleave(
            [
                Operation("tertulia", _whole_turn(store, turns), store.settle),
                Operation("raw", _raw_steps(raw, turns)),
            ],
            rounds=context.sizes.rounds,
            times=context.sizes.burst,
        )
    return timing(
        "exchange",
        "a turn with a tool call by `store.turn`, 4 transactions",
        ours=samples["tertulia"].median,
        against=("raw", samples["raw"].median),
        limit=Limit("≤", 1.5),
    )


def _whole_turn(store: Store, turns: list[list[Message]]) -> Callable[[], None]:
    source = store_under_test.source(0)
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


def _budget(context: RunContext) -> Row:
    few, many = context.sizes.messages
    with ExitStack() as stack:
        samples = interleave(
            [_reader(stack, count, long_session(context, count)) for count in (few, many)],
            rounds=context.sizes.rounds,
            times=20,
        )
    return timing(
        "budget_growth",
        f"history(max_tokens={TOKENS}) of {many:,} messages against {few:,}",
        ours=samples[str(many)].median,
        against=("small", samples[str(few)].median),
        limit=Limit("≤", 1.5),
    )


def _reader(stack: ExitStack, count: int, path: Path) -> Operation:
    store = stack.enter_context(store_under_test.open_store(path))
    transcript = store.transcript(store.sessions.open(store_under_test.source(0)).id)
    return Operation(str(count), lambda: transcript.history(max_tokens=TOKENS))


def _loop(context: RunContext) -> Row:
    lags = asyncio.run(_lags(context.new_path("loop")))
    late, median = percentile(lags, 0.99) * 1000, percentile(lags, 0.5) * 1000
    return Row(
        "loop_lag",
        f"event loop, {SESSIONS} sessions at once, 99th percentile",
        late,
        LAG,
        unit="ms",
        ours=f"{late:.1f} ms",
        against=f"median {median:.1f} ms",
        numbers={"p99_ms": late, "median_ms": median},
    )


async def _lags(path: Path) -> list[float]:
    """Return how late a task wakes up that sleeps for five milliseconds at a time."""
    async with tertulia.aio.open(path) as store:

        async def run_session(number: int) -> None:
            for turn_number in range(TURNS_EACH):
                async with store.turn(
                    store_under_test.source(number), f"question {turn_number}"
                ) as turn:
                    await turn.history(max_tokens=TOKENS)
                    await turn.add_assistant("an answer")

        lags: list[float] = []
        sessions = asyncio.gather(*(run_session(number) for number in range(SESSIONS)))
        while not sessions.done():
            began = time.perf_counter()
            await asyncio.sleep(0.005)
            lags.append(max(0.0, time.perf_counter() - began - 0.005))
        await sessions
    return lags

"""One of the versions that `benchmarks.compare` measures: a process that works in bursts.

Started by its path with a checkout, a row and an empty folder. It imports the package and the rows
of the checkout, and uses only calls that old versions have too. A line of standard input begins a
burst; the answer is the wall time and the processor time of one operation, in seconds.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tertulia import Store

CALLERS = 8
CALLER_SECONDS = 0.3
# As many messages each as in the row `gateway`: the first one of a person is other work.
PEOPLE, MESSAGES_EACH = 300, 20

# Runs a burst; returns how many operations it was and the wall time, in seconds.
Burst = Callable[[], tuple[int, float]]


def main() -> None:
    checkout, row, folder = sys.argv[1:4]
    sys.path[:0] = [checkout, str(Path(checkout) / "src")]
    import tertulia

    if not Path(tertulia.__file__).is_relative_to(checkout):
        raise SystemExit(f"{checkout} has no package tertulia in src/")
    burst = ROWS[row](Path(folder))
    for _ in sys.stdin:
        cpu = time.process_time()
        count, seconds = burst()
        cpu = time.process_time() - cpu
        print(seconds / count, cpu / count, flush=True)


def _open_store(folder: Path) -> Store:
    from benchmarks import store_under_test

    return store_under_test.open_store(folder / "talk.db")


def _repeat(act: Callable[[], object], count: int, store: Store) -> Burst:
    def burst() -> tuple[int, float]:
        store.settle()  # the index of the last burst is not part of this one
        began = time.perf_counter()
        for _ in range(count):
            act()
        return count, time.perf_counter() - began

    return burst


def _turn(folder: Path) -> Burst:
    from benchmarks.corpus import Corpus
    from benchmarks.store_under_test import Turns

    store = _open_store(folder)
    return _repeat(Turns(store, Corpus().turns(500)).write, 200, store)


def _exchange(folder: Path) -> Burst:
    from benchmarks.corpus import Corpus
    from tertulia import Source, ToolCall, Usage

    store = _open_store(folder)
    source = Source("telegram", "1", user_id="1", user_name="Ada")
    usage = Usage(812, 64, model="gpt-5-mini")
    turns, numbers = itertools.cycle(Corpus(5).turns(200)), itertools.count()

    def exchange() -> None:
        person, step, result, answer = (str(message["content"]) for message in next(turns))
        with store.turn(source, person, message_id=next(numbers)) as turn:
            turn.add_assistant(step, tool_calls=[ToolCall("call_0", "look")])
            turn.add_tool_result("call_0", result)
            turn.add_assistant(answer, usage=usage)

    return _repeat(exchange, 80, store)


def _callers(folder: Path) -> Burst:
    from benchmarks.corpus import Corpus
    from benchmarks.rows import callers

    store = _open_store(folder)
    writer = callers.Writer(store, Corpus().turns(50), CALLERS * callers.SESSIONS)

    def burst() -> tuple[int, float]:
        store.settle()
        before = writer.done
        rate = callers.rate(writer.write, CALLERS, CALLER_SECONDS)
        count = writer.done - before
        return count, count / rate

    return burst


def _gateway(folder: Path) -> Burst:
    from benchmarks.rows import gateway

    numbers = itertools.count()

    def burst() -> tuple[int, float]:
        path = folder / f"gateway-{next(numbers)}.db"
        result = asyncio.run(gateway.run_gateway(path, PEOPLE, MESSAGES_EACH))
        count = PEOPLE * MESSAGES_EACH
        return count, count / result.rate

    return burst


ROWS: dict[str, Callable[[Path], Burst]] = {
    "turn": _turn, "exchange": _exchange, "callers": _callers, "gateway": _gateway,
}  # fmt: skip


if __name__ == "__main__":
    main()

"""The cost of each step of one exchange, compared with raw SQLite.

Run it by hand:

    python -m benchmarks.anatomy

Two things cost: the pages that a commit writes to the log, and processor time. The pages are read
from the log itself, with the table or index of each. Processor time is measured with
`durability="fast"`, so that no commit waits for the disk.
"""

from __future__ import annotations

import itertools
import statistics
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

import apsw

from benchmarks import store_under_test
from benchmarks.corpus import Corpus, Message
from benchmarks.raw_sqlite import RawTurns, encoded
from tertulia import Store, ToolCall, Turn

STEPS = ("enter", "call a tool", "its result", "answer")
# Few enough that the log does not restart, which it does after 1,000 pages of raw.
EXCHANGES = 80
ROUNDS = 20

_HEADER, _FRAME, _PAGE = 32, 24, 4096  # bytes of the log
Exchange = tuple[Callable[[], object], ...]  # its steps, each a call


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="tertulia-anatomy-") as folder:
        pages_by_step = _pages(Path(folder))
        seconds = _seconds(Path(folder))
    for name, steps in pages_by_step.items():
        print(f"{name}, one exchange")
        for step, pages in steps.items():
            _show(step, seconds[name][step], pages)
        _show("total", sum(seconds[name].values()), sum(steps.values(), Counter()))


def _show(step: str, seconds: float, pages: Counter[str]) -> None:
    """Print one step. Tables written in fewer than one of ten exchanges are counted, not named."""
    each = {name: count / EXCHANGES for name, count in pages.most_common()}
    names = ", ".join(f"{name} {count:.1f}" for name, count in each.items() if count >= 0.1)
    print(f"  {step:12} {seconds * 1e6:4.0f} µs  {sum(each.values()):4.1f} pages: {names}")


def _pages(folder: Path) -> dict[str, dict[str, Counter[str]]]:
    """Return how many pages each step writes, by table and index."""
    result = {}
    with _contestants(folder, "safe") as contestants:
        for name, path, exchanges in contestants:
            log = path.with_name(path.name + "-wal")
            ends: list[tuple[str, int, int]] = []
            for _ in range(EXCHANGES):
                for step, run_step in zip(STEPS, next(exchanges), strict=True):
                    before = log.stat().st_size
                    run_step()
                    ends.append((step, before, log.stat().st_size))
            result[name] = _owners(path, log, ends)
    return result


def _owners(path: Path, log: Path, ends: list[tuple[str, int, int]]) -> dict[str, Counter[str]]:
    with closing(apsw.Connection(str(path))) as connection:
        owners = dict(connection.execute("select pageno, name from dbstat"))
    frames = log.read_bytes()
    result: dict[str, Counter[str]] = defaultdict(Counter)
    for step, first, last in ends:
        for offset in range(max(first, _HEADER), last, _FRAME + _PAGE):
            page = int.from_bytes(frames[offset : offset + 4], "big")
            result[step][owners.get(page, "free")] += 1
    return result


def _seconds(folder: Path) -> dict[str, dict[str, float]]:
    """Return the processor time of each step: the median of rounds in which both alternate."""
    result: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    with _contestants(folder, "fast") as contestants:
        for _ in range(ROUNDS):
            for name, _, exchanges in contestants:
                for step, seconds in _round(exchanges).items():
                    result[name][step].append(seconds)
    return {
        name: {step: statistics.median(rounds) for step, rounds in steps.items()}
        for name, steps in result.items()
    }


def _round(exchanges: Iterator[Exchange]) -> dict[str, float]:
    spent: Counter[str] = Counter()
    for _ in range(EXCHANGES):
        for step, run_step in zip(STEPS, next(exchanges), strict=True):
            before = time.process_time_ns()
            run_step()
            spent[step] += time.process_time_ns() - before
    return {step: nanoseconds / EXCHANGES / 1e9 for step, nanoseconds in spent.items()}


@contextmanager
def _contestants(
    folder: Path, durability: store_under_test.Durability
) -> Iterator[list[tuple[str, Path, Iterator[Exchange]]]]:
    """Yield the name, the file and an endless iterator of exchanges, of the store and of raw."""
    path, raw_path = folder / f"{durability}.db", folder / f"{durability}-raw.db"
    turns = Corpus(5).turns(200)
    with (
        store_under_test.open_store(path, durability) as store,
        closing(RawTurns(raw_path, durability)) as raw,
    ):
        yield [("tertulia", path, _ours(store, turns)), ("raw", raw_path, _raw(raw, turns))]


def _ours(store: Store, turns: list[list[Message]]) -> Iterator[Exchange]:
    for number, texts in enumerate(itertools.cycle(turns)):
        person, step, result, answer = (str(message["content"]) for message in texts)
        turn = store.turn(store_under_test.source(0), person, message_id=number)
        calls = [ToolCall("call_0", "look")]
        yield (
            turn.__enter__,
            partial(turn.add_assistant, step, tool_calls=calls),
            partial(turn.add_tool_result, "call_0", result),
            partial(_answer, turn, answer),
        )


def _answer(turn: Turn, text: str) -> None:
    turn.add_assistant(text, usage=store_under_test.USAGE)
    turn.__exit__(None, None, None)


def _raw(raw: RawTurns, turns: list[list[Message]]) -> Iterator[Exchange]:
    for turn in itertools.cycle([encoded(turn) for turn in turns]):
        yield tuple(partial(raw.write, 0, [message]) for message in turn)


if __name__ == "__main__":
    main()

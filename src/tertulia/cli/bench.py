"""`tertulia bench`: measure the speed of a store on this machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from tertulia.cli import locations, output
from tertulia.cli.options import CliCommand, CommandOptions, json_option

if TYPE_CHECKING:
    from tertulia.store import Store

_QUESTION = "What will the weather be tomorrow, and shall I take an umbrella with me?"
_ANSWER = "It will be sunny all day, with a light wind. Leave the umbrella at home."

Advance = Callable[[int, int], None]


class Measurement(NamedTuple):
    """Durations of one kind of work, in milliseconds."""

    work: str
    times: int
    median_ms: float
    p99_ms: float

    @property
    def per_second(self) -> float:
        """How often the work could be done in a second, at the median duration."""
        return 1000 / self.median_ms


@click.command(cls=CliCommand)
@click.option("--turns", type=click.IntRange(10, 100_000), default=500, show_default=True,
              help="How many turns to measure.")  # fmt: skip
@click.option("--folder", type=click.Path(exists=True, file_okay=False, writable=True),
              help="Folder for the temporary store. Default: the folder of your store, or its"
              " nearest parent that exists.")  # fmt: skip
@json_option
@click.pass_obj
def bench(options: CommandOptions, turns: int, folder: str | None) -> None:
    """Measure how fast conversations are stored and read on this machine.

    It creates a temporary SQLite store and deletes it; your store is not touched. Durable writes
    are as fast as the disk, so the disk of your store is measured.
    """
    import tempfile

    location = locations.store_location(options)
    parent = folder or locations.nearest_existing_folder(location)
    with (
        output.progress_bar(options, "Measuring") as advance,
        tempfile.TemporaryDirectory(prefix="tertulia-bench-", dir=parent) as temporary,
    ):
        measurements = list(measure(temporary, turns, advance))
    if options.json:
        output.print_json([_to_dict(measurement) for measurement in measurements])
        return
    table = output.new_table(
        "work", "times", "median ms", "99% ms", "per second", elastic="work",
        numbers=("times", "median ms", "99% ms", "per second"),
    )  # fmt: skip
    for measurement in measurements:
        table.add_row(
            measurement.work, f"{measurement.times:,}", f"{measurement.median_ms:.3f}",
            f"{measurement.p99_ms:.3f}", f"{measurement.per_second:,.0f}",
        )  # fmt: skip
    output.print_renderables(options, table)


class Stopwatch:
    """Times repeated work and reports the progress of all of it."""

    def __init__(self, total: int, advance: Advance) -> None:
        self._total = total
        self._advance = advance
        self._done = 0

    def time(self, work: str, times: int, act: Callable[[int], Any]) -> Measurement:
        """Call `act` so many times, and once before that to load what is loaded the first time."""
        import statistics

        act(times)
        durations = []
        for number in range(times):
            started = time.perf_counter()
            act(number)
            durations.append((time.perf_counter() - started) * 1000)
            self._done += 1
            self._advance(self._done, self._total)
        p99 = sorted(durations)[times * 99 // 100]
        return Measurement(work, times, statistics.median(durations), p99)


def measure(folder: str, turns: int, advance: Advance) -> Iterator[Measurement]:
    """Measure writes and reads of new stores in a folder; report progress to `advance`."""
    import tertulia
    from tertulia import Settings

    reads = max(10, turns // 10)
    watch = Stopwatch(2 * turns + 3 * reads, advance)
    with tertulia.open(f"{folder}/fast.db", settings=Settings(durability="fast")) as store:
        yield watch.time("a turn with durability fast", turns, partial(_turn, store))
    with tertulia.open(f"{folder}/safe.db") as store:
        yield watch.time("a turn, durable", turns, partial(_turn, store))
        yield from _measure_reads(store, reads, watch)


def _measure_reads(store: Store, reads: int, watch: Stopwatch) -> Iterator[Measurement]:
    from tertulia import Source

    session = store.sessions.open(Source("telegram", "0", user_id="0"))
    transcript = store.transcript(session.id)
    store.search("umbrella")  # brings the index up to date before it is measured
    yield watch.time(
        "a history of 8,000 tokens", reads, lambda _: transcript.history(max_tokens=8000)
    )
    yield watch.time("a list of 50 sessions", reads, lambda _: store.sessions.find(limit=50))
    yield watch.time("a search", reads, lambda _: store.search("umbrella", limit=20))


def _turn(store: Store, number: int) -> None:
    """Store a message of one of ten people, and its answer."""
    from tertulia import Source, Usage

    person = str(number % 10)
    source = Source("telegram", person, user_id=person)
    with store.turn(source, _QUESTION, message_id=str(number)) as turn:
        turn.add_assistant(_ANSWER, usage=Usage(812, 64, model="gpt-5-mini"))


def _to_dict(measurement: Measurement) -> dict[str, Any]:
    return {
        "work": measurement.work,
        "times": measurement.times,
        "median_ms": round(measurement.median_ms, 4),
        "p99_ms": round(measurement.p99_ms, 4),
        "per_second": round(measurement.per_second, 1),
    }

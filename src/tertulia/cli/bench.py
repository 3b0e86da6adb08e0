"""`tertulia bench`: how fast conversations are kept on this machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from tertulia.cli import (
    locations,
    output,
)
from tertulia.cli.options import Command, Request, json_option

if TYPE_CHECKING:
    from tertulia.store import Store

_SAID = "What will the weather be tomorrow, and shall I take an umbrella with me?"
_ANSWERED = "It will be sunny all day, with a light wind. Leave the umbrella at home."

Advance = Callable[[int, int], None]


class Figure(NamedTuple):
    """What one kind of work took, in milliseconds."""

    work: str
    times: int
    median_ms: float
    p99_ms: float

    @property
    def per_second(self) -> float:
        return 1000 / self.median_ms


@click.command(cls=Command)
@click.option("--turns", type=click.IntRange(10, 100_000), default=500, show_default=True,
              help="How many turns are measured.")  # fmt: skip
@click.option("--folder", type=click.Path(exists=True, file_okay=False, writable=True),
              help="Where the new store is made. Default: beside your own, or what is there of"
              " its folder.")  # fmt: skip
@json_option
@click.pass_obj
def bench(request: Request, turns: int, folder: str | None) -> None:
    """Measure how fast conversations are kept on this machine.

    It makes a new SQLite store and throws it away; yours is not touched. Durable work is as fast as
    the disk is, so it is measured on the disk that your store is on.
    """
    import tempfile

    within = folder or locations.nearest_folder(locations.where(request))
    with (
        output.bar(request, "Measuring") as advance,
        tempfile.TemporaryDirectory(prefix="tertulia-bench-", dir=within) as made,
    ):
        figures = list(measured(made, turns, advance))
    if request.json:
        output.print_json([_to_dict(one) for one in figures])
        return
    table = output.table(
        "work", "times", "median ms", "99% ms", "per second", elastic="work",
        numbers=("times", "median ms", "99% ms", "per second"),
    )  # fmt: skip
    for one in figures:
        table.add_row(
            one.work, f"{one.times:,}", f"{one.median_ms:.3f}", f"{one.p99_ms:.3f}",
            f"{one.per_second:,.0f}",
        )  # fmt: skip
    output.show(request, table)


class Stopwatch:
    """Takes the time of work, and tells how far all of it has come."""

    def __init__(self, total: int, advance: Advance) -> None:
        self._total = total
        self._advance = advance
        self._done = 0

    def time(self, work: str, times: int, act: Callable[[int], Any]) -> Figure:
        """Do something so many times; once before that, for what is loaded the first time."""
        import statistics

        act(times)
        took = []
        for number in range(times):
            began = time.perf_counter()
            act(number)
            took.append((time.perf_counter() - began) * 1000)
            self._done += 1
            self._advance(self._done, self._total)
        return Figure(work, times, statistics.median(took), sorted(took)[times * 99 // 100])


def measured(folder: str, turns: int, advance: Advance) -> Iterator[Figure]:
    """The figures of new stores in a folder; `advance` is told how far it has come."""
    import tertulia
    from tertulia import Settings

    looks = max(10, turns // 10)
    watch = Stopwatch(2 * turns + 3 * looks, advance)
    with tertulia.open(f"{folder}/fast.db", settings=Settings(durability="fast")) as store:
        yield watch.time("a turn with durability fast", turns, partial(_turn, store))
    with tertulia.open(f"{folder}/safe.db") as store:
        yield watch.time("a turn, durable", turns, partial(_turn, store))
        yield from _looked(store, looks, watch)


def _looked(store: Store, looks: int, watch: Stopwatch) -> Iterator[Figure]:
    from tertulia import Source

    session = store.sessions.open(Source("telegram", "0", user_id="0"))
    transcript = store.transcript(session.id)
    store.search("umbrella")  # the index catches up first
    yield watch.time(
        "a history of 8,000 tokens", looks, lambda _: transcript.history(max_tokens=8000)
    )
    yield watch.time("a list of 50 sessions", looks, lambda _: store.sessions.find(limit=50))
    yield watch.time("a search", looks, lambda _: store.search("umbrella", limit=20))


def _turn(store: Store, number: int) -> None:
    """One of ten people says something, and is answered."""
    from tertulia import Source, Usage

    who = str(number % 10)
    source = Source("telegram", who, user_id=who)
    with store.turn(source, _SAID, message_id=str(number)) as turn:
        turn.add_assistant(_ANSWERED, usage=Usage(812, 64, model="gpt-5-mini"))


def _to_dict(one: Figure) -> dict[str, Any]:
    return {
        "work": one.work,
        "times": one.times,
        "median_ms": round(one.median_ms, 4),
        "p99_ms": round(one.p99_ms, 4),
        "per_second": round(one.per_second, 1),
    }

"""Timing: measure all contestants in turn, in rounds, and compute medians."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

Seconds = float

# A single commit takes 0.2 to 0.5 ms on a local disk when nothing else runs.
BUSY_COMMIT = 0.0015


class GaveUpError(Exception):
    """A contestant cannot continue; the others are measured without it."""


class Contestant(Protocol):
    """A store whose operation is timed.

    1. `burst` times each operation separately. It runs `times` operations, or fewer if the
       contestant is so slow that the others would have to wait long.
    2. `rest` waits until background work of the operation is finished, so that it cannot disturb
       the next contestant.
    """

    @property
    def name(self) -> str: ...

    def burst(self, times: int) -> list[Seconds]: ...

    def rest(self) -> None: ...


@dataclass(slots=True)
class Operation:
    """A contestant in this process."""

    name: str
    call: Callable[[], object]
    afterwards: Callable[[], object] | None = None

    def burst(self, times: int) -> list[Seconds]:
        return timed(self.call, times)

    def rest(self) -> None:
        if self.afterwards is not None:
            self.afterwards()


@dataclass(slots=True)
class Samples:
    """The times of one contestant: for the very first operation, then for each burst."""

    first: Seconds = 0.0
    bursts: list[list[Seconds]] = field(default_factory=list)
    resting: list[Seconds] = field(default_factory=list)
    gave_up: str = ""

    @property
    def all(self) -> list[Seconds]:
        return [seconds for burst in self.bursts for seconds in burst]

    @property
    def median(self) -> Seconds:
        return statistics.median(self.all)

    @property
    def p99(self) -> Seconds:
        return percentile(self.all, 0.99)

    @property
    def worst(self) -> Seconds:
        return max(self.all)

    @property
    def stall(self) -> Seconds:
        """Return the typical worst case: the median of the slowest operation of each burst.

        A delay that occurs in every burst counts in full; a single delay of the machine does not.
        """
        return statistics.median(max(burst) for burst in self.bursts)

    @property
    def sustained(self) -> Seconds:
        """Return the time per operation with its background work included."""
        return (sum(self.all) + sum(self.resting)) / len(self.all)

    def only(self, rounds: Sequence[int]) -> Samples:
        """Return the samples of some rounds, or all if the contestant took part in none of them."""
        calm_rounds = [number for number in rounds if number < len(self.bursts)]
        if not calm_rounds:
            return self
        return Samples(
            self.first,
            [self.bursts[number] for number in calm_rounds],
            [self.resting[number] for number in calm_rounds],
            self.gave_up,
        )


def timed(call: Callable[[], object], times: int) -> list[Seconds]:
    clock = time.perf_counter
    results = []
    for _ in range(times):
        start = clock()
        call()
        results.append(clock() - start)
    return results


def interleave(
    contestants: Sequence[Contestant], *, rounds: int, times: int, budget: Seconds = 20.0
) -> dict[str, Samples]:
    """Run one burst of each contestant per round (A B C A B C …) after one warm-up operation each.

    A contestant that has used up its budget skips the remaining rounds and keeps its samples.
    """
    results = {contestant.name: Samples() for contestant in contestants}
    for contestant in contestants:
        _attempt(contestant, results[contestant.name], _warm_up)
    for _ in range(rounds):
        for contestant in contestants:
            samples = results[contestant.name]
            if not samples.gave_up and sum(samples.all) <= budget:
                _attempt(contestant, samples, partial(_burst, times=times))
    return results


def was_disturbed(raw: Samples) -> bool:
    """Return whether raw commits waited for other work; checkpoints alone are one in 200."""
    waited = sum(seconds > BUSY_COMMIT for seconds in raw.all)
    return waited > 0.01 * len(raw.all)


def calm(results: dict[str, Samples], yardstick: str) -> dict[str, Samples]:
    """Return only the rounds in which the yardstick was not disturbed, for all contestants.

    When other work keeps the machine busy, every commit waits for it, and a ratio of two waits
    makes all stores look alike. The times of the store under test do not influence the choice.
    """
    medians = [statistics.median(burst) for burst in results[yardstick].bursts]
    typical = percentile(medians, 0.2)
    calm_rounds = [number for number, median in enumerate(medians) if median <= 1.5 * typical]
    return {name: samples.only(calm_rounds) for name, samples in results.items()}


def percentile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def _attempt(
    contestant: Contestant, samples: Samples, step: Callable[[Contestant, Samples], None]
) -> None:
    try:
        step(contestant, samples)
    except GaveUpError as problem:
        samples.gave_up = str(problem)


def _warm_up(contestant: Contestant, samples: Samples) -> None:
    samples.first = contestant.burst(1)[0]


def _burst(contestant: Contestant, samples: Samples, times: int) -> None:
    samples.bursts.append(contestant.burst(times))
    start = time.perf_counter()
    contestant.rest()
    samples.resting.append(time.perf_counter() - start)

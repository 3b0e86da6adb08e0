import itertools

import pytest

from benchmarks.measure import GaveUpError, Operation, Samples, calm, interleave

pytestmark = pytest.mark.check


def test_contestants_take_turns() -> None:
    seen: list[str] = []
    both = [Operation(name, lambda name=name: seen.append(name)) for name in ("a", "b")]  # type: ignore[misc]
    interleave(both, rounds=2, times=2)
    assert "".join(seen) == "ab" + "aabb" + "aabb"


def test_a_contestant_that_gives_up_does_not_stop_the_others() -> None:
    calls = itertools.count()

    def fails_later() -> None:
        if next(calls) > 1:
            raise GaveUpError("no more")

    found = interleave(
        [Operation("frail", fails_later), Operation("steady", lambda: None)], rounds=3, times=1
    )
    assert found["frail"].gave_up == "no more"
    assert len(found["frail"].bursts) == 1
    assert len(found["steady"].bursts) == 3


def test_whoever_has_used_up_the_budget_sits_out() -> None:
    found = interleave([Operation("any", lambda: None)], rounds=5, times=1, budget=-1)
    assert found["any"].bursts == []


def test_a_stall_is_the_typical_worst_case() -> None:
    samples = Samples(bursts=[[1, 1, 9], [1, 1, 2], [1, 1, 3]])
    assert samples.stall == 3
    assert samples.worst == 9
    assert samples.median == 1


def test_disturbed_rounds_are_left_out_for_everyone() -> None:
    found = {
        "raw": Samples(bursts=[[1.0], [9.0], [1.1], [1.0]], resting=[0, 0, 0, 0]),
        "ours": Samples(bursts=[[2.0], [9.0], [2.0], [2.0]], resting=[0, 0, 0, 0]),
        "early": Samples(bursts=[[5.0]], resting=[0]),
    }
    kept = calm(found, "raw")
    assert kept["ours"].all == [2.0, 2.0, 2.0]
    assert kept["early"].all == [5.0]

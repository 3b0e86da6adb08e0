"""What the anatomy of an exchange finds in the log is what the exchange has written."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import anatomy

pytestmark = pytest.mark.check


def test_pages_are_told_by_step_and_by_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(anatomy, "EXCHANGES", 10)
    found = anatomy._pages(tmp_path)
    assert list(found) == ["tertulia", "raw"]
    for steps in found.values():
        assert tuple(steps) == anatomy.STEPS
        assert all(written["messages"] >= 10 for written in steps.values())
        assert all(written["free"] == 0 for written in steps.values())
    # Only the answer has usage, and only a turn's ends are marked in the list of turns.
    assert [bool(written["usage_new"]) for written in found["tertulia"].values()] == [0, 0, 0, 1]
    assert [bool(written["turns"]) for written in found["tertulia"].values()] == [1, 0, 0, 1]


def test_every_step_takes_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(anatomy, "EXCHANGES", 3)
    monkeypatch.setattr(anatomy, "ROUNDS", 2)
    found = anatomy._seconds(tmp_path)
    assert {name: tuple(steps) for name, steps in found.items()} == {
        "tertulia": anatomy.STEPS,
        "raw": anatomy.STEPS,
    }
    assert all(seconds > 0 for steps in found.values() for seconds in steps.values())

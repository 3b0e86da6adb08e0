"""A short run on each database; `make torture` runs the long one."""

from __future__ import annotations

import pytest

from tests.torture.__main__ import run_on_postgres, run_on_sqlite

pytestmark = pytest.mark.check

SECONDS = 10


def test_postgres() -> None:
    report = run_on_postgres(SECONDS, seed=1)
    print(report)
    assert not report.faults
    assert report.messages > 0
    assert min(report.kills, report.stops, report.cuts, report.restarts) > 0


def test_sqlite() -> None:
    report = run_on_sqlite(SECONDS, seed=1)
    print(report)
    assert not report.faults
    assert report.messages > 0
    assert min(report.kills, report.stops) > 0

import json
from pathlib import Path

import pytest

from benchmarks import report
from benchmarks.report import Limit, PeerRow, Row

pytestmark = pytest.mark.check


@pytest.mark.parametrize(
    ("limit", "figure", "verdict"),
    [
        (Limit("≤", 1.5), 1.5, "met"),
        (Limit("≤", 1.5), 1.51, "not met"),
        (Limit("≥", 2), 1.9, "not met"),
        (Limit("=", 0, ""), 0.0, "met"),
        (Limit("=", 0, ""), 1.0, "not met"),
        (None, 3.0, "for information"),
        (Limit("≤", 1.5), None, "not measured"),
    ],
)
def test_a_verdict_is_what_the_limit_says(
    limit: Limit | None, figure: float | None, verdict: str
) -> None:
    assert Row("row", "what", figure, limit).verdict == verdict


def test_a_row_measured_on_a_busy_machine_says_so() -> None:
    assert Row("row", "what", 1.0, Limit("≤", 2), disturbed=True).verdict == "met, disturbed"


def test_times_become_a_ratio() -> None:
    row = report.timing("row", "what", ours=0.003, against=("raw", 0.002), limit=Limit("≤", 2))
    assert row.figure == pytest.approx(1.5)
    assert (row.ours, row.against) == ("3.00 ms", "raw 2.00 ms")
    assert row.numbers["ours_ms"] == pytest.approx(3)


def test_the_table_is_aligned_and_tells_problems() -> None:
    shown = report.table(
        [
            Row("short", "a thing", 1.234, Limit("≤", 2), ours="1 ms", against="raw 2 ms"),
            Row("a_long_name", "broken", None, problem="KeyError: 'x'"),
        ]
    )
    lines = shown.splitlines()
    assert lines[0].index("verdict") == lines[2].index("met")
    assert "1.23×" in lines[2]
    assert "not measured" in lines[3]
    assert "  a_long_name: KeyError: 'x'" in lines


def test_peers_are_grouped_by_row(tmp_path: Path) -> None:
    rows = [
        PeerRow("find", "b", value=1.0),
        PeerRow("find", "a", problem="not offered"),
        PeerRow("list", "a", value=2.0, worst=3.0, against_ours=4.0),
    ]
    shown = report.peer_table(rows).splitlines()
    assert [line.split()[:2] for line in shown[2:]] == [["find", "a"], ["find", "b"], ["list", "a"]]


def test_the_figures_are_kept_as_json(tmp_path: Path) -> None:
    path = tmp_path / "results" / "latest.json"
    report.write_json(path, about={"quick": True}, rows=[Row("row", "what", 1.0)], peers=[])
    found = json.loads(path.read_text())
    assert found["about"] == {"quick": True}
    assert found["rows"][0]["verdict"] == "for information"

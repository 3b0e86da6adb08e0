"""The report keeps every kind of problem, and bounds how many of one kind."""

from __future__ import annotations

from tertulia.transfer.importers.report import Findings, PrefixedFindings, Problem, Report


def test_problems_keep_their_order_and_place() -> None:
    findings = Findings()
    findings.add("a.jsonl", 3, "garbage_line", "not JSON")
    findings.add("b.jsonl", None, "empty_file", "the file is empty")
    assert findings.all() == (
        Problem("a.jsonl", 3, "garbage_line", "not JSON"),
        Problem("b.jsonl", None, "empty_file", "the file is empty"),
    )


def test_many_problems_of_one_kind_in_one_file_are_counted() -> None:
    findings = Findings()
    for line in range(1_000):
        findings.add("a.jsonl", line, "garbage_line", "not JSON")
    findings.add("b.jsonl", 1, "garbage_line", "not JSON")
    problems = findings.all()
    assert len(problems) == 200 + 1 + 1
    assert problems[-1].detail == "and 800 more like these in this file"


def test_detail_is_short_and_printable() -> None:
    findings = Findings()
    findings.add("a", 1, "odd", "\ud800" + "x" * 1_000)
    (problem,) = findings.all()
    assert problem.detail.startswith("\\ud800x")
    assert len(problem.detail) == 300


def test_prefix_names_the_session() -> None:
    findings = Findings()
    PrefixedFindings(findings, "session 7: ").add("a", None, "odd", "detail")
    assert findings.all()[0].detail == "session 7: detail"


def test_report_is_whole_unless_a_file_could_not_be_read() -> None:
    assert Report(problems=(Problem("a", 1, "garbage_line", ""),)).is_whole
    assert not Report(problems=(Problem("a", None, "unreadable", ""),)).is_whole
    assert Report(sessions=2).to_dict() == {
        "sessions": 2, "messages": 0, "skipped": 0, "problems": (),
    }  # fmt: skip

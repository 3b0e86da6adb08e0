"""Values of a transcript file become messages, or a reported problem."""

from __future__ import annotations

from datetime import UTC

import pytest

from tertulia.transfer.importers.normalise import MessageNormaliser
from tertulia.transfer.importers.report import Findings
from tertulia.transfer.importers.timestamps import TimestampParser


@pytest.fixture
def findings() -> Findings:
    return Findings()


@pytest.fixture
def normaliser(findings: Findings) -> MessageNormaliser:
    return MessageNormaliser("a.jsonl", findings, TimestampParser(UTC))


def kinds(findings: Findings) -> list[str]:
    return [problem.kind for problem in findings.all()]


def test_chat_message_is_returned_unchanged(
    normaliser: MessageNormaliser, findings: Findings
) -> None:
    message = {"role": "user", "content": [{"type": "text", "text": "hola"}], "more": 1}
    assert normaliser.message(1, message) is message
    assert kinds(findings) == []


@pytest.mark.parametrize("value", [None, 7, "text", [], {}])
def test_other_values_are_reported(
    normaliser: MessageNormaliser, findings: Findings, value: object
) -> None:
    assert normaliser.message(1, value) is None
    assert kinds(findings) == ["not_a_message"]


def test_unusual_message_is_kept_with_a_valid_role(
    normaliser: MessageNormaliser, findings: Findings
) -> None:
    assert normaliser.message(1, {"content": "hola"}) == {"role": "unknown", "content": "hola"}
    assert normaliser.message(2, {"role": 7, "content": "hola"}) == {
        "role": "unknown", "content": "hola", "role_given": 7,
    }  # fmt: skip
    assert normaliser.message(3, {"role": "user", "content": 7}) == {"role": "user", "content": 7}
    assert kinds(findings) == ["odd_message"] * 3


def test_mixed_forms_of_time_are_reported_once(
    normaliser: MessageNormaliser, findings: Findings
) -> None:
    assert normaliser.at(1, None) is None
    for line, value in enumerate(["2026-01-01T00:00:00", 1767225600, "2026-01-01T00:00:00Z"]):
        assert normaliser.at(line, value) == 1767225600_000_000
    assert normaliser.at(9, "soon") is None
    assert kinds(findings) == ["mixed_timestamps", "unparseable_timestamp"]

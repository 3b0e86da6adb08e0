"""`tertulia schedules`: planning by hand."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Typed


def test_nothing_is_planned_at_first(typed: Typed) -> None:
    assert typed("schedules", "list").stdout.startswith("Nothing is planned.")
    assert typed.json("schedules", "list") == []


def test_a_task_from_its_plan_to_its_end(typed: Typed) -> None:
    made = typed.json("schedules", "add", "cron 0 9 * * MON-FRI", "look", "--zone", "Asia/Tokyo")
    assert made["when"] == "cron 0 9 * * MON-FRI (Asia/Tokyo)"
    assert made["next_at"].endswith("T00:00:00Z")
    assert (made["target"], made["owner"], made["state"]) == ("local", "local:cli", "active")
    number = str(made["id"])
    assert typed.json("schedules", "list") == [made]
    assert "look" in typed("schedules", "list").stdout
    assert typed.json("schedules", "pause", number)["state"] == "paused"
    assert typed("schedules", "resume", number).stdout.startswith(f"Schedule {number} (cron")
    assert "has not run yet" in typed("schedules", "history", number).stdout
    assert typed.json("schedules", "run", number)["is_manual"] is True
    (run,) = typed.json("schedules", "history", number)
    assert (run["state"], run["schedule"]) == ("waiting", made["id"])
    assert "waiting" in typed("schedules", "history", number).stdout
    assert "is removed" in typed("schedules", "remove", number).stdout
    assert typed.json("schedules", "list") == []


@pytest.mark.parametrize("act", ["pause", "resume", "remove", "run", "history"])
def test_what_does_not_exist_is_told(typed: Typed, act: str) -> None:
    told = typed.error("schedules", act, "9", expect=3)
    assert told["code"] == "not_found"


@pytest.mark.parametrize(
    "words",
    [("sometime", "look"), ("every 2h", " "), ("every 2h", "look", "--to", "telegrm:1")],
)
def test_a_mistake_is_told_and_nothing_is_planned(typed: Typed, words: tuple[str, ...]) -> None:
    assert typed.error("schedules", "add", *words, expect=2)["code"] == "config"
    assert typed.json("schedules", "list") == []

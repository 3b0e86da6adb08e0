"""The page of usage: sums of some days, and the sessions of one day."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from tests.console.served_console import served_console
from tests.console.test_app import fill_list


def test_days_that_do_not_exist_are_refused(tmp_path: Path) -> None:
    with served_console(tmp_path / "talk.db") as console, console.client() as client:
        for day in ("0001-01-01", "9999-12-31", "2026-02-30", "yesterday"):
            for name in ("since", "until"):
                page = client.get("/console/usage", params={name: day})
                assert page.status_code == 400, (name, day)
                assert "is not a day" in page.text


def test_sessions_are_listed_for_one_day(tmp_path: Path) -> None:
    """There are no sums by session, so those of a month would be read call by call."""
    fill_list(tmp_path / "talk.db")
    with served_console(tmp_path / "talk.db") as console, console.client() as client:
        page = client.get("/console/usage").text
        assert "By person" in page
        assert "By session" not in page
        assert "For the sessions of a day" in page
        today = f"{datetime.now().astimezone():%Y-%m-%d}"
        page = client.get("/console/usage", params={"since": today, "until": today}).text
        assert "By session" in page
        assert "Trains to Madrid, plan" in page
        assert "For the sessions of a day" not in page

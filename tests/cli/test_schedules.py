"""`tertulia schedules`: add, list, pause, resume, run, history and remove."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import CommandLine


def test_list_without_schedules(cli: CommandLine) -> None:
    assert cli("schedules", "list").stdout.startswith("Nothing is planned.")
    assert cli.json("schedules", "list") == []


def test_schedule_from_add_to_remove(cli: CommandLine) -> None:
    made = cli.json("schedules", "add", "cron 0 9 * * MON-FRI", "look", "--zone", "Asia/Tokyo")
    assert made["when"] == "cron 0 9 * * MON-FRI (Asia/Tokyo)"
    assert made["next_at"].endswith("T00:00:00Z")
    assert (made["target"], made["owner"], made["state"]) == ("local", "local:cli", "active")
    number = str(made["id"])
    assert cli.json("schedules", "list") == [made]
    assert "look" in cli("schedules", "list").stdout
    assert cli.json("schedules", "pause", number)["state"] == "paused"
    assert cli("schedules", "resume", number).stdout.startswith(f"Schedule {number} (cron")
    assert "has not run yet" in cli("schedules", "history", number).stdout
    assert cli.json("schedules", "run", number)["is_manual"] is True
    (run,) = cli.json("schedules", "history", number)
    assert (run["state"], run["schedule"]) == ("waiting", made["id"])
    assert "waiting" in cli("schedules", "history", number).stdout
    assert "is removed" in cli("schedules", "remove", number).stdout
    assert cli.json("schedules", "list") == []


@pytest.mark.parametrize("act", ["pause", "resume", "remove", "run", "history"])
def test_unknown_schedule_is_not_found(cli: CommandLine, act: str) -> None:
    text = cli.error("schedules", act, "9", expect=3)
    assert text["code"] == "not_found"


@pytest.mark.parametrize(
    "words",
    [("sometime", "look"), ("every 2h", " "), ("every 2h", "look", "--to", "telegrm:1")],
)
def test_invalid_schedule_is_refused(cli: CommandLine, words: tuple[str, ...]) -> None:
    assert cli.error("schedules", "add", *words, expect=2)["code"] == "config"
    assert cli.json("schedules", "list") == []


def test_schedule_says_when_it_runs_and_where_its_results_are(cli: CommandLine) -> None:
    text = cli("schedules", "add", "tomorrow at 9", "look").stdout
    assert "09:00:00 (UTC)" in text
    assert ".local/share/tertulia/schedules/1." in text
    assert (
        "files in" not in cli("schedules", "add", "every 2h", "look", "--to", "telegram:1").stdout
    )


def test_target_that_is_not_configured_is_warned_about(cli: CommandLine, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    command = ("schedules", "add", "every 2h", "look", "--config", str(path), "--to")
    path.write_text("[agent]\nkind = 'parrot'\n")
    for target in ("telegram", "telegram:42"):
        added = cli(*command, target)
        assert added.stderr.startswith("warning: telegram is not configured.")
        assert "is planned" in added.stdout
    path.write_text("[platforms.telegram]\ntoken_env = 'TOKEN'\n")
    assert cli(*command, "telegram").stderr.startswith("warning: telegram has no home.")
    path.write_text("[platforms.telegram]\ntoken_env = 'TOKEN'\nhome = '42'\n")
    for target in ("telegram", "telegram:42", "origin", "local"):
        assert cli(*command, target).stderr == ""
    home = "[store.homes.web]\nchat_id = 'den'\naccount = 'root'\n"
    path.write_text(home)
    assert cli(*command, "web").stderr.startswith("warning: web is not configured.")
    path.write_text(f"[platforms.web]\n{home}")
    assert cli(*command, "web:den").stderr.startswith("warning: A web chat belongs to a token")
    assert cli(*command, "web").stderr == ""

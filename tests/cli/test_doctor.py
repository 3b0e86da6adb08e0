"""`tertulia doctor`: its checks and its advice."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any, NamedTuple

import apsw
import pytest
from click.testing import CliRunner

import tertulia
from tertulia.cli import doctor, main
from tertulia.install_command import install_command
from tests.cli.conftest import CommandLine, Demo


def findings(cli: CommandLine, expect: int = 0) -> dict[str, dict[str, Any]]:
    text = cli.json("doctor", expect=expect)
    assert text["healthy"] is (expect == 0)
    return {finding["name"]: finding for finding in text["findings"]}


def test_narrow_terminal_gets_the_details_under_the_names(
    cli: CommandLine, demo: Demo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    os.chmod(demo.path, 0o600)
    rows = [row.rstrip() for row in cli("doctor").stdout.splitlines()]
    assert max(map(len, rows)) <= 20
    assert rows[rows.index("✓  time zone") + 1] == "   UTC"


def test_healthy_store_has_no_findings(cli: CommandLine, demo: Demo) -> None:
    os.chmod(demo.path, 0o600)
    found = findings(cli)
    assert {name for name, finding in found.items() if finding["state"] != "ok"} <= {"disk"}
    assert found["SQLite"]["detail"] == apsw.sqlite_lib_version()
    assert found["store"]["detail"] == demo.path
    assert found["time zone"]["detail"] == "UTC"
    assert found["schema"]["detail"].endswith("up to date")
    assert found["contents"]["detail"] == (
        "sessions 3 (current 2), messages 35, people 2, model calls 2"
    )
    assert found["search"]["detail"] == "up to date"
    assert found["integrity"]["detail"] == "no damage was found"


def test_undelivered_messages_are_a_warning(cli: CommandLine, demo: Demo) -> None:
    assert findings(cli)["deliveries"]["detail"] == "nothing is undelivered"
    with tertulia.open(demo.path) as store:
        for number in range(3):
            store.outbox.put("Hello", "telegram:42", delivery=str(number))
            (delivery,) = store.outbox.claim()
            store.outbox.failed(delivery, "no", outcome="unknown" if number else "dead")
    found = findings(cli)["deliveries"]
    assert (found["state"], found["detail"]) == (
        "warning", "1 refused or given up, 2 perhaps not arrived",
    )  # fmt: skip
    assert "/deliveries" in found["advice"]


def test_prints_a_line_for_each_finding(cli: CommandLine) -> None:
    text = cli("doctor").stdout
    names = findings(cli)
    assert all(f"✓  {name} " in text or f"!  {name} " in text for name in names)


def test_doctor_changes_nothing(cli: CommandLine, demo: Demo) -> None:
    before = Path(demo.path).read_bytes()
    cli("doctor")
    assert Path(demo.path).read_bytes() == before


def test_missing_default_store_is_made_without_an_option() -> None:
    advice = findings(CommandLine(None))["store"]["advice"]
    assert advice == "It is made when you first talk: tertulia chat"


def test_missing_store_is_a_warning(tmp_path: Path) -> None:
    found = findings(CommandLine(str(tmp_path / "none" / "talk.db")))
    assert found["store"]["state"] == "warning"
    command = f"tertulia --store {tmp_path / 'none' / 'talk.db'} chat"
    assert found["store"]["advice"] == f"It is made when you first talk: {command}"
    assert "disk" in found
    assert not (tmp_path / "none").exists()


def test_files_of_other_programs_are_problems(tmp_path: Path, demo: Demo) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("Dear diary, " * 500)
    assert "no Tertulia store" in findings(CommandLine(str(text)), expect=1)["schema"]["detail"]
    connection = apsw.Connection(demo.path)
    connection.execute("pragma application_id = 7")
    connection.close()
    assert "another program" in findings(CommandLine(demo.path), expect=1)["schema"]["detail"]


def test_invalid_store_location_is_a_problem(tmp_path: Path) -> None:
    assert findings(CommandLine("postgresql://host/talk"), expect=1)["store"]["state"] == "problem"
    assert findings(CommandLine(str(tmp_path)), expect=1)["store"]["state"] == "problem"
    assert findings(CommandLine(""), expect=1)["store"]["state"] == "problem"


def test_damage_is_a_problem(cli: CommandLine, demo: Demo) -> None:
    connection = apsw.Connection(demo.path)
    query = "select rootpage from sqlite_schema where name = 'sessions_ended'"
    root = int(str(connection.execute(query).fetchall()[0][0]))
    connection.close()
    with open(demo.path, "r+b") as file:
        file.seek(4096 * (root - 1))
        file.write(b"\xff" * 4096)
    found = findings(cli, expect=1)["integrity"]
    assert found["state"] == "problem"
    assert "store check" in found["advice"]


def test_old_schema_is_a_warning(cli: CommandLine, demo: Demo) -> None:
    connection = apsw.Connection(demo.path)
    connection.execute("delete from migrations")
    connection.close()
    found = findings(cli)
    assert found["schema"]["state"] == "warning"
    assert found["schema"]["advice"].endswith("tertulia store migrate")
    assert "contents" not in found


def test_index_lag_is_a_warning(
    cli: CommandLine, demo: Demo, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = apsw.Connection(demo.path)
    connection.execute(
        "insert into unindexed select ref from sessions; update sessions set indexed_seq = 0"
    )
    connection.close()
    assert findings(cli)["search"]["detail"] == "35 messages behind, to be indexed"
    monkeypatch.setattr(doctor, "_MAX_INDEX_LAG", 30)
    assert findings(cli)["search"]["state"] == "warning"


def test_file_readable_by_others_is_a_warning(cli: CommandLine, demo: Demo) -> None:
    os.chmod(demo.path, 0o644)
    assert findings(cli)["access"]["advice"].endswith(f"chmod 600 {demo.path}")


def test_unwritable_file_is_a_problem(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, right: right != os.W_OK)
    found = findings(cli, expect=1)
    assert found["access"]["detail"] == "the file is not writable"
    assert found["folder"]["state"] == "problem"


class _Disk(NamedTuple):
    free: int


@pytest.mark.parametrize(
    ("free", "state"), [(5_000_000_000, "ok"), (500_000_000, "warning"), (5_000_000, "problem")]
)
def test_free_disk_space(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch, free: int, state: str
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: _Disk(free))
    assert findings(cli, expect=int(state == "problem"))["disk"]["state"] == state


def test_missing_price_list_is_a_warning(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "genai_prices", None)
    found = findings(cli)["prices"]
    assert found["state"] == "warning"
    assert install_command("prices") in found["advice"]


@pytest.mark.parametrize(
    ("version", "has_bug"),
    [
        ("3.6.23", False),
        ("3.7.0", True),
        ("3.44.5", True),
        ("3.44.6", False),
        ("3.45.1", True),
        ("3.50.6", True),
        ("3.50.7", False),
        ("3.51.2", True),
        ("3.51.3", False),
        ("3.54.1", False),
    ],
)
def test_versions_with_the_wal_reset_bug(version: str, has_bug: bool) -> None:
    assert doctor.has_wal_reset_bug(version) is has_bug


def test_wal_reset_bug_is_a_warning(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apsw, "sqlite_lib_version", lambda: "3.51.2")
    assert findings(cli)["SQLite"]["state"] == "warning"


SECRET = "S3cret-0f-the-account"
ACCOUNTS = f"""
[http]
enabled = true

[agent]
kind = "anthropic"
model = "m"
api_key = "{SECRET}-agent"

[platforms.telegram]
token = "{SECRET}:telegram"
secret = "{SECRET}-webhook"

[platforms.discord]
token = "{SECRET}.discord"

[platforms.slack]
bot_token = "xoxb-{SECRET}"
app_token = "xapp-{SECRET}"

[platforms.slack.accounts.second]
bot_token = "xoxb-{SECRET}-2"
signing_secret = "{SECRET}"

[platforms.whatsapp]
phone_number_id = "1"
token = "{SECRET}"
app_secret = "{SECRET}"
verify_token = "{SECRET}"

[platforms.matrix]
base_url = "http://127.0.0.1:9"
token = "{SECRET}"

[platforms.email]
address = "agent@example.com"
password = "{SECRET}"
imap_url = "imaps://127.0.0.1"
smtp_url = "smtps://127.0.0.1"
auth_server = "mx.example.com"

[platforms.webhook]
secret = "{SECRET}{SECRET}"
"""


@pytest.mark.check
@pytest.mark.parametrize("mistake", ["", "[platforms.matrix]\ntokn = 5\n", "[platforms.slack"])
@pytest.mark.parametrize("command", ["doctor", "platforms", "config check", "config show"])
def test_no_secret_of_an_account_is_printed(
    demo: Demo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, mistake: str
) -> None:
    path = tmp_path / "config.toml"
    path.write_text(ACCOUNTS + mistake)
    path.chmod(0o644)  # others may read it: one more thing to say
    monkeypatch.setenv("TERTULIA_CONFIG", str(path))
    for options in ([], ["--json"], ["--verbose"]):
        arguments = ["--store", demo.path, *command.split(), *options]
        result = CliRunner().invoke(main, arguments)
        assert mistake or result.exit_code < 2 or "--verbose" in options, result.output
        assert SECRET not in result.output + result.stderr + repr(result.exception), arguments

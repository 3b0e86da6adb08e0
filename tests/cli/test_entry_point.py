"""The program as a whole: help, unexpected errors, colours, pipes and signals."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest

import tertulia
from tertulia.cli import main
from tertulia.cli.entry_point import COMMAND_GROUPS, load_credentials
from tertulia.install_command import install_command
from tests.cli.conftest import CommandLine, Demo, run

pytestmark = pytest.mark.check


class TestHelp:
    def test_version(self) -> None:
        assert CommandLine(None)("--version").stdout == f"tertulia {tertulia.__version__}\n"

    def test_every_command_has_help(self) -> None:
        for path in commands():
            assert "--store" in CommandLine(None)(*path, "--help").stdout
            assert CommandLine(None)(*path, "-h").stdout

    def test_group_without_command_shows_help(self) -> None:
        assert "Set up:" in CommandLine(None)(expect=2).stderr
        assert "Commands:" in CommandLine(None)("sessions", expect=2).stderr

    def test_every_command_is_in_one_group(self) -> None:
        names = [name for group in COMMAND_GROUPS.values() for name in group]
        assert sorted(names) == sorted(main.commands)
        assert "  chat        Talk with the agent" in CommandLine(None)("--help").stdout

    @pytest.mark.parametrize(
        ("word", "suggestion"),
        [
            ("search", "Did you mean 'sessions search'?"),
            ("approve", "Did you mean 'pair approve' or 'people approve'?"),
            ("sesions", "Did you mean 'sessions'?"),
        ],
    )
    def test_unknown_command_is_answered_with_a_known_one(self, word: str, suggestion: str) -> None:
        assert suggestion in CommandLine(None)(word, expect=2).stderr

    def test_help_does_not_import_optional_packages(self) -> None:
        code = (
            "import sys; from tertulia.cli import main; main(['--help'], standalone_mode=False);"
            "print([name for name in ('rich', 'platformdirs', 'genai_prices', 'asyncio') "
            "if name in sys.modules])"
        )
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        )
        assert done.stdout.splitlines()[-1] == "[]"


def commands() -> list[list[str]]:
    found = []
    for name, command in main.commands.items():
        inner = command.commands if isinstance(command, click.Group) else {}
        found += [[name, leaf] for leaf in inner] or [[name]]
    return found


class TestUnexpectedErrors:
    def test_unexpected_exception_is_raised(
        self, cli: CommandLine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def broken(*args: object) -> None:
            raise ZeroDivisionError

        monkeypatch.setattr("tertulia.cli.locations.open_to_read", broken)
        with pytest.raises(ZeroDivisionError):
            main(["sessions", "list"])

    def test_missing_click_is_reported_with_the_extra(self, tmp_path: Path) -> None:
        (tmp_path / "click.py").write_text("raise ModuleNotFoundError(name='click')")
        done = run("doctor", env={"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])})
        assert done.returncode == 1
        assert install_command("cli") in done.stderr
        assert "Traceback" not in done.stderr


class TestColours:
    def test_no_colours_in_a_pipe(self, cli: CommandLine) -> None:
        assert "\x1b" not in cli("sessions", "list").output
        assert "\x1b" not in cli("sessions", "nix", expect=2).output

    def test_colours_are_forced_and_turned_off(
        self, cli: CommandLine, demo: Demo, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("FORCE_COLOR", "1")
        assert "\x1b[32m" in cli("sessions", "list").stdout
        assert "\x1b[32m" not in cli("sessions", "list", "--no-color").stdout
        monkeypatch.setenv("NO_COLOR", "1")
        assert "\x1b[32m" not in cli("sessions", "list").stdout


class TestProcess:
    """Real processes: what the test runner of click cannot show."""

    def test_migrate_list_and_show_as_processes(self, tmp_path: Path) -> None:
        env = {"TERTULIA_STORE": str(tmp_path / "talk.db")}
        assert run("store", "migrate", env=env).returncode == 0
        listed = run("sessions", "list", "--json", env=env)
        assert (listed.returncode, json.loads(listed.stdout)) == (0, [])
        missing = run("sessions", "show", "x", env=env)
        assert (missing.returncode, missing.stdout) == (3, "")
        assert missing.stderr.startswith("error: There is no session 'x'.")

    def test_arguments_that_are_not_utf8(self, demo: Demo) -> None:
        done = run("--store", demo.path, "sessions", "show", b"\xff\xfe")
        assert done.returncode == 3
        wrong: list[list[str | bytes]] = [
            ["--store", b"\xff", "sessions", "list"],
            ["store", "backup", b"\xff"],
        ]
        for words in wrong:
            done = run(*words, env={"TERTULIA_STORE": demo.path})
            assert done.returncode == 2
            assert "not written in UTF-8" in done.stderr

    @pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252"])
    def test_terminal_without_unicode_does_not_fail(self, demo: Demo, encoding: str) -> None:
        for words in (["sessions", "list"], ["sessions", "show", demo.hostile], ["doctor"]):
            done = run("--store", demo.path, *words, env={"PYTHONIOENCODING": encoding},
                       errors="replace")  # fmt: skip
            assert done.returncode == 0
            assert "Traceback" not in done.stderr

    def test_unknown_time_zone_is_reported(self, demo: Demo) -> None:
        env = {"TZ": "Mars/Olympus"}
        done = run("--store", demo.path, "sessions", "list", env=env)
        assert done.returncode == 2
        assert done.stderr.startswith("error: The machine's time zone 'Mars/Olympus'")
        looked = run("--store", demo.path, "doctor", env=env)
        assert looked.returncode == 1
        assert "✗  time zone" in looked.stdout

    def test_json_keeps_characters_the_encoding_lacks(self, demo: Demo) -> None:
        env = {"PYTHONIOENCODING": "ascii"}
        done = run("--store", demo.path, "sessions", "show", demo.old, "--json", env=env)
        assert json.loads(done.stdout)["origin"]["user_name"] == "Ana López"

    @pytest.mark.skipif(os.name != "posix", reason="pipes end otherwise there")
    @pytest.mark.parametrize("command", [["sessions", "list"], ["sessions", "list", "--json"]])
    def test_closed_pipe_exits_with_141(self, demo: Demo, command: list[str]) -> None:
        reading, writing = os.pipe()
        os.close(reading)
        done = subprocess.run(
            [sys.executable, "-m", "tertulia", "--store", demo.path, *command],
            stdout=writing,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
        os.close(writing)
        assert (done.returncode, done.stderr) == (141, "")

    @pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no full device")
    def test_full_disk_is_one_error_with_a_hint(self, demo: Demo) -> None:
        with open("/dev/full", "w") as full:
            done = subprocess.run(
                [sys.executable, "-m", "tertulia", "--store", demo.path, "sessions", "list"],
                stdout=full,
                stderr=subprocess.PIPE,
                text=True,
                check=False,
            )
        assert done.returncode == 5
        assert done.stderr.splitlines() == [
            "error: The system refused: [Errno 28] No space left on device.",
            "hint: Free some space and try again.",
        ]

    @pytest.mark.skipif(os.name != "posix", reason="signals are sent otherwise there")
    def test_interrupt_exits_with_130(self, demo: Demo) -> None:
        command = ["--store", demo.path, "sessions", "delete", demo.old]
        # In the background of a shell the tests are deaf to it, and so are their children.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        asking = subprocess.Popen(
            [sys.executable, "-m", "tertulia", *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        signal.signal(signal.SIGINT, before)
        assert asking.stderr is not None
        assert asking.stderr.read(6) == b"Delete"
        asking.send_signal(signal.SIGINT)
        _, text = asking.communicate(timeout=60)
        assert asking.returncode == 130
        assert b"Traceback" not in text


@pytest.mark.skipif(os.name != "posix", reason="needs a shell that closes streams")
@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_are_no_error(demo: Demo, closed: str) -> None:
    command = f'"$1" -m tertulia --store "$2" sessions list {closed}'
    shell = ["sh", "-c", command, "sh", sys.executable, demo.path]
    done = subprocess.run(shell, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert bool(done.stdout) == (" >&-" not in f" {closed}")


def test_credentials_of_a_service_become_variables(tmp_path: Path) -> None:
    (tmp_path / "OPENAI_API_KEY").write_text("sk-one\n", "utf-8")
    (tmp_path / "credentials_WEBHOOK_SECRET").write_text("two", "utf-8")
    (tmp_path / "HOME").write_text("/elsewhere", "utf-8")
    (tmp_path / "notes.txt").write_text("three", "utf-8")
    (tmp_path / "AAA_BINARY").write_bytes(b"\xff")
    environ = {"CREDENTIALS_DIRECTORY": str(tmp_path), "HOME": "/root"}
    load_credentials(environ)
    assert environ == {
        "CREDENTIALS_DIRECTORY": str(tmp_path),
        "HOME": "/root",
        "OPENAI_API_KEY": "sk-one",
        "WEBHOOK_SECRET": "two",
    }


def test_missing_folder_of_credentials_is_no_error(tmp_path: Path) -> None:
    environ = {"CREDENTIALS_DIRECTORY": str(tmp_path / "nowhere")}
    load_credentials(environ)
    assert list(environ) == ["CREDENTIALS_DIRECTORY"]

"""The program as a whole: help, errors, exit codes, pipes, signals and completion."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest

import tertulia
from tertulia import errors
from tertulia.cli import errors as cli_errors
from tertulia.cli import main
from tests.cli.conftest import Demo, Typed


def run(*args: str | bytes, **options: Any) -> subprocess.CompletedProcess[str]:
    """The program as a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "tertulia", *args],
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=False,
        env=os.environ | options.pop("env", {}),
        **options,
    )


class TestHelp:
    def test_version(self) -> None:
        assert Typed(None)("--version").stdout == f"tertulia {tertulia.__version__}\n"

    def test_every_command_has_help(self) -> None:
        for path in commands():
            assert "--store" in Typed(None)(*path, "--help").stdout
            assert Typed(None)(*path, "-h").stdout

    def test_a_group_alone_shows_its_help(self) -> None:
        assert "Commands:" in Typed(None)(expect=2).stderr
        assert "Commands:" in Typed(None)("sessions", expect=2).stderr

    def test_starts_without_what_it_does_not_need(self) -> None:
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


class TestErrors:
    def test_every_error_of_the_library_has_its_number(self) -> None:
        wanted = {
            "config": 2,
            "not_found": 3,
            "conflict": 4,
            "session_busy": 4,
            "stale_write": 4,
            "lease_lost": 4,
            "duplicate": 4,
            "illegal_move": 4,
            "store": 5,
            "store_unavailable": 5,
            "store_full": 5,
            "store_corrupt": 5,
            "not_a_store": 5,
            "schema_mismatch": 5,
            "access_denied": 6,
            "budget_exceeded": 6,
            "error": 1,
        }
        for kind in vars(errors).values():
            if isinstance(kind, type) and issubclass(kind, errors.Error) and kind.code in wanted:
                assert cli_errors.exit_code(kind()) == wanted[kind.code], kind

    def test_wrong_usage_names_the_help(self, typed: Typed) -> None:
        told = typed("sessions", "list", "--colour", expect=2).stderr
        assert told.splitlines()[-1] == "hint: Try: tertulia sessions list --help"
        error = typed.error("nonsense", expect=2)
        assert error["code"] == "usage"
        assert error["hint"] == "Try: tertulia --help"

    def test_json_after_two_dashes_is_no_option(self, typed: Typed) -> None:
        told = typed("sessions", "rename", "nobody", "--", "--json", expect=3).stderr
        assert told.startswith("error: ")

    def test_a_mistake_of_the_program_is_not_hidden(
        self, typed: Typed, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def broken(*args: object) -> None:
            raise ZeroDivisionError

        monkeypatch.setattr("tertulia.cli.locations.existing", broken)
        with pytest.raises(ZeroDivisionError):
            main(["sessions", "list"])

    def test_without_the_extra(self, tmp_path: Path) -> None:
        (tmp_path / "click.py").write_text("raise ModuleNotFoundError(name='click')")
        done = run("doctor", env={"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])})
        assert done.returncode == 1
        assert "pip install 'tertulia[cli]'" in done.stderr
        assert "Traceback" not in done.stderr

    def test_without_a_part_of_the_extra(
        self, typed: Typed, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "tertulia.cli.screen", None)
        told = typed("sessions", "list", expect=2).stderr
        assert "pip install 'tertulia[cli]'" in told

    def test_what_the_library_logs_is_one_line(
        self, typed: Typed, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def limping(store: tertulia.Store) -> None:
            problem = errors.StoreError("no")
            logging.getLogger("tertulia.search").error("the index limps", exc_info=problem)

        monkeypatch.setattr(tertulia.Store, "settle", limping)
        done = typed("sessions", "search", "soleado")
        assert done.stderr == "warning: the index limps\n"
        assert "Soleado" in done.stdout


class TestColours:
    def test_none_where_nobody_looks(self, typed: Typed) -> None:
        assert "\x1b" not in typed("sessions", "list").output
        assert "\x1b" not in typed("sessions", "nix", expect=2).output

    def test_on_demand(self, typed: Typed, demo: Demo, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("FORCE_COLOR", "1")
        assert "\x1b[32m" in typed("sessions", "list").stdout
        assert "\x1b[32m" not in typed("sessions", "list", "--no-color").stdout
        monkeypatch.setenv("NO_COLOR", "1")
        assert "\x1b[32m" not in typed("sessions", "list").stdout


class TestProcess:
    """Real processes: what the test runner of click cannot show."""

    def test_a_round(self, tmp_path: Path) -> None:
        env = {"TERTULIA_STORE": str(tmp_path / "talk.db")}
        assert run("store", "migrate", env=env).returncode == 0
        listed = run("sessions", "list", "--json", env=env)
        assert (listed.returncode, json.loads(listed.stdout)) == (0, [])
        missing = run("sessions", "show", "x", env=env)
        assert (missing.returncode, missing.stdout) == (3, "")
        assert missing.stderr.startswith("error: There is no session 'x'.")

    def test_bytes_that_are_no_text(self, demo: Demo) -> None:
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
    def test_a_terminal_without_unicode(self, demo: Demo, encoding: str) -> None:
        for words in (["sessions", "list"], ["sessions", "show", demo.strange], ["doctor"]):
            done = run("--store", demo.path, *words, env={"PYTHONIOENCODING": encoding},
                       errors="replace")  # fmt: skip
            assert done.returncode == 0
            assert "Traceback" not in done.stderr

    def test_a_zone_that_is_not_known(self, demo: Demo) -> None:
        env = {"TZ": "Mars/Olympus"}
        done = run("--store", demo.path, "sessions", "list", env=env)
        assert done.returncode == 2
        assert done.stderr.startswith("error: The machine's time zone 'Mars/Olympus'")
        looked = run("--store", demo.path, "doctor", env=env)
        assert looked.returncode == 1
        assert "✗  time zone" in looked.stdout

    def test_json_keeps_what_the_terminal_cannot_show(self, demo: Demo) -> None:
        env = {"PYTHONIOENCODING": "ascii"}
        done = run("--store", demo.path, "sessions", "show", demo.old, "--json", env=env)
        assert json.loads(done.stdout)["origin"]["user_name"] == "Ana López"

    @pytest.mark.skipif(os.name != "posix", reason="pipes end otherwise there")
    @pytest.mark.parametrize("command", [["sessions", "list"], ["sessions", "list", "--json"]])
    def test_a_reader_that_stops(self, demo: Demo, command: list[str]) -> None:
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
    def test_a_full_disk(self, demo: Demo) -> None:
        with open("/dev/full", "w") as full:
            done = subprocess.run(
                [sys.executable, "-m", "tertulia", "--store", demo.path, "sessions", "list"],
                stdout=full,
                stderr=subprocess.PIPE,
                text=True,
                check=False,
            )
        assert done.returncode == 5
        assert len(done.stderr.splitlines()) == 1

    @pytest.mark.skipif(os.name != "posix", reason="signals are sent otherwise there")
    def test_an_interrupt(self, demo: Demo) -> None:
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
        _, told = asking.communicate(timeout=60)
        assert asking.returncode == 130
        assert b"Traceback" not in told


class TestCompletion:
    @pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
    def test_the_script_of_a_shell(self, shell: str) -> None:
        script = Typed(None)("completion", shell).stdout
        assert f"_TERTULIA_COMPLETE={shell}_complete" in script

    def test_an_unknown_shell(self) -> None:
        assert Typed(None)("completion", "csh", expect=2).stderr.startswith("error: ")

    def test_ids_with_their_names(self, demo: Demo) -> None:
        found = run(
            env={
                "_TERTULIA_COMPLETE": "zsh_complete",
                "COMP_WORDS": f"tertulia sessions show --store {demo.path} {demo.old[:8]}",
                "COMP_CWORD": "5",
            }
        )
        assert found.stdout.splitlines() == ["plain", demo.old, "Viaje a Lisboa"]

    def test_nothing_is_said_where_there_is_no_store(self) -> None:
        done = run(
            env={
                "_TERTULIA_COMPLETE": "bash_complete",
                "COMP_WORDS": "tertulia sessions show 2",
                "COMP_CWORD": "3",
            }
        )
        assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "", "")

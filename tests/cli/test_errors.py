"""Error messages, hints and exit codes."""

from __future__ import annotations

import errno
import logging

import pytest

import tertulia
from tertulia import errors
from tertulia.cli import errors as cli_errors
from tests.cli.conftest import CommandLine, Demo


class TestErrors:
    def test_every_library_error_has_its_exit_code(self) -> None:
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

    def test_usage_error_names_the_help(self, cli: CommandLine) -> None:
        text = cli("sessions", "list", "--colour", expect=2).stderr
        assert text.splitlines()[-1] == "hint: Try: tertulia sessions list --help"
        error = cli.error("nonsense", expect=2)
        assert error["code"] == "usage"
        assert error["hint"] == "Try: tertulia --help"

    def test_refusal_of_the_system_names_the_next_step(self) -> None:
        problem = OSError(errno.ENOSPC, "No space left on device", "/data/x")
        failure = cli_errors.failure_from(problem)
        assert (failure.exit_code, failure.code) == (5, "system")
        assert "/data/x" in failure.message
        assert failure.hint == "Free some space and try again."

    def test_json_after_two_dashes_is_an_argument(self, cli: CommandLine) -> None:
        text = cli("sessions", "rename", "nobody", "--", "--json", expect=3).stderr
        assert text.startswith("error: ")

    def test_library_warning_is_one_line(
        self, cli: CommandLine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def limping(store: tertulia.Store) -> None:
            problem = errors.StoreError("no")
            logging.getLogger("tertulia.search").error("the index limps", exc_info=problem)

        monkeypatch.setattr(tertulia.Store, "settle", limping)
        done = cli("sessions", "search", "soleado")
        assert done.stderr == "warning: the index limps\n"
        assert "Soleado" in done.stdout


def test_hint_of_the_library_names_the_program_as_it_was_started(
    cli: CommandLine, demo: Demo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["no-such-folder/tertulia"])
    hint = cli.error("sessions", "show", "nothing", expect=3)["hint"]
    assert hint == "List them with: no-such-folder/tertulia sessions list"
    assert "Try: no-such-folder/tertulia sessions --help" in cli("sessions", "x", expect=2).stderr

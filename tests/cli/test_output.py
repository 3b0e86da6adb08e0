"""Printing: safe text, progress, and rich that is loaded only where it is needed."""

from __future__ import annotations

import json
import sys
import threading
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.status import Status

import tertulia
from tertulia.cli import output
from tertulia.cli.options import CommandOptions
from tertulia.install_command import install_command
from tests.cli.conftest import CommandLine

ANYTHING = st.text(st.characters())


class TestHarmless:
    @given(ANYTHING)
    def test_harmless_text_has_no_control_characters(self, text: str) -> None:
        shown = output.display_text(text)
        assert all(unicodedata.category(char) != "Cc" or char == "\n" for char in shown)
        assert all(unicodedata.category(char) != "Cs" for char in shown)
        assert all(
            unicodedata.bidirectional(char) not in ("LRE", "RLE", "PDF", "LRO", "RLO", "LRI",
                                                    "RLI", "FSI", "PDI") for char in shown
        )  # fmt: skip
        shown.encode()

    @given(ANYTHING, st.integers(1, 40))
    def test_one_line_respects_its_limit(self, text: str, limit: int) -> None:
        line = output.display_line(text, limit)
        assert len(line.splitlines()) <= 1
        assert len(line) <= limit

    @given(ANYTHING)
    def test_harmless_is_idempotent(self, text: str) -> None:
        assert output.display_text(output.display_text(text)) == output.display_text(text)

    @pytest.mark.parametrize("text", ["[red]x[/red]", "¿Qué?\n- 漢字", "👩‍👩‍👧", "שלום", "a  b"])
    def test_ordinary_text_is_unchanged(self, text: str) -> None:
        assert output.display_text(text) == text

    def test_control_characters_become_visible(self) -> None:
        assert output.display_text("\x1b[31mred\x07\x7f\x9b\ud800\r\nend\tx") == (
            "␛[31mred␇␡\ufffd\ufffd\nend    x"
        )


class TestJson:
    @given(st.recursive(ANYTHING, lambda inner: st.lists(inner) | st.dictionaries(ANYTHING, inner)))
    def test_json_round_trips_and_is_safe_to_print(self, value: object) -> None:
        text = output.display_json(value)
        assert json.loads(text) == value
        assert all(unicodedata.category(char) not in ("Cc", "Cs") or char == "\n" for char in text)
        assert "\u202e" not in text

    def test_json_keeps_letters_readable(self) -> None:
        assert output.display_json({"name": "Ana López"}, indent=None) == '{"name": "Ana López"}'


class TestProgress:
    def watch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Behave as if stderr was a terminal."""
        monkeypatch.setattr(output, "_is_stderr_terminal", lambda: True)
        monkeypatch.setenv("FORCE_COLOR", "1")

    def test_spinner_is_shown_during_slow_work(
        self, cli: CommandLine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        is_shown, start = threading.Event(), Status.start

        def shown(status: Status) -> None:
            start(status)
            is_shown.set()

        def slow(store: tertulia.Store) -> list[str]:
            if output._is_stderr_terminal():
                assert is_shown.wait(60)
            return []

        monkeypatch.setattr(Status, "start", shown)
        monkeypatch.setattr(tertulia.Store, "check", slow)
        monkeypatch.setattr(output, "_SPINNER_DELAY_SECONDS", 0.01)
        assert cli("store", "check").stderr == ""
        self.watch(monkeypatch)
        done = cli("store", "check")
        assert "Checking …" in done.stderr
        assert "Checking" not in done.stdout

    def test_backup_shows_a_progress_bar(
        self, cli: CommandLine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert cli("store", "backup", "one.db").stderr == ""
        self.watch(monkeypatch)
        done = cli("store", "backup", "two.db")
        assert "Copying" in done.stderr
        assert "100%" in done.stderr
        assert "Copying" not in done.stdout


def test_missing_rich_is_reported_with_the_extra(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "rich"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "rich", None)
    assert len(cli.json("sessions", "list")) == 3
    text = cli("sessions", "list", expect=2).stderr
    assert "The package rich" in text
    assert install_command("cli") in text


def test_items_are_printed_as_json_table_or_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    options = CommandOptions()

    def printed(items: list[int]) -> str:
        output.print_items(
            options, items, lambda item: {"id": item}, lambda items: f"{len(items)} rows", "none"
        )
        return capsys.readouterr().out.strip()

    assert [printed([]), printed([1, 2])] == ["none", "2 rows"]
    options.json = True
    assert json.loads(printed([])) == []
    assert json.loads(printed([1])) == [{"id": 1}]


def test_a_result_is_printed_as_json_or_as_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    options = CommandOptions()
    output.print_result(options, {"a": 1}, "A is 1.")
    assert capsys.readouterr().out == "A is 1.\n"
    options.json = True
    output.print_result(options, {"a": 1}, "A is 1.")
    assert json.loads(capsys.readouterr().out) == {"a": 1}

"""`tertulia ask`: one question, one answer, and an exit code that says whether there was one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import CommandLine


@pytest.fixture
def ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("TERTULIA_AGENT_KIND", "parrot")
    return CommandLine(str(tmp_path / "talk.db"))


def test_answer_is_on_standard_output(ask: CommandLine) -> None:
    assert "You said: hello there" in ask("ask", "hello", "there").stdout


def test_each_question_is_a_new_conversation(ask: CommandLine) -> None:
    first = ask.json("ask", "one")
    assert ask.json("ask", "two")["session_id"] != first["session_id"]


def test_continue_and_session(ask: CommandLine) -> None:
    first = ask.json("ask", "one")
    again = ask.json("ask", "-c", "two")
    assert again["session_id"] == first["session_id"]
    assert "I was shown 5 messages" in ask.json("ask", "-s", "last", "three")["text"]
    ask("ask", "four")
    assert "has ended" in ask("ask", "-s", first["session_id"], "five", expect=4).stderr


def test_piped_text_and_files_are_attached(ask: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "plan.txt").write_text("water the beans\n")
    text = ask("ask", "-f", str(tmp_path / "plan.txt"), "why?", stdin="a diff\n").stdout
    assert all(part in text for part in ("why?", "water the beans", "[standard input]", "a diff"))


def test_piped_text_alone_is_the_question(ask: CommandLine) -> None:
    assert "You said: from a pipe" in ask("ask", stdin="from a pipe\n").stdout


def test_mistakes_are_named(ask: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "picture").write_bytes(b"\xff\xd8\xff")
    assert "Give a question" in ask("ask", stdin="", expect=2).stderr
    assert "not both" in ask("ask", "-c", "-s", "last", "x", expect=2).stderr
    assert "not a text file" in ask("ask", "-f", str(tmp_path / "picture"), "x", expect=2).stderr
    (tmp_path / "large").write_text("x" * 1_000_001)
    assert "larger than" in ask("ask", "-f", str(tmp_path / "large"), "x", expect=2).stderr


def test_no_answer_has_its_own_exit_code(ask: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERTULIA_AGENT_KIND", "command")
    monkeypatch.setenv("TERTULIA_AGENT_COMMAND", '["no-such-program"]')
    failed = ask("ask", "hello", expect=7)
    assert failed.stdout == ""
    assert "no-such-program" in failed.stderr

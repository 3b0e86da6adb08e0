"""Two terminals on one store: each shows its own answers, and marks what the other one did."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.platforms.pseudo_terminal import PROMPT, Terminal, configure_slow_agent, tertulia

pytestmark = pytest.mark.check

ANSWER = "Say “help” for what else I can show."
MARK = "┆ from another terminal"


def test_answers_appear_in_the_terminal_that_asked(tmp_path: Path) -> None:
    with tertulia(tmp_path, "chat") as first, tertulia(tmp_path, "chat") as second:
        first.sees(PROMPT.strip())
        second.sees(PROMPT.strip())
        for number in range(4):
            assert MARK not in first.ask(f"first {number}", ANSWER)
            first.ask("/status", "in the queue")
            second.ask("/whoami", "You are the owner")
        second.until(lambda: second.text.count(ANSWER) == 4, "what the first terminal did")
        assert second.ask("second", ANSWER).count(ANSWER) == 1
        assert "in the queue" not in second.text
        assert "You are the owner" not in first.text

        assert second.text.count(MARK) == 4
        first.sees(f"{MARK}\n┆ › second\n")
        first.until(lambda: first.text.count("┆ I was shown") == 1, "the answer of the second")
        for number in range(4):
            assert f"{MARK}\n┆ › first {number}\n" in second.text
        _leave(first, second)
        assert first.text.count(ANSWER) == second.text.count(ANSWER) == 5


def test_message_of_a_killed_terminal_is_answered_in_the_other(tmp_path: Path) -> None:
    go = tmp_path / "go"
    configure_slow_agent(tmp_path, go)
    with tertulia(tmp_path, "chat") as first, tertulia(tmp_path, "chat") as second:
        first.sees(PROMPT.strip())
        second.sees(PROMPT.strip())
        first.ask("plums", "Thinking of")
        second.sees("answered by another terminal")
        second.sees(f"{MARK}\n┆ › plums\n")
        first.signal(signal.SIGKILL)
        first.process.wait()
        go.touch()
        second.sees("Thinking of plums")
        second.ask("pears", "Thinking of pears")
        _leave(second)
        assert second.text.count("Thinking of plums") == 1


def _leave(*terminals: Terminal) -> None:
    for terminal in terminals:
        terminal.press("\x04")
        assert terminal.ends() == 0
        assert "Traceback" not in terminal.text

"""A conversation in a real terminal, with real keys: what a person sees, and comes back to."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tertulia import open as open_store
from tertulia.cli.errors import NO_ANSWER, PIPE_CLOSED, STORE
from tests.platforms.pseudo_terminal import (
    PATIENCE,
    PROMPT,
    Terminal,
    configure_slow_agent,
    tertulia,
)

pytestmark = pytest.mark.check

AGENT = Path(__file__).parents[1] / "slow_agent.py"


def test_forget_removes_the_words_from_the_input_history(tmp_path: Path) -> None:
    with tertulia(tmp_path, "chat") as talk:
        talk.sees(PROMPT.strip())
        talk.ask("my secret is zebra-77123", "Say “help”")
        history = tmp_path / "home/.local/state/tertulia/history"
        assert "zebra-77123" in history.read_text()
        talk.ask("/forget yes", "The conversation is deleted.")
        talk.press("\x04")
        assert talk.ends() == 0
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files
    assert [path for path in files if b"zebra-77123" in path.read_bytes()] == []


def test_message_is_written_in_an_editor(tmp_path: Path) -> None:
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\nprintf "%s and pears\\n" "$(cat "$1")" > "$1"\n')
    editor.chmod(0o700)
    with tertulia(tmp_path, "chat", EDITOR=str(editor)) as talk:
        talk.sees(PROMPT.strip())
        talk.press("plums\x18\x05")  # ctrl-X ctrl-E
        talk.sees(f"{PROMPT}plums and pears")
        talk.press("\r")
        talk.sees("You said: plums and pears")


def test_leaving_the_plain_mode_begins_a_line(tmp_path: Path) -> None:
    with tertulia(tmp_path, "chat", "--plain") as talk:
        talk.sees("You:")
        talk.press("\x04")
        assert talk.ends() == 0
        assert "\nStored in " in talk.text


def test_conversation_is_there_after_a_restart(tmp_path: Path) -> None:
    with tertulia(tmp_path, "chat") as talk:
        talk.sees("Tertulia · the parrot · ~/.local/share/tertulia/talk.db")
        talk.sees("This is a new conversation.")
        talk.sees(PROMPT.strip())
        assert "I was shown 1 message," in talk.ask("hello garden", "Say “help”")
        talk.ask("/title Garden", 'now called "Garden"')
        assert "I was shown 3 messages" in talk.ask("tomatoes", "Say “help”")

        talk.ask("/undo", 'I took back 1 exchange: "tomatoes".')
        assert "tomatoes" not in talk.ask("beans", "Say “help”")
        talk.ask("/undo", "I took back 1 exchange")
        talk.ask("/redo", "Restored: ")
        assert "You, " in talk.ask("/history", ": beans")
        assert "I was shown 3 messages" in talk.ask("/retry", "Say “help”")

        talk.ask("/fork", "This is now a copy of the conversation")
        assert "I was shown 5 messages" in talk.ask("only in the copy", "Say “help”")
        talk.ask("/resume 1", 'Continuing with "Garden"')
        told = talk.ask("in the first one", "Say “help”")
        assert "I was shown 5 messages" in told
        assert "only in the copy" not in told

        talk.ask("/new", "I have started a new conversation.")
        assert "I was shown 1 message," in talk.ask("something else", "Say “help”")
        shown = talk.ask("/resume Garden", "/last shows it whole.")
        assert 'Continuing with "Garden"' in shown
        assert "│ You: " in shown
        assert "│ Agent: You said: " in shown
        talk.ask("/search hello", "garden")
        talk.ask("/usage", "nothing to pay")
        talk.ask("/whoami", "You are the owner, at the terminal.")
        assert 'Conversation: "Garden"' in talk.ask("/status", "in the queue")
        page = talk.ask("/export", "in the first one")
        assert "\nGarden\n" in page
        assert "hello garden" in page
        assert "only in the copy" not in page
        talk.ask("/nonsense", "There is no command /nonsense")
        talk.press("\x04")
        assert talk.ends() == 0
        assert "Stored in ~/.local/share/tertulia/talk.db. Continue with: " in talk.text
        assert "Traceback" not in talk.text

    with tertulia(tmp_path, "chat") as again:
        again.sees('Continuing "Garden" (6 messages, just now)')
        again.sees("  › in the first one")
        assert "I was shown 7 messages" in again.ask("still there?", "Say “help”")
        again.press("/quit\r")
        assert again.ends() == 0


def test_each_answer_is_shown_once(tmp_path: Path) -> None:
    with tertulia(tmp_path, "chat") as talk:
        talk.sees(PROMPT.strip())
        talk.ask("/new", "This is already a new conversation.")
        talk.ask("only once", "Say “help”")
        talk.ask("/whoami", "")
        talk.press("\x04")
        assert talk.ends() == 0
        assert talk.text.count("You said: only once") == 1
        assert talk.text.count("Say “help” for what else") == 1
    with tertulia(tmp_path, "chat") as again:
        again.sees('Continuing "only once" (2 messages, just now)')


def test_search_finds_earlier_input_and_can_be_left(tmp_path: Path) -> None:
    with tertulia(tmp_path, "chat") as talk:
        talk.sees(PROMPT.strip())
        talk.ask("hello garden", "Say “help”")
        talk.press("\x12gard")
        talk.sees("search earlier input: gard")
        talk.sees("› hello garden\nsearch")  # what Enter would take
        talk.press("\x03")
        talk.until(lambda: "search earlier" not in talk.text, "end of the search by ctrl-C")
        assert "You said: beans" in talk.ask("beans", "Say “help”")
        talk.press("\x12gard")
        talk.sees("search earlier input: gard")
        talk.press("\r")
        talk.until(lambda: "search earlier" not in talk.text, "end of the search by Enter")
        talk.press("\x05 gate\r")
        talk.sees("You said: hello garden gate")
        talk.press("\x04")
        assert talk.ends() == 0


class TestAnswerInProgress:
    """An answer that takes its time, from a program that waits for a file."""

    @pytest.fixture
    def go(self, tmp_path: Path) -> Path:
        configure_slow_agent(tmp_path, tmp_path / "go")
        return tmp_path / "go"

    def test_answer_is_shown_while_it_is_written(self, tmp_path: Path, go: Path) -> None:
        with tertulia(tmp_path, "chat") as talk:
            talk.sees(f"Tertulia · the program {Path(sys.executable).name} ·")
            _begin(talk, "plums")
            go.touch()
            talk.sees("Thinking of plums")
            talk.press("\x04")
            assert talk.ends() == 0
            assert talk.text.count("Thinking of") == 1

    @pytest.mark.parametrize("columns", [20, 60, 200])
    def test_resize_during_an_answer_leaves_no_copies(
        self, tmp_path: Path, go: Path, columns: int
    ) -> None:
        words = " ".join(f"word{number}" for number in range(40))
        with tertulia(tmp_path, "chat") as talk:
            _begin(talk, words)
            talk.resize(columns)
            go.touch()
            talk.until(
                lambda: (
                    "word39" in talk.text.rpartition("Thinking of")[2]
                    # A narrow terminal cuts the line of the status.
                    and not re.search(r"· \d+ s\b", talk.text)
                ),
                "end of the answer",
            )
            talk.press("\x04")
            assert talk.ends() == 0
            answer = talk.text.rpartition("Thinking of")[2].partition("Stored in")[0]
            assert " ".join(answer.split()) == words
            assert talk.text.count("Thinking of") == 1
            assert talk.text.count("ctrl-C stops") == 0

    def test_ctrl_c_stops_the_answer_and_the_conversation_continues(
        self, tmp_path: Path, go: Path
    ) -> None:
        with tertulia(tmp_path, "chat") as talk:
            _begin(talk, "plums")
            talk.press("\x03")
            talk.sees("Stopped.")
            go.touch()
            talk.ask("pears", "Thinking of pears")
            talk.press("\x04")
            assert talk.ends() == 0
            assert "Thinking of plums" not in talk.text

    @pytest.mark.parametrize("is_impatient", [False, True])
    def test_leaving_waits_for_the_answer_and_says_so(
        self, tmp_path: Path, go: Path, is_impatient: bool
    ) -> None:
        with tertulia(tmp_path, "chat") as talk:
            _begin(talk, "plums")
            talk.press("\x04")
            talk.sees("The answer is finished first. ctrl-C leaves at once")
            if is_impatient:
                talk.signal(signal.SIGINT)
                assert talk.ends() == -signal.SIGINT
            go.touch()
            if not is_impatient:
                assert talk.ends() == 0
                assert "Thinking of plums" in talk.text
            assert "Traceback" not in talk.text
        with tertulia(tmp_path, "chat") as again:
            if is_impatient:
                again.sees("Thinking of plums")
            again.ask("/status", "Messages: 2")
            again.press("\x04")
            assert again.ends() == 0

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
    def test_second_signal_ends_the_program_at_once(
        self, tmp_path: Path, go: Path, number: signal.Signals
    ) -> None:
        with tertulia(tmp_path, "run") as talk:
            _begin(talk, "plums")
            talk.signal(number)
            talk.until(lambda: PROMPT.strip() not in talk.text.splitlines()[-1], "end of reading")
            talk.signal(number)
            assert talk.ends() == -number
            assert "Traceback" not in talk.text
        go.touch()  # the agent's program is on its own now, and ends

    def test_message_is_answered_after_a_kill(self, tmp_path: Path, go: Path) -> None:
        with tertulia(tmp_path, "chat") as talk:
            _begin(talk, "plums")
            talk.signal(signal.SIGKILL)
            talk.process.wait()
        go.touch()
        with tertulia(tmp_path, "chat") as again:
            again.sees("Your last message was not answered. The answer comes now.")
            again.sees("Thinking of plums")
            again.press("\x04")
            assert again.ends() == 0
            assert again.text.count("Thinking of plums") == 1

    def test_closed_window_lets_the_answer_finish(self, tmp_path: Path, go: Path) -> None:
        with tertulia(tmp_path, "chat") as talk:
            _begin(talk, "plums")
            talk.signal(signal.SIGHUP)
            go.touch()
            assert talk.ends() == 0
        with tertulia(tmp_path, "chat") as again:
            again.sees("Continuing")
            assert "Waiting for the answer" not in again.text
            again.sees("  Thinking of plums")

    @pytest.mark.parametrize("arguments", [["chat"], ["chat", "--plain"], ["run"]])
    def test_terminal_that_is_gone_ends_the_program_quietly(
        self, tmp_path: Path, go: Path, arguments: list[str]
    ) -> None:
        with tertulia(tmp_path, *arguments) as talk:
            if "--plain" in arguments:
                talk.sees("You:")
                talk.press("plums\r")
                talk.sees("Waiting for the answer.")
            else:
                _begin(talk, "plums")
            talk.hang_up()
            go.touch()
            assert talk.process.wait(PATIENCE) == 0
        log = (tmp_path / "home/.config/tertulia/log.jsonl").read_text("utf-8")
        events = [json.loads(line) for line in log.splitlines()]
        assert [event["event"] for event in events if event["level"] != "info"] == []
        assert [event["outcome"] for event in events if event["event"] == "turn"] == ["answered"]
        with tertulia(tmp_path, "chat") as again:
            again.sees("  Thinking of plums")

    def test_sigterm_lets_the_answer_finish(self, tmp_path: Path, go: Path) -> None:
        with tertulia(tmp_path, "run") as talk:
            _begin(talk, "plums")
            talk.signal(signal.SIGTERM)
            go.touch()
            assert talk.ends() == 0
            assert "Thinking of plums" in talk.text

    def test_pipe_gets_its_answer_from_any_process(self, tmp_path: Path, go: Path) -> None:
        environ = {"HOME": str(tmp_path / "home"), "TZ": "UTC", "PATH": os.environ["PATH"],
                   "PYTHONPATH": str(AGENT.parents[2] / "src")}  # fmt: skip
        with tertulia(tmp_path, "chat") as talk:
            _begin(talk, "plums")
            with subprocess.Popen(
                [sys.executable, "-m", "tertulia", "chat"], text=True, env=environ,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            ) as piped:  # fmt: skip
                assert piped.stdin is not None
                piped.stdin.write("pears\n")
                piped.stdin.flush()
                # Asked of the store: either program may print the answer to a `/queue`.
                talk.until(lambda: "pears" in _waiting_texts(tmp_path), "message in the queue")
                go.touch()
                assert piped.communicate(timeout=PATIENCE)[0].count("Thinking of pears") == 1

    def test_each_turn_is_one_log_line(self, tmp_path: Path, go: Path) -> None:
        go.touch()
        with tertulia(tmp_path, "chat") as talk:
            talk.sees(PROMPT.strip())
            talk.ask("plums", "Thinking of plums")
            talk.ask("pears", "Thinking of pears")
            talk.press("\x04")
            assert talk.ends() == 0
        text = (tmp_path / "home/.config/tertulia/log.jsonl").read_text("utf-8")
        lines = [json.loads(line) for line in text.splitlines()]
        turns = [line for line in lines if line["event"] == "turn"]
        assert [turn["outcome"] for turn in turns] == ["answered", "answered"]
        assert all(turn["agent"] == "command" and turn["session"] for turn in turns)
        assert "plums" not in text


def test_wizard_writes_a_configuration(tmp_path: Path) -> None:
    path = tmp_path / "home/.config/tertulia/config.toml"
    with tertulia(tmp_path, "run") as talk:
        talk.sees("Who answers?")
        talk.press("openai\r")
        talk.sees("Model")
        talk.press("my-model\r")
        talk.sees("Address of the server")
        talk.press("http://127.0.0.1:9/v1\r")
        talk.sees("environment variable with the key")
        talk.press("sk-secret\r")
        talk.sees("That is no name of an environment variable.")
        talk.press("MY_KEY\r")
        talk.sees("names the variable MY_KEY, which is not set")
        assert talk.ends() == 2
    assert path.stat().st_mode & 0o777 == 0o600
    with tertulia(tmp_path, "run", MY_KEY="sk-secret") as talk:
        talk.sees("Tertulia · my-model (openai) ·")
        talk.sees(PROMPT.strip())
        talk.press("\x04")
        assert talk.ends() == 0
    assert "sk-secret" not in path.read_text("utf-8")


def test_wizard_checks_answers_before_it_writes(
    tmp_path: Path,
) -> None:
    path = tmp_path / "home/.config/tertulia/config.toml"
    with tertulia(tmp_path, "run") as talk:
        talk.sees("Who answers?")
        talk.press("http\r")
        talk.sees("Address of your web service:")
        talk.press("localhost\r")
        talk.sees("Give http(s):// with a host")
        assert not path.exists()
        talk.press("http://127.0.0.1:9/agent\r")
        talk.sees("Tertulia · an agent over HTTP ·")
        talk.sees(PROMPT.strip())
        talk.press("\x04")
        assert talk.ends() == 0
    path.unlink()
    with tertulia(tmp_path, "run") as talk:
        talk.sees("Who answers?")
        talk.press("command\r")
        talk.sees("Program, with its arguments")
        talk.press("'my agent\r")
        talk.sees("A quote is not closed.")
        talk.press("'my agent' --of 'two words'\r")
        talk.sees("Tertulia · the program my agent ·")
        talk.sees(PROMPT.strip())
        talk.press("\x04")
        assert talk.ends() == 0
    assert 'command = ["my agent", "--of", "two words"]' in path.read_text("utf-8")


def test_terminal_shows_the_http_address(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text("[http]\nenabled = true\nport = 0\n")
    with tertulia(tmp_path, "run", "--config", "mine.toml") as talk:
        talk.sees("HTTP is served on http://127.0.0.1:")
        talk.sees(PROMPT.strip())
        talk.press("\x04")
        assert talk.ends() == 0


def test_run_without_terminal_needs_a_platform(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path), "TZ": "UTC", "PYTHONPATH": str(AGENT.parents[2] / "src")}
    done = subprocess.run(
        [sys.executable, "-m", "tertulia", "run"],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, env=environ, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "There is nothing to serve" in done.stderr


def test_piped_input_is_answered_in_order(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path), "TZ": "UTC", "PYTHONPATH": str(AGENT.parents[2] / "src")}
    said = "one\n/title Piped\n/status\ntwo\n"
    done = subprocess.run(
        [sys.executable, "-m", "tertulia", "chat"],
        input=said, capture_output=True, text=True, env=environ, check=True,
    )  # fmt: skip
    marks = ["You said: one", 'called "Piped"', "Messages: 2", "You said: two"]
    places = [done.stdout.find(mark) for mark in marks]
    assert -1 not in places
    assert places == sorted(places)
    assert done.stderr == ""


def test_pipe_without_an_answer_fails(tmp_path: Path) -> None:
    environ = {
        "HOME": str(tmp_path), "TZ": "UTC", "PYTHONPATH": str(AGENT.parents[2] / "src"),
        "TERTULIA_AGENT_KIND": "command", "TERTULIA_AGENT_COMMAND": '["no-such-program"]',
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-m", "tertulia", "chat"],
        input="one\n/whoami\n", capture_output=True, text=True, env=environ, check=False,
    )  # fmt: skip
    assert done.returncode == NO_ANSWER
    assert done.stdout.startswith("You are the owner, at the terminal.")
    assert "no-such-program" in done.stderr
    assert "/retry asks again" in done.stderr
    assert "[warning" not in done.stderr  # the log is a file


def test_input_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path), "TZ": "UTC", "PYTHONPATH": str(AGENT.parents[2] / "src")}
    with (tmp_path / "written").open("w") as file:
        done = subprocess.run(
            [sys.executable, "-m", "tertulia", "chat"],
            stdin=file, capture_output=True, text=True, env=environ, check=False,
            timeout=PATIENCE,
        )  # fmt: skip
    assert done.returncode == STORE
    assert done.stderr == "error: The system refused: [Errno 9] Bad file descriptor.\n"


def test_closed_output_pipe_ends_the_program(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path), "TZ": "UTC", "PYTHONPATH": str(AGENT.parents[2] / "src")}
    with subprocess.Popen(
        [sys.executable, "-m", "tertulia", "chat"], text=True, env=environ,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as talk:  # fmt: skip
        assert talk.stdin is not None
        assert talk.stdout is not None
        assert talk.stderr is not None
        talk.stdin.write("one\n")
        talk.stdin.flush()
        assert talk.stdout.readline() == "You said: one\n"
        talk.stdout.close()
        talk.stdin.write("two\nthree\n")
        talk.stdin.close()
        assert talk.stderr.read() == ""
        assert talk.wait(60) == PIPE_CLOSED


def _waiting_texts(tmp_path: Path) -> list[str | None]:
    with open_store(tmp_path / "home/.local/share/tertulia/talk.db") as store:
        return [item.text for item in store.inbox.find(state="waiting").items]


def _begin(talk: Terminal, text: str) -> None:
    talk.sees(PROMPT.strip())
    talk.press(f"{text}\r")
    talk.sees("Thinking of")


def test_forgotten_words_are_not_in_the_input_history(tmp_path: Path) -> None:
    history = tmp_path / "home/.local/state/tertulia/history"
    with tertulia(tmp_path, "chat") as talk:
        talk.sees(PROMPT.strip())
        talk.ask("my secret is zebra", "Say “help”")
        assert "zebra" in history.read_text("utf-8")
        talk.ask("/forget yes", "The conversation is deleted.")
        assert "zebra" not in history.read_text("utf-8")
        talk.press("\x1b[A\x1b[A")
        talk.press("\x15/whoami\r")
        talk.sees("You are the owner")
        talk.press("\x04")
        assert talk.ends() == 0


def test_log_of_a_chat_is_a_file(tmp_path: Path) -> None:
    with tertulia(tmp_path, "chat", TERTULIA_LOG_LEVEL="info") as talk:
        talk.sees(PROMPT.strip())
        talk.ask("hello", "Say “help”")
        talk.press("\x04")
        assert talk.ends() == 0
        assert "[info" not in talk.text
    log = tmp_path / "home/.local/state/tertulia/chat.log"
    assert "session=" in log.read_text("utf-8")
    assert log.stat().st_mode & 0o777 == 0o600


def test_attached_file_reaches_the_transcript(tmp_path: Path) -> None:
    (tmp_path / "plan.txt").write_text("Plums on Monday")
    with tertulia(tmp_path, "chat") as talk:
        talk.sees(PROMPT.strip())
        talk.ask("/attach none.txt", "✗ There is no file")
        talk.ask("/attach plan.txt", "[1] plan.txt 15 B")
        talk.ask("what does it say?", "Say “help”")
        assert "[1] plan.txt" not in talk.text.splitlines()[-2]
        talk.press("\x04")
        assert talk.ends() == 0
    with open_store(tmp_path / "home/.local/share/tertulia/talk.db") as store:
        (session,) = store.sessions.find().items
        (message,) = store.transcript(session.id).load()[:1]
        assert "plan.txt" in json.dumps(message)


def test_plain_chat_moves_no_cursor(tmp_path: Path) -> None:
    with tertulia(tmp_path, "chat", "--plain", NO_COLOR="1") as talk:
        talk.sees("You:")
        talk.press("hello\r")
        talk.sees("Agent: You said: hello")
        talk.press("/quit\r")
        assert talk.ends() == 0
        assert "\x1b" not in talk.written

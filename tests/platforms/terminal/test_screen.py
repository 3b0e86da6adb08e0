"""The screen as a person sees it: ctrl-L, the menu of commands, faults of other platforms."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from tertulia.platforms import webhook
from tests.platforms.pseudo_terminal import PATIENCE, PROMPT, tertulia

pytestmark = pytest.mark.check

WORDS = ("plums", "pears", "beans")
SOURCES = Path(__file__).parents[3] / "src"


def test_ctrl_l_clears_the_screen(tmp_path: Path) -> None:
    with tertulia(tmp_path, "chat") as talk:
        talk.sees(PROMPT.strip())
        talk.ask("plums", "Say “help”")
        talk.press("half a line\x0c")
        rest = ["›", "half", "a", "line"]
        talk.until(lambda: talk.text.split() == rest, "a screen with the line alone")
        talk.press("\x15\x04")
        assert talk.ends() == 0


def test_menu_shows_eight_commands(tmp_path: Path) -> None:
    with tertulia(tmp_path, "chat") as talk:
        talk.sees(PROMPT.strip())
        talk.press("/")
        talk.until(lambda: len(re.findall(r"(?m)^ +/\w+ +\w", talk.text)) == 8, "eight commands")
        talk.press("\x15\x04")
        assert talk.ends() == 0


@pytest.fixture
def refusing_port() -> Iterator[int]:
    """A port that refuses connections: it is taken, and nobody listens there."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


def test_fault_of_another_platform_stays_out_of_the_talk(
    tmp_path: Path, refusing_port: int
) -> None:
    (tmp_path / "mine.toml").write_text(
        '[http]\nenabled = true\nport = 0\n[platforms.webhook]\nsecret = "s3cret"\n'
        f'url = "http://127.0.0.1:{refusing_port}/hook"\n'
        '[log]\nformat = "json"\n'
    )
    log = tmp_path / "home/.local/state/tertulia/chat.log"
    with tertulia(tmp_path, "run", "--config", "mine.toml") as talk:
        talk.sees("HTTP is served on http://127.0.0.1:")
        talk.sees(PROMPT.strip())
        address = re.search(r"http://127.0.0.1:\d+", talk.text)
        assert address is not None
        _post_to_webhook(address[0], "are you there?")
        talk.until(
            lambda: any(
                line["level"] == "warning" and "webhook" in line["event"]
                for line in map(json.loads, log.read_text("utf-8").splitlines())
            ),
            "warning in the log",
        )
        talk.ask("plums", "Say “help”")
        assert "warning" not in talk.text
        assert "webhook" not in talk.text.replace("Serving webhook", "")
        talk.press("\x04")
        assert talk.ends() == 0


def _post_to_webhook(address: str, text: str) -> None:
    fields = {"message_id": "1", "chat_id": "7", "user_id": "7", "text": text}
    body, now = json.dumps(fields).encode(), str(int(time.time()))
    signature = webhook.sign(b"s3cret", now, body)
    headers = {webhook.TIMESTAMP: now, webhook.SIGNATURE: signature}
    answer = httpx2.post(f"{address}/webhook", content=body, headers=headers, trust_env=False)
    assert answer.status_code == 202, answer.text


class Tmux:
    """A terminal in tmux, which keeps its own scrollback."""

    def __init__(self, folder: Path, command: str) -> None:
        self._socket = f"tertulia-{uuid.uuid4().hex}"
        self._run("-f", "/dev/null", "new-session", "-d", "-x", "90", "-y", "30",
                  "-c", str(folder), command)  # fmt: skip

    def _run(self, *words: str) -> str:
        command = ["tmux", "-L", self._socket, *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def press(self, *keys: str) -> None:
        self._run("send-keys", *keys)

    @property
    def text(self) -> str:
        """Return the scrollback and the screen."""
        return self._run("capture-pane", "-p", "-S", "-")

    def sees(self, text: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while text not in self.text:
            assert time.monotonic() < deadline, f"there was no {text!r}:\n{self.text}"
            time.sleep(0.05)

    def close(self) -> None:
        subprocess.run(["tmux", "-L", self._socket, "kill-server"], check=False)


@pytest.fixture
def tmux(tmp_path: Path) -> Iterator[Tmux]:
    if shutil.which("tmux") is None:
        pytest.skip("tmux is not installed")
    variables = f"HOME={shlex.quote(str(tmp_path))} PYTHONPATH={shlex.quote(str(SOURCES))}"
    command = f"env {variables} LANG=C.UTF-8 {sys.executable} -m tertulia chat"
    terminal = Tmux(tmp_path, command)
    yield terminal
    terminal.close()


def test_scrollback_of_tmux_has_each_line_once_after_ctrl_l(tmux: Tmux) -> None:
    tmux.sees(PROMPT.strip())
    for word in WORDS:
        tmux.press("C-l")
        tmux.press(word)
        tmux.sees(f"{PROMPT}{word}")
        tmux.press("Enter")
        tmux.sees(f"You said: {word}")
    rows = tmux.text.splitlines()
    for word in WORDS:
        assert rows.count(f"{PROMPT}{word}") == 1, tmux.text
        assert rows.count(f"You said: {word}") == 1, tmux.text

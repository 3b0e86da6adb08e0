"""What is longer than the screen goes to a pager; answers of the agent never do."""

from __future__ import annotations

import re
import signal
import sys
from pathlib import Path

import pytest

from tertulia.platforms.terminal import pager
from tests.platforms.pseudo_terminal import PROMPT, tertulia

SCRIPT = """\
import os, sys
text = sys.stdin.read()
print(f"PAGER: {len(text.splitlines())} lines", flush=True)
os.read(2, 1)  # a key, from the terminal
"""


@pytest.mark.parametrize(
    ("environ", "command"),
    [
        ({"TERTULIA_PAGER": "more -d", "PAGER": "most"}, ["more", "-d"]),
        ({"PAGER": "most"}, ["most"]),
        ({"TERTULIA_PAGER": "", "PAGER": "most"}, None),
        ({"PAGER": "cat"}, None),
        ({"PAGER": "'open"}, None),
    ],
)
def test_command_comes_from_the_variables(
    environ: dict[str, str], command: list[str] | None
) -> None:
    assert pager.pager_command(environ) == command


def test_less_is_the_default_if_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    assert pager.pager_command({}) is None
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    assert pager.pager_command({}) == ["less", "-FRX"]


@pytest.mark.check
def test_long_reply_is_paged_and_the_conversation_goes_on(tmp_path: Path) -> None:
    (tmp_path / "pager.py").write_text(SCRIPT)
    command = f"{sys.executable} {tmp_path / 'pager.py'}"
    with tertulia(tmp_path, "chat", rows=24, TERTULIA_PAGER=command) as talk:
        talk.sees(PROMPT.strip())
        talk.ask("/whoami", "You are the owner")
        talk.press("/help\r")
        talk.sees("PAGER: ")
        talk.signal(signal.SIGINT)  # ctrl-C belongs to the pager, and this one has no use for it
        talk.press("q\r")
        # What the pager leaves on the screen and what follows are apart.
        talk.until(lambda: re.search(r"PAGER: .*\n.*\n\n›", talk.text) is not None, "a gap")
        talk.ask("still there?", "Say “help”")
        assert talk.text.count("PAGER: ") == 1
        talk.press("\x04")
        assert talk.ends() == 0


@pytest.mark.check
def test_long_output_of_a_command_is_paged(tmp_path: Path) -> None:
    (tmp_path / "pager.py").write_text(SCRIPT)
    command = f"{sys.executable} {tmp_path / 'pager.py'}"
    with tertulia(tmp_path, "config", "show", rows=24, TERTULIA_PAGER=command) as shown:
        shown.sees("PAGER: ")
        shown.press("q\r")
        assert shown.ends() == 0
    with tertulia(tmp_path, "config", "path", rows=24, TERTULIA_PAGER=command) as shown:
        assert shown.ends() == 0
        assert "PAGER" not in shown.text

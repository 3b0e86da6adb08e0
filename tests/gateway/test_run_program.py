"""`tertulia run` as a program: a configuration, a client, a signal, a restart."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.check

CONFIG = """
[store]
where = "{where}"

[http]
enabled = true
port = 0
{more}
"""


@contextmanager
def running_gateway(folder: Path, more: str = "") -> Iterator[str]:
    """Run a gateway and yield its address; stop it in the end."""
    config = folder / "tertulia.toml"
    config.write_text(CONFIG.format(where=folder / "talk.db", more=more))
    child = subprocess.Popen(
        [sys.executable, "-m", "tertulia.cli", "run", "--config", str(config)],
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "XDG_DATA_HOME": str(folder / "data")},
    )
    try:
        yield _address(child)
        child.send_signal(signal.SIGTERM)
        assert child.wait(60) == 0
        assert child.stderr is not None
        assert "stopped; what was not answered yet" in child.stderr.read().splitlines()[-1]
    finally:
        child.kill()
        child.communicate()


def _address(child: subprocess.Popen[str]) -> str:
    assert child.stderr is not None
    for line in child.stderr:
        match = re.search(r"http://[\d.]+:\d+", line)
        if match:
            return match[0]
    raise AssertionError(f"it ended with {child.wait()}")


def ask(address: str, text: str, conversation: str = "c1", **headers: str) -> Any:
    body = {"messages": [{"role": "user", "content": text}]}
    request = urllib.request.Request(
        f"{address}/v1/chat/completions",
        json.dumps(body).encode(),
        {"content-type": "application/json", "X-Conversation-Id": conversation, **headers},
    )
    with urllib.request.urlopen(request, timeout=60) as response:
        return json.load(response)["choices"][0]["message"]["content"]


def test_conversation_survives_a_restart(tmp_path: Path) -> None:
    with running_gateway(tmp_path) as address:
        # Without tokens there is one for the owner, which who may read the user's files may read.
        secret = (tmp_path / "data/tertulia/owner-token").read_text().strip()
        bearer = f"Bearer {secret}"
        with pytest.raises(urllib.error.HTTPError) as refused:
            ask(address, "hello")
        assert refused.value.code == 401
        refused.value.close()
        assert "I was shown 1 message" in ask(address, "hello", Authorization=bearer)
        with urllib.request.urlopen(f"{address}/readyz", timeout=60) as response:
            assert json.load(response)["status"] == "ok"
    with running_gateway(tmp_path) as address:
        assert "I was shown 3 messages" in ask(address, "and on", Authorization=bearer)
        assert "I was shown 1 message" in ask(address, "elsewhere", "c2", Authorization=bearer)


def test_owner_token_can_be_turned_off(tmp_path: Path) -> None:
    with running_gateway(tmp_path, "owner_token = false\n") as address:
        assert "You said: hello" in ask(address, "hello")
    assert not (tmp_path / "data/tertulia/owner-token").exists()


def test_request_without_token_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANAS_TOKEN", "a-long-enough-secret")
    token = '[[http.tokens]]\nname = "ana"\ntoken_env = "ANAS_TOKEN"\n'
    with running_gateway(tmp_path, token) as address:
        with pytest.raises(urllib.error.HTTPError) as refused:
            ask(address, "hello")
        assert refused.value.code == 401
        refused.value.close()
        bearer = "Bearer a-long-enough-secret"
        assert "You said: hello" in ask(address, "hello", Authorization=bearer)


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ('[[http.tokens]]\nname = "ana"\ntoken_env = "NOT_SET_ANYWHERE"', "NOT_SET_ANYWHERE"),
        ("[platforms.webhook]", "platforms.webhook has no secret"),
        ("[platforms.smoke_signals]", "Did you mean signal?"),
        ("[platforms.api]", "no adapter for this platform"),
        ("[platforms.discord]", "platforms.discord has no token"),
        ("[platforms.signal]", "platforms.signal has no account"),
        ("[platforms.telegram]", "platforms.telegram has no token"),
        ("hots = 1", "host"),
    ],
)
def test_missing_setting_is_named(tmp_path: Path, more: str, told: str) -> None:
    config = tmp_path / "tertulia.toml"
    config.write_text(CONFIG.format(where=tmp_path / "talk.db", more=more))
    done = subprocess.run(
        [sys.executable, "-m", "tertulia.cli", "run", "--config", str(config)],
        capture_output=True,
        stdin=subprocess.DEVNULL,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert told in done.stderr
    assert "Traceback" not in done.stderr


def test_web_platform_needs_http(tmp_path: Path) -> None:
    config = tmp_path / "tertulia.toml"
    config.write_text("[platforms.web]\n")
    done = subprocess.run(
        [sys.executable, "-m", "tertulia.cli", "run", "--config", str(config)],
        capture_output=True,
        stdin=subprocess.DEVNULL,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, "enabled = true" in done.stderr) == (2, True)
    assert not (tmp_path / "talk.db").exists()

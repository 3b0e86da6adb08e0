"""The `curl` lines of the page on HTTP work with the configuration that stands above them."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.markdown import ROOT, blocks
from tests.servers.ports import free_port

pytestmark = [
    pytest.mark.check,
    pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed"),
]

PAGE = (ROOT / "docs/http.md").read_text("utf-8")
TOKEN = "0123456789abcdef0123456789abcdef"


def test_curl_lines_work(tmp_path: Path) -> None:
    shown = list(blocks(PAGE))
    config = next(block.text for block in shown if block.language == "toml")
    console = next(block.text for block in shown if block.language == "console")
    port = str(free_port())
    (tmp_path / "config.toml").write_text(config, "utf-8")
    environment = {
        "HOME": str(tmp_path),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "TERTULIA_CONFIG": str(tmp_path / "config.toml"),
        "TERTULIA_TOKEN": TOKEN,
        "TERTULIA_HTTP_PORT": port,
    }
    gateway = subprocess.Popen(
        ["tertulia", "run"],
        env=environment,
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        lines = re.sub(r"\\\n> ", "", console).replace("8460", port).splitlines()
        commands = [line[2:] for line in lines if line.startswith("$ curl")]
        assert len(commands) >= 5
        # The first one is asked until the server is there.
        commands[0] += " --retry 60 --retry-delay 1 --retry-connrefused"
        answers = [_run(command, environment, tmp_path) for command in commands]
        assert "hola" in answers[1]
        assert "event: answer" in answers[2]
        assert "hola" in answers[3]
    finally:
        gateway.send_signal(signal.SIGTERM)
        assert gateway.stderr is not None
        log = gateway.stderr.read()
        gateway.stderr.close()
        assert gateway.wait() == 0, log


def _run(command: str, environment: dict[str, str], folder: Path) -> str:
    done = subprocess.run(
        command,
        shell=True,
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout

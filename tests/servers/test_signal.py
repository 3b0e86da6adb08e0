"""The fake daemon answers as signal-cli itself, where that can be compared without an account.

`TEST_SIGNAL_CLI` names the program; it needs a Java, which `JAVA_HOME` names. Without it these
tests hold the fake against the answers that version 0.13.19 gave.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.servers.ports import free_port
from tests.servers.signal import SignalServer

pytestmark = pytest.mark.check

# A request, the status and the code of the error; None: there is a result.
_SEND = (
    b'{"jsonrpc":"2.0","id":"1","method":"send","params":{"account":"+15550199",'
    b'"recipient":["+15550142"],"message":"x"}}'
)
CALLS: list[tuple[bytes, int, int | None]] = [
    (b'{"jsonrpc":"2.0","id":"1","method":"version"}', 200, None),
    (b'{"jsonrpc":"2.0","id":"1","method":"listAccounts"}', 200, None),
    (_SEND, 200, -32602),
    (
        b'{"jsonrpc":"2.0","id":"1","method":"version","params":{"account":"+15550199"}}',
        200,
        -32602,
    ),
    (b'{"jsonrpc":"2.0","id":"1","method":"nonsense"}', 200, -32601),
    (b"not json", 200, -32700),
]


@contextmanager
def daemon(program: str, folder: Path) -> Iterator[str]:
    """Run the daemon of signal-cli without an account."""
    address = f"127.0.0.1:{free_port()}"
    child = subprocess.Popen(
        [program, "--config", str(folder), "daemon", f"--http={address}",
         "--receive-mode=on-connection"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            try:
                if httpx2.get(f"http://{address}/api/v1/check").is_success:
                    break
            except httpx2.HTTPError:
                time.sleep(0.2)  # it has no other sign that it is ready
        yield f"http://{address}"
    finally:
        child.kill()
        child.wait(60)


@pytest.fixture(params=["fake", "signal-cli"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "fake":
        with SignalServer() as server:
            yield server.url
        return
    program = os.environ.get("TEST_SIGNAL_CLI")
    if program is None:
        pytest.skip("TEST_SIGNAL_CLI does not name signal-cli")
    with daemon(program, tmp_path) as address:
        yield address


def test_answers_have_the_form_of_signal_cli(url: str) -> None:
    with httpx2.Client(base_url=url, timeout=60) as client:
        for body, status, code in CALLS:
            headers = {"Content-Type": "application/json"}
            answer = client.post("/api/v1/rpc", content=body, headers=headers)
            assert answer.status_code == status
            content: dict[str, Any] = answer.json()
            assert content["jsonrpc"] == "2.0"
            assert (content["error"]["code"] if code else content.get("error")) == code
            assert ("result" in content) is (code is None)
        plain = client.post("/api/v1/rpc", content=b"{}", headers={"Content-Type": "text/plain"})
        assert plain.status_code == 415
        assert client.get("/api/v1/events?account=%2B15550198").status_code == 400
        assert client.get("/api/v1/check").status_code == 200

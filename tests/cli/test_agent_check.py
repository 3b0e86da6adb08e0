"""`tertulia doctor` looks at what the configuration names: agent, key, program, port."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import CommandLine


class Models(BaseHTTPRequestHandler):
    """A server that lists one model to whoever has the key."""

    def do_GET(self) -> None:
        is_right = self.headers.get("Authorization") == "Bearer right-key"
        self.send_response(200 if is_right else 401)
        self.end_headers()
        self.wfile.write(json.dumps({"data": [{"id": "gpt-5-mini"}]}).encode())

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        message = {"role": "assistant", "content": "Yes."}
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        self.wfile.write(json.dumps({"choices": [choice]}).encode())

    def log_message(self, *args: object) -> None:
        """Print nothing."""


@pytest.fixture
def server() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Models) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
        server.shutdown()


def look(tmp_path: Path, config: str, expect: int, *arguments: str) -> dict[str, dict[str, Any]]:
    path = tmp_path / "mine.toml"
    path.write_text(config)
    cli = CommandLine(str(tmp_path / "talk.db"))
    cli("store", "migrate")
    report = cli.json("doctor", *arguments, "--config", str(path), expect=expect)
    return {finding["name"]: finding for finding in report["findings"]}


def agent(server: str, model: str = "gpt-5-mini") -> str:
    return (
        f"[agent]\nkind = 'openai'\nmodel = '{model}'\nbase_url = '{server}'\napi_key_env = 'KEY'\n"
    )


@pytest.mark.parametrize(
    ("key", "model", "expect", "state", "text"),
    [
        ("right-key", "gpt-5-mini", 0, "ok", "the key is accepted"),
        ("wrong-key", "gpt-5-mini", 1, "problem", "refuses the key (401)"),
        ("right-key", "gpt-6", 0, "warning", "does not list the model gpt-6"),
        ("", "gpt-5-mini", 1, "problem", "KEY"),
    ],
)
def test_model_and_key(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    server: str,
    key: str,
    model: str,
    expect: int,
    state: str,
    text: str,
) -> None:
    monkeypatch.setenv("KEY", key)
    finding = look(tmp_path, agent(server, model), expect)["agent"]
    assert finding["state"] == state
    assert text in finding["detail"]
    assert "wrong-key" not in json.dumps(finding)


def test_server_that_does_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY", "k")
    finding = look(tmp_path, agent("http://127.0.0.1:9/v1"), 1)["agent"]
    assert finding["detail"].endswith("http://127.0.0.1:9/v1 cannot be reached: connection refused")


@pytest.mark.parametrize(("program", "expect"), [("sh", 0), ("pythonX", 1)])
def test_program_is_on_the_path(tmp_path: Path, program: str, expect: int) -> None:
    config = f"[agent]\nkind = 'command'\ncommand = ['{program}', 'x']\n"
    finding = look(tmp_path, config, expect)["agent"]
    assert program in finding["detail"]


def test_port_that_is_taken_is_a_warning(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        finding = look(tmp_path, f"[http]\nenabled = true\nport = {port}\n", 0)["HTTP"]
    assert finding["state"] == "warning"
    assert str(port) in finding["detail"]


def test_wrong_configuration_is_told_with_the_rest(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text("[agent]\nkinds = 'x'\n")
    cli = CommandLine(None)
    report = cli.json("doctor", "--config", str(path), expect=1)
    names = [finding["name"] for finding in report["findings"]]
    assert "SQLite" in names
    assert "configuration" in names


def test_every_agent_is_checked(
    tmp_path: Path, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEY", "right-key")
    others = (
        "[agents.local]\nkind = 'openai'\nmodel = 'gpt-5-mini'\nmodels = ['gpt-9']\n"
        f"base_url = '{server}'\napi_key_env = 'KEY'\n"
        "[agents.broken]\nkind = 'openai'\nmodel = 'm'\napi_key_env = 'NOT_SET_ANYWHERE'\n"
        "[agents.bad]\nkind = 'parrot'\nprompt_files = ['nowhere.md']\n"
    )
    path = tmp_path / "mine.toml"
    path.write_text(agent(server) + others)
    cli = CommandLine(str(tmp_path / "talk.db"))
    cli("store", "migrate")
    report = cli.json("doctor", "--config", str(path), expect=1)
    lines = [(item["name"], item["state"], item["detail"]) for item in report["findings"]]
    assert any(name == "agent" and state == "ok" for name, state, _ in lines)
    assert ("agents.local", "warning") in [line[:2] for line in lines]
    assert any("gpt-9" in text for _, _, text in lines)
    assert any(state == "problem" and "NOT_SET_ANYWHERE" in text for _, state, text in lines)
    assert any(state == "problem" and "nowhere.md" in text for _, state, text in lines)


def test_agent_answers_a_question_if_asked(
    tmp_path: Path, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEY", "right-key")
    assert "answer" not in look(tmp_path, agent(server), 0)
    assert look(tmp_path, agent(server), 0, "--ask")["answer"]["detail"].startswith("Yes. (")
    mute = "[agent]\nkind = 'command'\ncommand = ['true']\n"
    finding = look(tmp_path, mute, 1, "--ask")["answer"]
    assert finding["state"] == "problem"
    assert finding["advice"]

"""`[platforms.slack]`, and `tertulia platforms add|check slack`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tertulia.config.build import build_adapters
from tertulia.errors import ConfigError
from tertulia.platforms.slack import adapter as adapter_module
from tertulia.platforms.slack.adapter import SlackAdapter
from tests.cli.conftest import CommandLine
from tests.config.config_file import load_error, load_text
from tests.servers.slack import APP_TOKEN, BOT_TOKEN, SlackServer


@pytest.fixture
def server() -> Iterator[SlackServer]:
    with SlackServer() as running:
        yield running


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "config.toml"
    monkeypatch.setenv("TERTULIA_CONFIG", str(path))
    return path


def test_add_asks_for_both_tokens_and_check_asks_slack(
    server: SlackServer, config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def build(token: str, **options: Any) -> SlackAdapter:
        return SlackAdapter(token, **{**options, "base_url": f"{server.url}/api"})

    monkeypatch.setattr(adapter_module, "SlackAdapter", build)
    cli = CommandLine(str(tmp_path / "talk.db"))
    answers = f"{BOT_TOKEN}\n{APP_TOKEN}\n"
    result = cli("platforms", "add", "slack", stdin=answers)
    assert "@tertulia in Acme" in result.stdout
    assert "tertulia pair approve" in result.stdout
    assert BOT_TOKEN not in result.stdout
    assert config.stat().st_mode & 0o077 == 0
    assert cli.json("platforms", "check", "slack")["identity"] == "@tertulia in Acme"
    for command in (("platforms", "list"), ("config", "show"), ("platforms", "check", "slack")):
        output = cli(*command).stdout
        assert BOT_TOKEN not in output
        assert APP_TOKEN not in output
    server.revoke()
    assert "invalid_auth" in cli("platforms", "check", "slack", expect=1).stdout


def test_wrong_app_token_is_not_written(
    server: SlackServer, config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def build(token: str, **options: Any) -> SlackAdapter:
        return SlackAdapter(token, **{**options, "base_url": f"{server.url}/api"})

    monkeypatch.setattr(adapter_module, "SlackAdapter", build)
    config.write_text("")
    cli = CommandLine(str(tmp_path / "talk.db"))
    cli("platforms", "add", "slack", stdin=f"{BOT_TOKEN}\nxapp-wrong\n", expect=1)
    assert config.read_text() == ""


def test_sections_of_two_workspaces(tmp_path: Path) -> None:
    text = """
    [platforms.slack]
    bot_token = "xoxb-1"
    app_token = "xapp-1"
    [platforms.slack.accounts.other]
    bot_token = "xoxb-2"
    signing_secret = "s"
    """
    adapters = build_adapters(load_text(tmp_path, text).config, str(tmp_path))
    assert [(adapter.account, adapter.needs_http) for adapter in adapters] == [
        ("", False),
        ("other", True),
    ]


def test_mistakes_in_the_section(tmp_path: Path) -> None:
    def build(text: str) -> None:
        build_adapters(load_text(tmp_path, f"[platforms.slack]\n{text}").config, str(tmp_path))

    with pytest.raises(ConfigError, match="neither app_token nor signing_secret"):
        build("bot_token = 'x'")
    with pytest.raises(ConfigError, match="no bot_token"):
        build("app_token = 'x'")
    for tokens in (
        "bot_token = 'xapp-1'\napp_token = 'xapp-1'",
        "bot_token = 'x'\napp_token = 'xoxb-1'",
    ):
        with pytest.raises(ConfigError, match="is the other token") as caught:
            build(tokens)
        assert "bot_token begins with xoxb-" in str(caught.value.hint)
    problem = load_error(tmp_path, "[platforms.slack]\nconnections = 11")
    assert "platforms.slack.connections" in problem.message

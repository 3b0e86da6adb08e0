"""`tertulia platforms add|check` with Signal and Discord, against servers on loopback."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import CommandLine
from tests.servers.discord import TOKEN, DiscordServer
from tests.servers.signal import NUMBER, SignalServer


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "config.toml"
    monkeypatch.setenv("TERTULIA_CONFIG", str(path))
    return path


def test_signal_is_added_and_checked(cli: CommandLine, config: Path) -> None:
    with SignalServer() as server:
        added = cli("platforms", "add", "signal", stdin=f"{NUMBER}\n{server.url}\n")
        assert "signal-cli 0.13.19" in added.stdout
        assert "[platforms.signal]" in config.read_text()
        assert NUMBER in cli.json("platforms", "check", "signal")["identity"]
        server.number = "+15550199"
        assert "no account" in cli("platforms", "check", "signal", expect=1).stdout


def test_discord_is_checked_and_a_missing_intent_explained(cli: CommandLine, config: Path) -> None:
    with DiscordServer() as server:
        config.write_text(
            f'[platforms.discord]\ntoken = "{TOKEN}"\nbase_url = "{server.base_url}"\n'
        )
        assert "client_id=901" in cli.json("platforms", "check", "discord")["identity"]
        server.flags = 0
        refused = cli("platforms", "check", "discord", expect=1).stdout
        assert "Message Content Intent" in refused
        assert TOKEN not in refused

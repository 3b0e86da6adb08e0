"""`[platforms.whatsapp]`, and `tertulia platforms add|check whatsapp`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tertulia.config.build import build_adapters
from tertulia.errors import ConfigError
from tertulia.platforms.whatsapp import adapter as adapter_module
from tertulia.platforms.whatsapp.adapter import WhatsAppAdapter
from tests.cli.conftest import CommandLine
from tests.config.config_file import load_text
from tests.servers.whatsapp import APP_SECRET, NUMBER_ID, TOKEN, VERIFY_TOKEN, WhatsAppServer


@pytest.fixture
def server() -> Iterator[WhatsAppServer]:
    with WhatsAppServer() as running:
        yield running


def test_add_asks_and_check_asks_whatsapp(
    server: WhatsAppServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def build(token: str, **options: Any) -> WhatsAppAdapter:
        return WhatsAppAdapter(token, **{**options, "base_url": f"{server.url}/v23.0"})

    monkeypatch.setattr(adapter_module, "WhatsAppAdapter", build)
    config = tmp_path / "config.toml"
    monkeypatch.setenv("TERTULIA_CONFIG", str(config))
    cli = CommandLine(str(tmp_path / "talk.db"))
    answers = "\n".join([NUMBER_ID, TOKEN, APP_SECRET, VERIFY_TOKEN, ""])
    result = cli("platforms", "add", "whatsapp", stdin=answers)
    assert "+1 555-078-3881 (Acme)" in result.stdout
    assert "/platforms/whatsapp" in result.stdout
    assert "under [http]" in result.stdout
    assert config.stat().st_mode & 0o077 == 0
    assert cli.json("platforms", "check", "whatsapp")["identity"] == "+1 555-078-3881 (Acme)"
    for command in (("platforms", "list"), ("config", "show"), ("platforms", "check", "whatsapp")):
        output = cli(*command).stdout
        assert not any(secret in output for secret in (TOKEN, APP_SECRET, VERIFY_TOKEN))
    text = config.read_text()
    config.write_text(text.replace(NUMBER_ID, "15550783881"))  # the number in place of its id
    assert "below the number" in cli("platforms", "check", "whatsapp", expect=1).stdout
    config.write_text(text)
    server.token = "another"
    assert "190" in cli("platforms", "check", "whatsapp", expect=1).stdout


KEYS = ("token", "phone_number_id", "app_secret", "verify_token")


@pytest.mark.parametrize("missing", KEYS)
def test_missing_key_is_reported(tmp_path: Path, missing: str) -> None:
    lines = [f"{key} = 'x'" for key in KEYS if key != missing]
    text = "\n".join(["[platforms.whatsapp]", *lines])
    with pytest.raises(ConfigError, match=f"no {missing}"):
        build_adapters(load_text(tmp_path, text).config, str(tmp_path))

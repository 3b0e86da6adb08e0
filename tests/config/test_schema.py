"""The sections of the configuration: their defaults and their checks."""

from __future__ import annotations

from typing import Any

import pytest

from tertulia import Settings
from tertulia.cli.config_reference import reference
from tertulia.config.load import load_config
from tertulia.config.schema import (
    AgentConfig,
    Config,
    GatewayConfig,
    LocalConfig,
    PlatformConfig,
    StoreConfig,
    WebhookConfig,
)
from tertulia.errors import ConfigError
from tertulia.gateway.settings import GatewaySettings
from tests.docs.markdown import ROOT


def test_empty_configuration_has_the_defaults() -> None:
    assert load_config(None, {}).config == Config()
    assert Config().settings == Settings()
    assert Config().rules == GatewaySettings()


@pytest.mark.parametrize(
    ("ours", "theirs", "without"),
    [
        (StoreConfig, Settings, {"platforms", "has_active_processes"}),
        (GatewayConfig, GatewaySettings, {"platforms"}),
    ],
)
def test_sections_have_the_keys_and_defaults_of_their_settings(
    ours: type, theirs: type, without: set[str]
) -> None:
    left, right = ours(), theirs()
    names = set(theirs.__struct_fields__) - without  # type: ignore[attr-defined]
    assert set(ours.__struct_fields__) - {"where", "memory"} == names  # type: ignore[attr-defined]
    assert {name: getattr(left, name) for name in names} == {
        name: getattr(right, name) for name in names
    }


def test_unset_api_key_variable_is_reported() -> None:
    agent = AgentConfig(kind="anthropic", model="m", api_key_env="NO_SUCH_KEY")
    with pytest.raises(ConfigError, match="NO_SUCH_KEY, which is not set"):
        agent.resolve_api_key({})


@pytest.mark.parametrize(
    ("values", "message", "field"),
    [
        ({"kind": "openai"}, "needs model", "kind"),
        ({"kind": "http"}, "needs url", "kind"),
        ({"kind": "parrot", "model": "m"}, "has no key model", "model"),
        ({"kind": "command", "command": ("x",), "url": "y"}, "has no key url", "url"),
        (
            {"kind": "openai", "model": "m", "api_key": "k", "api_key_env": "K"},
            "Both api_key and api_key_env",
            "api_key_env",
        ),
    ],
)
def test_agent_refuses_missing_and_unsuitable_keys(
    values: dict[str, Any], message: str, field: str
) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        AgentConfig(**values)
    assert caught.value.field == field


def test_webhook_secret_comes_from_the_file_or_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("WEBHOOK_SECRET", "from-environment")
    assert WebhookConfig(secret="from-file").resolve_secret() == "from-file"
    assert WebhookConfig(secret_env="WEBHOOK_SECRET").resolve_secret() == "from-environment"
    with pytest.raises(ConfigError, match="no secret"):
        WebhookConfig().resolve_secret()


def test_connected_platforms_are_the_enabled_ones_without_the_terminal() -> None:
    platforms = {
        "telegram": PlatformConfig(),
        "discord": PlatformConfig(enabled=False),
        "local": LocalConfig(),
    }
    assert Config(platforms=platforms).settings.platforms == ("telegram",)


def test_config_page_is_up_to_date() -> None:
    page = (ROOT / "docs/config.md").read_text("utf-8")
    assert page == reference(), "run: python -m tertulia.cli.config_reference > docs/config.md"

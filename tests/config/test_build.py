"""Agents, adapters and HTTP settings are built from a configuration."""

from __future__ import annotations

from typing import Any

import pytest

from tertulia.config.build import build_adapters, build_agent, build_http_settings, check
from tertulia.config.schema import (
    AgentConfig,
    Config,
    HttpConfig,
    PlatformConfig,
    TokenConfig,
    WebhookConfig,
)
from tertulia.errors import ConfigError


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ({}, "ParrotAgent"),
        ({"kind": "openai", "model": "m", "api_key": "k"}, "OpenAIAgent"),
        ({"kind": "anthropic", "model": "m", "max_tokens": 9}, "AnthropicAgent"),
        ({"kind": "command", "command": ("true",), "variables": {"A": "b"}}, "CommandAgent"),
        ({"kind": "http", "url": "http://127.0.0.1:1/x"}, "HttpAgent"),
    ],
)
def test_every_kind_of_agent_is_built(values: dict[str, Any], kind: str) -> None:
    assert type(build_agent(AgentConfig(**values))).__name__ == kind


def test_adapters_of_enabled_platforms_are_built() -> None:
    platforms = {
        "web": PlatformConfig(),
        "webhook": WebhookConfig(secret="webhook-secret-0123456789"),
        "telegram": PlatformConfig(enabled=False),
        "local": PlatformConfig(),
    }
    adapters = build_adapters(Config(platforms=platforms))
    assert [adapter.name for adapter in adapters] == ["web", "webhook"]


def test_platform_without_adapter_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"platforms\.sms") as caught:
        build_adapters(Config(platforms={"sms": PlatformConfig()}))
    assert caught.value.field == "platforms.sms"


def test_http_settings_resolve_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONSOLE_TOKEN", "console-secret-0123456789")
    token = TokenConfig(name="console", role="owner", token_env="CONSOLE_TOKEN")
    settings = build_http_settings(Config(http=HttpConfig(enabled=True, port=0, tokens=(token,))))
    assert settings is not None
    assert [(token.name, token.role, token.secret) for token in settings.tokens] == [
        ("console", "owner", "console-secret-0123456789")
    ]
    assert build_http_settings(Config()) is None


def test_web_platform_needs_the_http_server() -> None:
    config = Config(platforms={"web": PlatformConfig()})
    with pytest.raises(ConfigError, match="not enabled"):
        check(config)
    check(Config(platforms=config.platforms, http=HttpConfig(enabled=True)))

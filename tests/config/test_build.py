"""Agents, adapters and HTTP settings are built from a configuration."""

from __future__ import annotations

from pathlib import Path

import pytest

from tertulia.agents import (
    AnthropicOptions,
    CommandAgentOptions,
    HttpAgentOptions,
    OpenAIOptions,
    ParrotOptions,
)
from tertulia.agents.fallback import FallbackAgent
from tertulia.config.build import (
    build_adapters,
    build_agent,
    build_http_settings,
    build_main_agent,
    find_problems,
)
from tertulia.config.schema import AgentSection, Config, HttpSection
from tertulia.errors import ConfigError
from tertulia.http.settings import Token
from tertulia.platforms.local import LocalSettings
from tertulia.platforms.settings import PlatformSettings
from tertulia.platforms.webhook import WebhookSettings


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        (ParrotOptions(), "ParrotAgent"),
        (OpenAIOptions(model="m", api_key="k"), "OpenAIAgent"),
        (AnthropicOptions(model="m", max_tokens=9), "AnthropicAgent"),
        (CommandAgentOptions(command=("true",), variables={"A": "b"}), "CommandAgent"),
        (HttpAgentOptions(url="http://127.0.0.1:1/x"), "HttpAgent"),
    ],
)
def test_every_kind_of_agent_is_built(options: AgentSection, kind: str) -> None:
    agent = build_agent(options)
    assert type(agent).__name__ == kind
    assert agent.name == options.kind


def test_adapters_of_enabled_platforms_are_built() -> None:
    platforms = {
        "web": PlatformSettings(),
        "webhook": WebhookSettings(secret="webhook-secret-0123456789"),
        "telegram": PlatformSettings(enabled=False),
        "local": LocalSettings(),
    }
    adapters = build_adapters(Config(platforms=platforms), "state")
    assert [adapter.name for adapter in adapters] == ["web", "webhook"]


@pytest.mark.parametrize("name", ["api", "sms"])
def test_platform_without_adapter_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=f"platforms.{name}: this version has no") as caught:
        build_adapters(Config(platforms={name: PlatformSettings()}), "state")
    assert caught.value.field == f"platforms.{name}"


def test_http_settings_need_the_variables_of_their_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    token = Token(name="console", role="owner", secret_env="CONSOLE_TOKEN")
    config = Config(http=HttpSection(enabled=True, port=0, tokens=(token,)))
    with pytest.raises(ConfigError, match="CONSOLE_TOKEN"):
        build_http_settings(config, [])
    monkeypatch.setenv("CONSOLE_TOKEN", "console-secret-0123456789")
    assert build_http_settings(config, []) is config.http
    assert build_http_settings(Config(), []) is None


def test_web_platform_needs_the_http_server(tmp_path: Path) -> None:
    config = Config(platforms={"web": PlatformSettings()})
    (problem,) = find_problems(config, str(tmp_path / "state"))
    assert "not enabled" in problem.message
    served = Config(platforms=config.platforms, http=HttpSection(enabled=True))
    assert find_problems(served, str(tmp_path / "state")) == []
    assert not (tmp_path / "state").exists()


def test_fallback_agents_must_be_configured() -> None:
    agent = OpenAIOptions(model="a", base_url="http://127.0.0.1:1", fallback=("local",))
    with pytest.raises(ConfigError, match=r"agent\.fallback names the agent 'local'"):
        build_main_agent(Config(agent=agent))
    built = build_main_agent(Config(agent=agent, agents={"local": ParrotOptions()}))
    assert isinstance(built, FallbackAgent)
    assert not isinstance(build_main_agent(Config()), FallbackAgent)

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
    build_agents,
    build_http_settings,
    find_problems,
)
from tertulia.config.schema import AgentSection, Config, HttpSection
from tertulia.errors import ConfigError
from tertulia.http.settings import Token
from tertulia.platforms.local import LocalSettings
from tertulia.platforms.settings import PlatformSettings
from tertulia.platforms.webhook import WebhookSettings
from tests.config.config_file import load_error, load_text


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
        build_agents(Config(agent=agent), "data")
    built = build_agents(Config(agent=agent, agents={"local": ParrotOptions()}), "data").main.agent
    assert isinstance(built, FallbackAgent)
    assert not isinstance(build_agents(Config(), "data").main.agent, FallbackAgent)


def test_agents_are_built_with_models_tools_and_prompts(tmp_path: Path) -> None:
    (tmp_path / "SOUL.md").write_text("You are kind.")
    config = load_text(
        tmp_path,
        """
        [agents.main]
        kind = "openai"
        model = "big"
        models = ["small"]
        base_url = "http://127.0.0.1:1"
        prompt_files = ["SOUL.md"]
        fallback = ["local"]
        [agents.local]
        kind = "openai"
        model = "local"
        base_url = "http://127.0.0.1:1"
        tools = ["schedule", "files__*"]
        role = "owner"
        [[routes]]
        platform = "telegram"
        chat = "-100"
        agent = "local"
        """,
    ).config
    main, local = build_agents(config, "data")
    assert (main.name, local.name) == ("main", "local")
    assert isinstance(main.agent, FallbackAgent)
    assert {name: getattr(agent, "model", None) for name, agent in main.models.items()} == {
        "big": "big",
        "small": "small",
    }
    assert not any(isinstance(agent, FallbackAgent) for agent in main.models.values())
    assert main.prompt is not None
    assert main.prompt.current() == "You are kind."
    assert (local.tools, local.role) == (("schedule", "files__*"), "owner")
    assert config.store_settings.agents == ("local",)
    assert config.store_settings.routes[0].chat == "-100"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[routes]]\nplatform = 'telegram'\nagent = 'nobody'\n", "names the agent 'nobody'"),
        ("[agents.a]\nfallback = ['nobody']\n", "agents.a.fallback names the agent 'nobody'"),
        ("[media]\ndescribe = 'nobody'\n", "media.describe names the agent 'nobody'"),
        ("[agents.'a b']\n", "cannot be the name of an agent"),
        (
            "[agent]\nkind = 'openai'\nmodel = 'm'\n[agents.main]\nkind = 'parrot'\n",
            "are the same agent",
        ),
        ("[[routes]]\nchat = '42'\nagent = 'main'\n", "no platform"),
    ],
)
def test_wrong_agents_and_routes_are_told_with_their_line(
    tmp_path: Path, text: str, message: str
) -> None:
    problem = load_error(tmp_path, text)
    assert message in problem.message
    assert "config.toml, line" in problem.message


@pytest.mark.parametrize("content", [None, b"\xff\xfe", b"x" * 40_000])
def test_wrong_prompt_files_are_told(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "SOUL.md").write_bytes(content)
    config = load_text(tmp_path, "[agents.main]\nprompt_files = ['SOUL.md']\n").config
    (problem,) = find_problems(config, str(tmp_path))
    assert problem.field == "agents.main.prompt_files"


@pytest.mark.parametrize(("folder", "line"), [("shed", "folder = 'shed'\n"), ("work", "")])
def test_a_prompt_file_that_programs_can_write_is_refused(
    tmp_path: Path, folder: str, line: str
) -> None:
    (tmp_path / folder).mkdir()
    (tmp_path / folder / "SOUL.md").write_text("You are kind.")
    text = (
        f"[agents.main]\nprompt_files = ['{folder}/../{folder}/SOUL.md']\n"
        f"[processes]\nenabled = true\n{line}"
    )
    (problem,) = find_problems(load_text(tmp_path, text).config, str(tmp_path))
    assert "can be changed by programs" in problem.message

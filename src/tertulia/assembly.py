"""From a configuration to what it names: the agent and the adapters."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from tertulia.agents.base import Agent
from tertulia.config import AgentConfig, Config
from tertulia.errors import ConfigError
from tertulia.platforms.base import Adapter

Builder = Callable[[Config], Adapter]

BUILDERS: dict[str, Builder] = {}
"""How the adapter of a platform is made; the terminal's is made by whoever has the terminal."""

_SHARED = ("history_tokens", "max_steps", "tool_seconds", "limits", "retry", "headers")


def agent_of(given: AgentConfig) -> Agent:
    """The agent that the configuration names."""
    # Each is loaded only where it is wanted: most have the network behind them.
    if given.kind == "parrot":
        from tertulia.agents.parrot import ParrotAgent

        return ParrotAgent(tool_seconds=given.tool_seconds)
    if given.kind == "command":
        from tertulia.agents.command import CommandAgent

        return CommandAgent(given.command, cwd=given.folder, env=_variables(given),
                            format=given.format, **_shared(given, "headers", "retry"))  # fmt: skip
    if given.kind == "http":
        from tertulia.agents.http import HttpAgent

        assert given.url is not None
        return HttpAgent(given.url, format=given.format, **_shared(given))
    return _model(given)


def _model(given: AgentConfig) -> Agent:
    from tertulia.agents.anthropic import AnthropicAgent
    from tertulia.agents.openai import OpenAIAgent

    assert given.model is not None
    names = ("base_url", "max_tokens", "provider")
    set_ones = {n: getattr(given, n) for n in names if getattr(given, n) is not None}
    kind: Callable[..., Agent] = OpenAIAgent if given.kind == "openai" else AnthropicAgent
    return kind(
        given.model,
        api_key=given.key(),
        instructions=given.instructions,
        options=given.options,
        **set_ones,
        **_shared(given),
    )


def adapters_of(config: Config) -> list[Adapter]:
    """The adapters of every platform that is enabled, but for the terminal."""
    found = []
    for name, section in config.platforms.items():
        if not section.enabled or name == "local":
            continue
        if name not in BUILDERS:
            raise ConfigError(
                f"platforms.{name}: this version has no adapter for it.",
                hint=f"Remove it, or set: enabled = false under [platforms.{name}]",
                field=f"platforms.{name}",
            )
        found.append(BUILDERS[name](config))
    return found


def _shared(given: AgentConfig, *without: str) -> dict[str, Any]:
    return {name: getattr(given, name) for name in _SHARED if name not in without}


def _variables(given: AgentConfig) -> dict[str, str] | None:
    return {**os.environ, **given.variables} if given.variables else None

"""The base of agents behind a server: its options reach the connection, its secrets nobody."""

from __future__ import annotations

import pytest

from tertulia.agents import HttpAgent, HttpAgentOptions, Limits, OpenAIAgent, OpenAIOptions, Retry

SECRET = "sk-very-secret-0123456789"


def test_options_reach_the_connection() -> None:
    limits, retry = Limits(total=7), Retry(tries=2)
    agent = HttpAgent(HttpAgentOptions(url="http://localhost/a", limits=limits, retry=retry))
    assert (agent._transport.limits, agent._transport.retry) == (limits, retry)
    assert agent.name == "http"


def test_secrets_are_removed_from_texts_of_the_server() -> None:
    headers = {"X-Key": SECRET}
    agent = HttpAgent(HttpAgentOptions(url="http://localhost/a", headers=headers))
    assert SECRET not in agent._transport.scrub(f"wrong key {SECRET}")
    assert SECRET not in repr(agent)


def test_api_key_in_a_variable_is_a_secret_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODEL_KEY", SECRET)
    agent = OpenAIAgent(OpenAIOptions(model="m", api_key_env="MODEL_KEY"))
    assert SECRET not in agent._transport.scrub(f"wrong key {SECRET}")

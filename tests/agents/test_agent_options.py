"""The options of agents: kinds, secrets, and values that are refused."""

from __future__ import annotations

import pytest

from tertulia.agents import AnthropicOptions, HttpAgentOptions, OpenAIOptions, ParrotOptions
from tertulia.errors import ConfigError


def test_kind_is_the_name_in_the_configuration() -> None:
    assert ParrotOptions().kind == "parrot"
    assert OpenAIOptions(model="m").kind == "openai"
    assert HttpAgentOptions(url="http://x").kind == "http"


def test_repr_shows_no_secret() -> None:
    headers = {"X-Key": "TOPSECRET"}
    options = OpenAIOptions(model="m", api_key="TOPSECRET", headers=headers)
    assert "TOPSECRET" not in repr(options)


def test_api_key_comes_from_the_file_or_the_environment() -> None:
    assert OpenAIOptions(model="m").resolve_api_key({}) is None
    assert OpenAIOptions(model="m", api_key="sk").resolve_api_key({}) == "sk"
    assert OpenAIOptions(model="m", api_key_env="KEY").resolve_api_key({"KEY": "sk"}) == "sk"


def test_unset_api_key_variable_is_reported() -> None:
    options = AnthropicOptions(model="m", api_key_env="NO_SUCH_KEY")
    with pytest.raises(ConfigError, match="NO_SUCH_KEY, which is not set") as caught:
        options.resolve_api_key({})
    assert caught.value.data["field"] == "agent.api_key_env"


def test_two_api_keys_are_refused() -> None:
    with pytest.raises(ConfigError, match="Both api_key and api_key_env") as caught:
        OpenAIOptions(model="m", api_key="k", api_key_env="K")
    assert caught.value.data["field"] == "api_key_env"

"""The section [http]: a token has exactly one origin."""

from __future__ import annotations

import pytest

from tertulia.config.http_schema import TokenConfig
from tertulia.errors import ConfigError


def test_token_needs_exactly_one_origin() -> None:
    with pytest.raises(ConfigError, match="has no value"):
        TokenConfig(name="a")
    with pytest.raises(ConfigError, match="has two values"):
        TokenConfig(name="a", token="x", token_env="X")


def test_token_comes_from_the_file_or_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONSOLE_TOKEN", "from-environment")
    assert TokenConfig(name="a", token="from-file").resolve_secret() == "from-file"
    assert TokenConfig(name="a", token_env="CONSOLE_TOKEN").resolve_secret() == "from-environment"


def test_empty_token_variable_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONSOLE_TOKEN", "")
    with pytest.raises(ConfigError, match="CONSOLE_TOKEN"):
        TokenConfig(name="a", token_env="CONSOLE_TOKEN").resolve_secret()

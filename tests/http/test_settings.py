"""HTTP settings refuse unsafe values and never show secrets."""

from __future__ import annotations

from typing import Any

import pytest

from tertulia.errors import ConfigError
from tertulia.http import HttpSettings, Token
from tertulia.http.auth import Authenticator


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.2", "example.org"])
def test_public_host_needs_a_token(host: str) -> None:
    with pytest.raises(ConfigError, match="Add a token"):
        HttpSettings(host=host)
    HttpSettings(host=host, tokens=(Token(name="a", secret="x" * 16),))


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "127.0.0.9"])
def test_loopback_host_needs_no_token(host: str) -> None:
    HttpSettings(host=host)


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": "A b", "secret": "x" * 16},
        {"name": "a", "secret": "tiny"},
        {"name": "a", "secret": "x" * 16, "role": "king"},
    ],
)
def test_invalid_token_is_refused_without_showing_its_secret(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        Token(**wrong)
    assert wrong["secret"] not in str(caught.value)


def test_repr_hides_secrets() -> None:
    token = Token(name="a", secret="x" * 16)
    assert "xxx" not in repr(HttpSettings(tokens=(token,)))


def test_two_tokens_cannot_share_a_secret() -> None:
    token = Token(name="a", secret="x" * 16)
    with pytest.raises(ConfigError, match="same secret"):
        HttpSettings(tokens=(token, Token(name="b", secret="x" * 16)))


def test_token_needs_exactly_one_origin() -> None:
    with pytest.raises(ConfigError, match="has no value"):
        Token(name="a")
    with pytest.raises(ConfigError, match="has two values"):
        Token(name="a", secret="x" * 16, secret_env="X")


def test_token_comes_from_the_file_or_the_environment() -> None:
    assert Token(name="a", secret="x" * 16).resolve_secret({}) == "x" * 16
    token = Token(name="a", secret_env="CONSOLE_TOKEN")
    assert token.resolve_secret({"CONSOLE_TOKEN": "y" * 16}) == "y" * 16


@pytest.mark.parametrize("environ", [{}, {"CONSOLE_TOKEN": ""}])
def test_empty_token_variable_is_reported(environ: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="CONSOLE_TOKEN"):
        Token(name="a", secret_env="CONSOLE_TOKEN").resolve_secret(environ)


def test_short_secret_in_a_variable_is_refused() -> None:
    with pytest.raises(ConfigError, match="too short"):
        Token(name="a", secret_env="CONSOLE_TOKEN").resolve_secret({"CONSOLE_TOKEN": "tiny"})


def test_two_variables_cannot_have_the_same_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("A_TOKEN", "B_TOKEN"):
        monkeypatch.setenv(name, "x" * 16)
    tokens = (Token(name="a", secret_env="A_TOKEN"), Token(name="b", secret_env="B_TOKEN"))
    with pytest.raises(ConfigError, match="same secret"):
        HttpSettings(tokens=tokens).check_secrets()


def test_authenticator_resolves_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """A token whose variable is empty must not open the server to everybody."""
    settings = HttpSettings(tokens=(Token(name="a", secret_env="A_TOKEN"),))
    with pytest.raises(ConfigError, match="A_TOKEN"):
        Authenticator(settings)
    monkeypatch.setenv("A_TOKEN", "x" * 16)
    caller = Authenticator(settings).authenticate({"authorization": f"Bearer {'x' * 16}"})
    assert caller.name == "a"

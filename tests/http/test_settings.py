"""HTTP settings refuse unsafe values and never show secrets."""

from __future__ import annotations

from typing import Any

import pytest

from tertulia.errors import ConfigError
from tertulia.http import HttpSettings, Token


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

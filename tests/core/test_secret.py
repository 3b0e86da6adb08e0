"""Secrets in settings: from the file or from a variable, never from both."""

from __future__ import annotations

import msgspec
import pytest

from tertulia.core.secret import Secret, resolve_secret
from tertulia.errors import ConfigError


class Account(msgspec.Struct, frozen=True, kw_only=True):
    token: Secret | None = None
    token_env: str | None = None


def resolve(account: Account, **environ: str) -> str | None:
    return resolve_secret(account, "token", environ, section="platforms.matrix")


def test_secret_comes_from_the_field_or_the_variable() -> None:
    assert resolve(Account()) is None
    assert resolve(Account(token="from-file")) == "from-file"
    assert resolve(Account(token_env="TOKEN"), TOKEN="from-environment") == "from-environment"


@pytest.mark.parametrize("environ", [{}, {"TOKEN": ""}])
def test_unset_variable_is_reported_with_its_key(environ: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="TOKEN, which is not set") as caught:
        resolve(Account(token_env="TOKEN"), **environ)
    assert caught.value.data["field"] == "platforms.matrix.token_env"


def test_two_values_are_refused_without_showing_them() -> None:
    with pytest.raises(ConfigError, match="Both token and token_env") as caught:
        resolve(Account(token="TOPSECRET", token_env="TOKEN"))
    assert "TOPSECRET" not in str(caught.value)

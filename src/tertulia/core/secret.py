"""Keys and tokens in settings: given in the file, or by the name of an environment variable.

A settings class has a pair of fields for each secret:

    token: Secret | None = None
    token_env: str | None = None
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from msgspec import Meta

from tertulia.errors import ConfigError

Secret = Annotated[str, Meta(extra={"is_secret": True})]
"""A text that is never shown: not by `tertulia config show`, not in logs, not in a repr."""


def resolve_secret(
    settings: object, name: str, environ: Mapping[str, str], *, section: str
) -> str | None:
    """Return the secret `name` of a settings value, from its field or from its variable.

    Return None if neither is set. Raise `ConfigError` if both are, or if the variable is not set
    or empty; `section` is the place of the settings in the configuration, such as "agent".
    """
    value: str | None = getattr(settings, name)
    variable: str | None = getattr(settings, f"{name}_env")
    refuse_two_values(settings, name)
    if variable is None:
        return value
    secret = environ.get(variable)
    if not secret:
        raise ConfigError(
            f"{section}.{name}_env names the variable {variable}, which is not set.",
            hint=f"Set it: export {variable}=…",
            field=f"{section}.{name}_env",
        )
    return secret


def refuse_two_values(settings: object, name: str) -> None:
    """Raise `ConfigError` if a secret is given both as a value and as a variable."""
    if getattr(settings, name) is not None and getattr(settings, f"{name}_env") is not None:
        raise ConfigError(
            f"Both {name} and {name}_env are set.",
            hint="Give only one of them.",
            field=f"{name}_env",
        )

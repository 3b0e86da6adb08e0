"""The error for an SDK package that is not installed."""

from __future__ import annotations

from tertulia.errors import ConfigError
from tertulia.install_command import install_command


def missing_extra(extra: str, problem: ImportError) -> ConfigError:
    """Return the error for an SDK that cannot be imported, with the install command as its hint."""
    return ConfigError(
        f"This module of tertulia.integrations needs the extra {extra!r}; "
        f"its import failed: {problem}.",
        hint=f"Install it: {install_command(extra)}",
        extra=extra,
    )

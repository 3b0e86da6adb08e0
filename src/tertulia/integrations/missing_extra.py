"""The error for an SDK package that is not installed."""

from __future__ import annotations

from tertulia.errors import ConfigError


def missing_extra(extra: str, problem: ImportError) -> ConfigError:
    """Return the error for an SDK that cannot be imported, with the install command as its hint."""
    return ConfigError(
        f"This module of tertulia.integrations needs the extra {extra!r}; "
        f"its import failed: {problem}.",
        hint=f"Install it with: pip install 'tertulia[{extra}]'",
        extra=extra,
    )

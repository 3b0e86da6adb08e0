"""What is said where the package of an SDK is not installed."""

from __future__ import annotations

from tertulia.errors import ConfigError


def missing(extra: str, problem: ImportError) -> ConfigError:
    """The error for an SDK that cannot be imported, with what to install."""
    return ConfigError(
        f"tertulia.integrations needs the package {extra!r} here, and it says: {problem}.",
        hint=f"Install it with: pip install 'tertulia[{extra}]'",
        extra=extra,
    )

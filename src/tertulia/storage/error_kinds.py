"""The translation of a driver's errors by their class, shared by all databases."""

from __future__ import annotations

from collections.abc import Iterable

from tertulia.errors import ConfigError, StoreError

# The driver's error, ours, what happened, and what to do next.
ErrorKind = tuple[type[Exception], type[StoreError], str, str]


def find_kind(
    problem: Exception, kinds: Iterable[ErrorKind], where: str, text: str
) -> StoreError | None:
    """Return our error for the first kind that a driver's error is of, or None."""
    for kind, error_class, message, hint in kinds:
        if isinstance(problem, kind):
            return error_class(f"{message} ({where}: {text}).", hint=hint, where=where)
    return None


def invalid_value(text: str) -> ConfigError:
    """Return the error for a value that no column can hold."""
    return ConfigError(
        f"A value cannot be stored or searched for: {text}.",
        hint="Give valid Unicode text, and numbers below 2⁶³.",
    )

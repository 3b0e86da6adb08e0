"""Checks of arguments at the public interface, before anything is done.

The type hints say the same for callers with a type checker. Each check raises `ConfigError` with
the name of the argument as `field`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import datetime

from tertulia.core.source import Source
from tertulia.core.text.excerpt import short_repr
from tertulia.errors import ConfigError


def source(value: object) -> None:
    """Raise `ConfigError` unless the value is a source, not for example a platform name."""
    if not isinstance(value, Source):
        raise ConfigError(
            f"source is {short_repr(value)}.",
            hint="Give a Source, for example Source('telegram', '42', user_id='42').",
            field="source",
        )


def instance(name: str, value: object, kind: type, example: str) -> None:
    """Raise `ConfigError` unless the value is an instance of a class."""
    if not isinstance(value, kind):
        raise ConfigError(f"{name} is {short_repr(value)}.", hint=f"Give {example}.", field=name)


def text(name: str, value: object, *, optional: bool = False) -> None:
    """Raise `ConfigError` unless the value is text; None is allowed if it is optional."""
    if not isinstance(value, str) and not (optional and value is None):
        raise ConfigError(f"{name} is {short_repr(value)}.", hint="Give text.", field=name)


def integer(name: str, value: object, least: int, most: int | None = None) -> None:
    """Raise `ConfigError` unless the value is an integer within the bounds."""
    is_integer = isinstance(value, int) and not isinstance(value, bool)
    if is_integer and least <= value and (most is None or value <= most):  # type: ignore[operator]
        return
    allowed = f"Allowed: {least} to {most}." if most is not None else f"Give {least} or more."
    raise ConfigError(f"{name} is {short_repr(value)}.", hint=allowed, field=name)


def number(name: str, value: object) -> None:
    """Raise `ConfigError` unless the value is a number other than NaN."""
    if not isinstance(value, int | float) or isinstance(value, bool) or math.isnan(value):
        raise ConfigError(f"{name} is {short_repr(value)}.", hint="Give a number.", field=name)


def aware_datetime(name: str, value: object) -> None:
    """Raise `ConfigError` unless the value is a datetime with a time zone."""
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise ConfigError(f"{name} has no time zone.", hint="Give an aware datetime.", field=name)


def collection(name: str, value: object) -> None:
    """Raise `ConfigError` unless the value is a collection; text is refused, though iterable."""
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise ConfigError(
            f"{name} is {short_repr(value)}.",
            hint="Give a list, also for a single item.",
            field=name,
        )

"""Checks of arguments at the public interface, before anything is done.

The type hints say the same for callers with a type checker. Each check raises `ConfigError` with
the name of the argument as `field`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import datetime

from tertulia.core.source import Source, is_integer_id
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


def identifier(name: str, value: object) -> None:
    """Raise `ConfigError` unless the value is an id: text or an integer."""
    if not isinstance(value, str) and not is_integer_id(value):
        raise ConfigError(
            f"{name} is {short_repr(value)}.", hint="Give text or an integer.", field=name
        )


def choice(name: str, value: object, allowed: Sequence[str]) -> None:
    """Raise `ConfigError` unless the value is one of the allowed words."""
    if not isinstance(value, str) or value not in allowed:
        raise ConfigError(
            f"{name} is {short_repr(value)}.", hint=f"Allowed: {', '.join(allowed)}.", field=name
        )


def integer(name: str, value: object, least: int, most: int | None = None) -> None:
    """Raise `ConfigError` unless the value is an integer within the bounds."""
    is_integer = isinstance(value, int) and not isinstance(value, bool)
    if is_integer and least <= value and (most is None or value <= most):  # type: ignore[operator]
        return
    allowed = f"Allowed: {least} to {most}." if most is not None else f"Give {least} or more."
    raise ConfigError(f"{name} is {short_repr(value)}.", hint=allowed, field=name)


def number(name: str, value: object) -> None:
    """Raise `ConfigError` unless the value is a number other than NaN that a float can hold."""
    if not is_number(value):
        raise ConfigError(f"{name} is {short_repr(value)}.", hint="Give a number.", field=name)


def is_number(value: object) -> bool:
    """Return whether a value is a number other than NaN, one that a float can hold."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    try:
        return not math.isnan(value)
    except OverflowError:
        return False


def aware_datetime(name: str, value: object) -> None:
    """Raise `ConfigError` unless the value is a datetime with a time zone."""
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise ConfigError(f"{name} has no time zone.", hint="Give an aware datetime.", field=name)


def collection(name: str, value: object) -> None:
    """Raise `ConfigError` unless the value is a collection; text is refused, though iterable."""
    if isinstance(value, list):
        return
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise ConfigError(
            f"{name} is {short_repr(value)}.",
            hint="Give a list, also for a single item.",
            field=name,
        )

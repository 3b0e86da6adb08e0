"""What callers hand in, checked at the border: a mistake is told in words, before anything is done.

Types say the same, to those who have them checked. The errors are `ConfigError`s that name the
argument as `field`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import datetime

from tertulia.core.source import Source
from tertulia.errors import ConfigError


def source(value: object) -> None:
    """Refuse what is no source, such as the name of a platform alone."""
    if not isinstance(value, Source):
        raise ConfigError(
            f"{_short(value)} is no source.",
            hint="Give Source('telegram', '42', user_id='42').",
            field="source",
        )


def text(name: str, value: object, *, optional: bool = False) -> None:
    """Refuse what is no text; None passes where it may be left out."""
    if not isinstance(value, str) and not (optional and value is None):
        raise ConfigError(f"{name} is {_short(value)}.", hint="Give text.", field=name)


def whole(name: str, value: object, least: int, most: int | None = None) -> None:
    """Refuse what is no whole number within bounds."""
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    if is_whole and least <= value and (most is None or value <= most):  # type: ignore[operator]
        return
    allowed = f"Allowed: {least} to {most}." if most is not None else f"Give {least} or more."
    raise ConfigError(f"{name} is {_short(value)}.", hint=allowed, field=name)


def number(name: str, value: object) -> None:
    """Refuse what is no number that can be reckoned with."""
    if not isinstance(value, int | float) or isinstance(value, bool) or math.isnan(value):
        raise ConfigError(f"{name} is {_short(value)}.", hint="Give a number.", field=name)


def moment(name: str, value: object) -> None:
    """Refuse what is no moment, or one that nobody can place."""
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise ConfigError(f"{name} has no time zone.", hint="Give an aware datetime.", field=name)


def many(name: str, value: object) -> None:
    """Refuse one thing, or a text, where several are wanted: a text is many characters."""
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise ConfigError(
            f"{name} is {_short(value)}.", hint="Give a list, also of one.", field=name
        )


def _short(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= 80 else f"{shown[:77]}…"

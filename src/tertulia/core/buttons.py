"""Buttons under a message, and those of a question for an approval.

The value of a button comes back from the platform when somebody presses it, so it is checked like
anything else that comes from outside: it says which answer to which question, and nothing about
who may give it. A press is the same as the command that a person could type (decision 0049).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import msgspec

from tertulia.core.pairing_code import ALPHABET, LENGTH

_VALUE: Final = re.compile(rf"(once|session|always|no):([{ALPHABET}]{{{LENGTH}}})")


class Button(msgspec.Struct, frozen=True):
    """A button: what people read, and what the platform gives back when it is pressed."""

    label: str
    value: str


def approval_buttons(code: str, *, is_once_only: bool) -> tuple[Button, ...]:
    """Return the buttons of a question for an approval; the last one says no."""
    longer = (Button("This session", f"session:{code}"), Button("Always", f"always:{code}"))
    return (
        Button("Approve once", f"once:{code}"),
        *(() if is_once_only else longer),
        Button("Deny", f"no:{code}"),
    )


def choose_buttons(buttons: Sequence[Button], limit: int) -> tuple[Button, ...]:
    """Return as many buttons as a platform can show; the last one is always among them."""
    if len(buttons) <= limit:
        return tuple(buttons)
    return (*buttons[: limit - 1], buttons[-1]) if limit > 1 else ()


def command_of(value: str) -> str | None:
    """Return the command that a press of a button stands for, or None for any other value."""
    match = _VALUE.fullmatch(value)
    if match is None:
        return None
    answer, code = match.groups()
    return f"/deny {code}" if answer == "no" else f"/approve {code} {answer}"

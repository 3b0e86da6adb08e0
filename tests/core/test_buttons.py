"""Buttons: their values, and how many of them a platform shows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tertulia.core import pairing_code
from tertulia.core.buttons import approval_buttons, choose_buttons, command_of


def test_limits_of_buttons() -> None:
    buttons = approval_buttons("ABCDEFGH", is_once_only=False)
    labels = [[b.label for b in choose_buttons(buttons, limit)] for limit in range(5)]
    assert labels[:2] == [[], []]  # to approve without a way to deny would be no question
    assert labels[2:] == [
        ["Approve once", "Deny"],
        ["Approve once", "This session", "Deny"],
        ["Approve once", "This session", "Always", "Deny"],
    ]
    assert [b.label for b in approval_buttons("ABCDEFGH", is_once_only=True)] == [
        "Approve once",
        "Deny",
    ]


def test_value_is_a_command_and_short_enough_for_every_platform() -> None:
    code = pairing_code.new_code()
    values = [button.value for button in approval_buttons(code, is_once_only=False)]
    assert [command_of(value) for value in values] == [
        f"/approve {code} once",
        f"/approve {code} session",
        f"/approve {code} always",
        f"/deny {code}",
    ]
    assert max(len(value.encode()) for value in values) <= 64


@pytest.mark.parametrize(
    "value", ["", "once:", "once:ABCDEFG", "once:ABCDEFGHJ", "once:abcdefgh", "no:ABCDEFG0"]
)
def test_value_that_nobody_made_is_no_command(value: str) -> None:
    assert command_of(value) is None


@given(st.text())
def test_no_other_text_becomes_a_command(value: str) -> None:
    command = command_of(value)
    assert command is None or command.split()[0] in ("/approve", "/deny")

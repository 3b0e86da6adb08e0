"""Pauses of accounts: nothing is sent, then one message, then all."""

from __future__ import annotations

from tertulia import AccountProblem
from tertulia.gateway.account_pauses import AccountPauses
from tertulia.records.queues.outbox import AccountKey

KEY: AccountKey = ("telegram", "")


class Seconds:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_account_is_paused_tried_with_one_message_and_goes_on() -> None:
    clock = Seconds()
    pauses = AccountPauses(clock)
    assert pauses.limit(KEY, 64) == 64
    seconds = pauses.pause(KEY, AccountProblem("The token was revoked."))
    assert seconds > 0
    assert pauses.problem(KEY) == "The token was revoked."
    assert pauses.limit(KEY, 64) == 0
    assert pauses.limit(("telegram", "work"), 64) == 64
    clock.now += seconds + 1
    assert pauses.limit(KEY, 64) == 1
    pauses.end(KEY)
    assert (pauses.limit(KEY, 64), pauses.problem(KEY)) == (64, None)


def test_pause_grows_and_has_a_limit() -> None:
    clock = Seconds()
    pauses = AccountPauses(clock)
    lengths = []
    for _ in range(12):
        lengths.append(pauses.pause(KEY, AccountProblem("No.")))
        clock.now += lengths[-1] + 1
    assert lengths[0] < 11
    assert max(lengths) <= 600
    assert lengths[-1] > lengths[0]


def test_problem_during_a_pause_does_not_lengthen_it() -> None:
    clock = Seconds()
    pauses = AccountPauses(clock)
    first = pauses.pause(KEY, AccountProblem("No."))
    assert pauses.pause(KEY, AccountProblem("No.")) == first

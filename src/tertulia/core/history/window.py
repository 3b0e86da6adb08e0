"""What fits: the newest part of a history within a budget, cut where it stays legal.

Whole turns go first, the oldest before the others. If the newest turn alone is too big, its large
results and arguments are shortened in the middle; if that is not enough, its oldest steps go, and
the person's message stays. What is left is within the budget, unless one message cannot be. A
summary of what came before stays in front, in at most half of the budget.

Providers remember a prompt for a while and charge little for the beginning of it that comes again.
A window that leaves its oldest turn behind whenever a new one comes never begins alike. So a long
window that has to be cut may be cut by up to a quarter more: of the turns where it could begin, it
begins at the one with the highest lot, a number that is drawn from the place of the turn in the
log. That one is the highest until the window has passed it or a higher one comes up, so the
beginning moves rarely and in large jumps, and where it stands follows from what is stored. The same
is done with the steps of a turn that is too big by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

import msgspec

from tertulia.core.history import tokens
from tertulia.core.history.content import flat
from tertulia.core.history.repair import (
    PEOPLE,
    Block,
)
from tertulia.core.message import SUMMARY

T = TypeVar("T")

# All results of a turn are shortened alike, down to the first length, before a step goes; those of
# the last step, which the model has not seen yet, down to the second before that one goes.
DECENT = 4096
SHORTEST = 256
_MARK = "\n[… {left} of {total} characters left out …]\n"

# A shorter window is cheap to read anew, and there every turn counts.
_LONG = 32
_KEPT = 0.75

# The tokens of a block whose results and arguments are no longer than so many characters.
Weigh = Callable[[Block, int | None], int]


class HistoryBudget(NamedTuple):
    """How much may be shown."""

    messages: int
    tokens: int | None = None


class FittedHistory(NamedTuple):
    """Blocks that fit, and how long each of their results and arguments may be."""

    blocks: list[Block]
    result_limit: int | None = None


def fit(
    found: Sequence[Block], budget: HistoryBudget, weigh: Weigh, *, whole: bool = True
) -> FittedHistory:
    """The newest turns of a history that fit, or as much of the newest turn as fits.

    `whole` says that nothing came before what was found: then all of it is shown if it fits.
    """
    if not found or found[0].row.role != SUMMARY:
        return _fit(split(found), budget, weigh, whole=whole)
    summary = _fit_summary(found[0], budget, weigh)
    turns = split(found[1:])
    if not turns:
        return _fit(split([summary, *found[1:]]), budget, weigh, whole=whole)
    room = _room([summary], budget, weigh)
    words = [[block for block in turns[-1] if block.is_person][-1:]]
    # What the person said last comes before what was said long ago.
    if room is None or not _shares(words, room, weigh):
        return _fit(turns, budget, weigh, whole=False)
    newest = _fit(turns, room, weigh, whole=whole)
    return FittedHistory([summary, *newest.blocks], newest.result_limit)


def split(found: Sequence[Block]) -> list[list[Block]]:
    """The turns of a history. Each begins with a person's message.

    A delivery right before it comes along, for the person may be answering it. What stands before
    the first turn is left out: no model accepts a history that begins with its own words.
    """
    turns: list[list[Block]] = []
    before: Block | None = None
    for block in found:
        row = block.row
        if row.role not in PEOPLE:
            if turns:
                turns[-1].append(block)
        elif before is not None and before.is_person and before.row.turn == row.turn:
            turns[-1].append(block)
        elif before is not None and before.is_delivery:
            if turns:
                turns[-1].pop()
            turns.append([before, block])
        else:
            turns.append([block])
        before = block
    return turns


def shortened(text: str, limit: int) -> str:
    """A text cut in the middle, with a mark that says how much is left out.

    Its head and its tail stay, for that is where programs say what matters.
    """
    if len(text) <= limit:
        return text
    keep = max(limit - len(_MARK) - 12, 0)
    head, tail = keep - keep // 3, keep // 3
    mark = _MARK.format(left=len(text) - keep, total=len(text))
    return text[:head] + mark + (text[-tail:] if tail else "")


def _fit(
    turns: list[list[Block]], budget: HistoryBudget, weigh: Weigh, *, whole: bool
) -> FittedHistory:
    shares = _shares(turns, budget, weigh)
    if not shares:
        return _fit_turn(turns[-1], budget, weigh) if turns else FittedHistory([])
    count = len(shares)
    if not whole or count < len(turns):
        count = _lasting(shares, turns)
    return FittedHistory([block for turn in _newest(turns, count) for block in turn])


def _fit_turn(turn: list[Block], budget: HistoryBudget, weigh: Weigh) -> FittedHistory:
    """As much of a turn as fits: its person's words always, then its newest steps."""
    people = [block for block in turn if block.is_person]
    # The first block is a person's, or a delivery; that goes before any step.
    steps = [block for block in turn[1:] if not block.is_person]
    people = _newest(people, max(1, len(_shares([[one] for one in people], budget, weigh))))
    room = _room(people, budget, weigh)
    if room is None:
        return FittedHistory(people)
    groups = [[step] for step in steps]
    shares = _shares(groups, HistoryBudget(room.messages), weigh)
    if len(shares) < len(groups):
        steps = _newest(steps, _lasting(shares, groups))
    steps, limit = _fit_steps(steps, room, weigh)
    return FittedHistory([*people, *steps], limit)


def _fit_steps(
    steps: list[Block], room: HistoryBudget, weigh: Weigh
) -> tuple[list[Block], int | None]:
    """The newest steps that fit, shortened if need be, and how far they are shortened."""
    groups = [[step] for step in steps]
    shares: list[float] = []
    limit: int | None = None
    for limit in (None, *_limits(room, DECENT)):
        shares = _shares(groups, room, weigh, limit)
        if len(shares) == len(groups):
            return steps, limit
    if shares:
        return _newest(steps, _lasting(shares, groups)), limit
    for limit in _limits(room, SHORTEST):
        if _shares(groups[-1:], room, weigh, limit):
            return steps[-1:], limit
    return [], None


def _fit_summary(summary: Block, budget: HistoryBudget, weigh: Weigh) -> Block:
    """A summary that takes no more than half of the budget, if that can be."""
    found = summary
    for limit in _limits(budget, SHORTEST):
        if weigh(found, None) <= (budget.tokens or 0) // 2:
            break
        text = shortened(flat(summary.row.body.get("content")), limit)
        found = Block(msgspec.structs.replace(summary.row, body={"content": text}))
    return found


def _limits(budget: HistoryBudget, shortest: int) -> list[int]:
    """Lengths to shorten to, the largest first. A text that is longer does not fit by itself.

    Powers of two, so that a turn which grows is seldom shortened anew.
    """
    longest = (budget.tokens or 0) * tokens.MOST_CHARACTERS
    powers = [1 << power for power in range(longest.bit_length() - 1, 0, -1)]
    return [power for power in powers if power >= shortest]


def _room(blocks: Sequence[Block], budget: HistoryBudget, weigh: Weigh) -> HistoryBudget | None:
    """What blocks leave of a budget; None if there is nothing left."""
    messages = budget.messages - sum(block.size for block in blocks)
    if budget.tokens is None:
        return HistoryBudget(messages) if messages > 0 else None
    left = budget.tokens - sum(weigh(block, None) for block in blocks)
    return HistoryBudget(messages, left) if messages > 0 and left > 0 else None


def _shares(
    groups: Sequence[list[Block]], budget: HistoryBudget, weigh: Weigh, limit: int | None = None
) -> list[float]:
    """What part of the budget the newest group takes, the two newest, and so on while they fit."""
    shares: list[float] = []
    messages = weight = 0
    for group in reversed(groups):
        messages += len(group) + sum([len(block.results) for block in group])
        share = messages / budget.messages
        if budget.tokens is not None and share <= 1:
            weight += sum([weigh(block, limit) for block in group])
            share = max(share, weight / budget.tokens)
        if share > 1:
            break
        shares.append(share)
    return shares


def _lasting(shares: Sequence[float], groups: Sequence[list[Block]]) -> int:
    """How many of the newest groups to show so that their beginning stays for long."""
    if len(shares) < _LONG:
        return len(shares)
    enough = shares[-1] * _KEPT
    counts = [count for count, share in enumerate(shares, 1) if share >= enough]
    return max(counts, key=lambda count: _lot(groups[-count][0].row.seq))


def _lot(seq: int) -> int:
    """A number that neighbours in any rhythm do not share: Knuth's multiplicative hash."""
    return seq * 2_654_435_761 % (1 << 32)


def _newest(items: list[T], count: int) -> list[T]:
    return items[len(items) - count :]

"""What fits: the newest part of a history within a budget, cut where it stays legal.

Whole turns go first, the oldest before the others. If the newest turn alone is too big, its large
results are shortened in the middle; if that is not enough, its oldest steps go, and the person's
message stays. What is left is within the budget, unless one message cannot be.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from tertulia.core.grammar import Block

# A shortened result keeps its head and its tail, for that is where programs say what matters.
SHORTEST = 400
_LONGEST = 400_000
_MARK = "\n[… {left} of {total} characters left out …]\n"

# The tokens of a block whose results are no longer than so many characters.
Weigh = Callable[[Block, int | None], int]


class Budget(NamedTuple):
    """How much may be shown."""

    messages: int
    tokens: int | None = None


class Fit(NamedTuple):
    """Blocks that fit, and how long each of their results may be."""

    blocks: list[Block]
    result_limit: int | None = None


def fit(found: Sequence[Block], budget: Budget, weigh: Weigh) -> Fit:
    """The newest turns of a history that fit, or as much of the newest turn as fits."""
    turns = split(found)
    first, messages, tokens = len(turns), 0, 0
    for place in range(len(turns) - 1, -1, -1):
        messages += sum(block.size for block in turns[place])
        if budget.tokens is not None:
            tokens += sum(weigh(block, None) for block in turns[place])
        if messages > budget.messages or tokens > (budget.tokens or 0):
            break
        first = place
    if first < len(turns) or not turns:
        return Fit([block for turn in turns[first:] for block in turn])
    return _fit_turn(turns[-1], budget, weigh)


def split(found: Sequence[Block]) -> list[list[Block]]:
    """The turns of a history. Each begins with a person's message.

    A delivery right before it comes along, for the person may be answering it. What stands before
    the first turn is left out: no model accepts a history that begins with its own words.
    """
    turns: list[list[Block]] = []
    for place, block in enumerate(found):
        before = found[place - 1] if place else None
        if block.is_person and not _same_turn(before, block):
            turns.append([block])
            if before is not None and before.is_delivery and not before.results:
                if len(turns) > 1:
                    turns[-2].pop()
                turns[-1].insert(0, before)
        elif turns:
            turns[-1].append(block)
    return [turn for turn in turns if turn]


def _same_turn(before: Block | None, block: Block) -> bool:
    return before is not None and before.is_person and before.row.turn == block.row.turn


def shortened(text: str, limit: int) -> str:
    """A text cut in the middle, with a mark that says how much is left out."""
    if len(text) <= limit:
        return text
    keep = max(limit - len(_MARK) - 12, 0)
    head, tail = keep - keep // 3, keep // 3
    mark = _MARK.format(left=len(text) - keep, total=len(text))
    return text[:head] + mark + (text[-tail:] if tail else "")


def _fit_turn(turn: list[Block], budget: Budget, weigh: Weigh) -> Fit:
    """As much of a turn as fits: its person's words always, then its newest steps."""
    people = [block for block in turn if block.is_person][-max(budget.messages, 1) :]
    steps = [block for block in turn if not block.is_person and not block.is_delivery]
    room = budget.messages - len(people)
    while steps and sum(block.size for block in steps) > room:
        steps.pop(0)
    if budget.tokens is None:
        return Fit(_in_order(turn, people, steps))
    limit = _LONGEST
    while _weight(people + steps, weigh, limit) > budget.tokens and limit > SHORTEST:
        limit = max(limit // 2, SHORTEST)
    while steps and _weight(people + steps, weigh, limit) > budget.tokens:
        steps.pop(0)
    while len(people) > 1 and _weight(people, weigh, limit) > budget.tokens:
        people.pop(0)
    return Fit(_in_order(turn, people, steps), limit)


def _weight(blocks: Sequence[Block], weigh: Weigh, limit: int) -> int:
    return sum(weigh(block, limit) for block in blocks)


def _in_order(turn: list[Block], *kept: list[Block]) -> list[Block]:
    wanted = {id(block) for part in kept for block in part}
    found = [block for block in turn if id(block) in wanted]
    # Steering can put a step before the first person's message that is kept.
    while found and not found[0].is_person:
        found.pop(0)
    return found

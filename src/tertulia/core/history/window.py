"""The history window: the newest part of a history within a budget, cut where it stays legal.

Whole turns are dropped first, beginning with the oldest. If the newest turn alone is too big, its
large results and arguments are shortened in the middle; if that is not enough, its oldest steps are
dropped, and the person's message stays. The rest is within the budget, unless a single message is
too big. A summary of earlier turns stays at the beginning, in at most half of the budget.

Providers cache a prompt for a while and charge little for a beginning that they have cached. If a
window dropped its oldest turn with every new one, its beginning would always change. So a long
window that has to be cut may be cut by up to a quarter more: of the turns where it could begin, it
begins at the one with the highest rank, a pseudo-random number computed from the position of the
turn in the log. That turn has the highest rank until the window has passed it or a turn with a
higher rank comes, so the beginning moves rarely and in large jumps, and it depends only on the
stored messages. The same is done with the steps of a turn that is too big by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

import msgspec

from tertulia.core.history import tokens
from tertulia.core.history.content import flatten_content
from tertulia.core.history.repair import USER_ROLES, Block
from tertulia.core.history.shortening import shorten_middle
from tertulia.core.message import SUMMARY

T = TypeVar("T")

# All results of a turn are shortened to the same length, down to the first minimum, before a step
# is dropped; those of the last step, which the model has not seen yet, down to the second minimum
# before that step is dropped.
MIN_RESULT = 4096
MIN_LAST_RESULT = 256

# A window with fewer turns (or steps) is cheap to send again, and every turn in it matters: it is
# cut as little as possible. A longer one keeps at least this share of what fits.
_MIN_GROUPS_FOR_JUMPS = 32
_MIN_SHARE = 0.75

# Counts the tokens of a block with its results and arguments limited to this many characters.
CountTokens = Callable[[Block, int | None], int]


class HistoryBudget(NamedTuple):
    """The maximum of messages and tokens in a history."""

    messages: int
    tokens: int | None = None


class FittedHistory(NamedTuple):
    """The blocks that fit, and the maximum length of each of their results and arguments."""

    blocks: list[Block]
    result_limit: int | None = None


def fit_history(
    blocks: Sequence[Block], budget: HistoryBudget, count_tokens: CountTokens, *, whole: bool = True
) -> FittedHistory:
    """Return the newest turns of a history that fit, or as much of the newest turn as fits.

    `whole` is true if the blocks are the complete history: then all of it is used if it fits.
    """
    if not blocks or blocks[0].row.role != SUMMARY:
        return _fit(split_turns(blocks), budget, count_tokens, whole=whole)
    summary = _fit_summary(blocks[0], budget, count_tokens)
    turns = split_turns(blocks[1:])
    if not turns:
        return _fit(split_turns([summary, *blocks[1:]]), budget, count_tokens, whole=whole)
    room = _room([summary], budget, count_tokens)
    last_message = [[block for block in turns[-1] if block.is_person][-1:]]
    # The last message of the person is more important than the summary.
    if room is None or not _shares(last_message, room, count_tokens):
        return _fit(turns, budget, count_tokens, whole=False)
    newest = _fit(turns, room, count_tokens, whole=whole)
    return FittedHistory([summary, *newest.blocks], newest.result_limit)


def stable_count(shares: Sequence[float], first_seqs: Sequence[int]) -> int:
    """Return how many of the newest groups to use so that their beginning rarely changes.

    `shares` are as `_shares` returns them, `first_seqs` the positions where the groups begin.
    """
    if len(shares) < _MIN_GROUPS_FOR_JUMPS:
        return len(shares)
    min_share = shares[-1] * _MIN_SHARE
    counts = [count for count, share in enumerate(shares, 1) if share >= min_share]
    return max(counts, key=lambda count: _rank(first_seqs[-count]))


def split_turns(blocks: Sequence[Block]) -> list[list[Block]]:
    """Return the turns of a history. Each begins with a person's message.

    A delivery right before it belongs to the turn, because the person may be answering it. Blocks
    before the first turn are left out: no model accepts a history that begins with an assistant
    message.
    """
    turns: list[list[Block]] = []
    before: Block | None = None
    for block in blocks:
        row = block.row
        if row.role not in USER_ROLES:
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


def _fit(
    turns: list[list[Block]], budget: HistoryBudget, count_tokens: CountTokens, *, whole: bool
) -> FittedHistory:
    shares = _shares(turns, budget, count_tokens)
    if not shares:
        return _fit_turn(turns[-1], budget, count_tokens) if turns else FittedHistory([])
    count = len(shares)
    if not whole or count < len(turns):
        count = stable_count(shares, _first_seqs(turns))
    return FittedHistory([block for turn in _newest(turns, count) for block in turn])


def _fit_turn(turn: list[Block], budget: HistoryBudget, count_tokens: CountTokens) -> FittedHistory:
    """Return as much of a turn as fits: always the person's message, then its newest steps."""
    people = [block for block in turn if block.is_person]
    # The first block is a person's message or a delivery; a delivery is dropped before any step.
    steps = [block for block in turn[1:] if not block.is_person]
    people = _newest(
        people, max(1, len(_shares([[block] for block in people], budget, count_tokens)))
    )
    room = _room(people, budget, count_tokens)
    if room is None:
        return FittedHistory(people)
    groups = [[step] for step in steps]
    shares = _shares(groups, HistoryBudget(room.messages), count_tokens)
    if len(shares) < len(groups):
        steps = _newest(steps, stable_count(shares, _first_seqs(groups)))
    steps, limit = _fit_steps(steps, room, count_tokens)
    return FittedHistory([*people, *steps], limit)


def _fit_steps(
    steps: list[Block], room: HistoryBudget, count_tokens: CountTokens
) -> tuple[list[Block], int | None]:
    """Return the newest steps that fit, and the length their results are shortened to, if any."""
    groups = [[step] for step in steps]
    shares: list[float] = []
    limit: int | None = None
    for limit in (None, *_limits(room, MIN_RESULT)):
        shares = _shares(groups, room, count_tokens, limit)
        if len(shares) == len(groups):
            return steps, limit
    if shares:
        return _newest(steps, stable_count(shares, _first_seqs(groups))), limit
    for limit in _limits(room, MIN_LAST_RESULT):
        if _shares(groups[-1:], room, count_tokens, limit):
            return steps[-1:], limit
    return [], None


def _fit_summary(summary: Block, budget: HistoryBudget, count_tokens: CountTokens) -> Block:
    """Return the summary, shortened to at most half of the budget if that is possible."""
    fitted = summary
    for limit in _limits(budget, MIN_LAST_RESULT):
        if count_tokens(fitted, None) <= (budget.tokens or 0) // 2:
            break
        text = shorten_middle(flatten_content(summary.row.body.get("content")), limit)
        fitted = Block(msgspec.structs.replace(summary.row, body={"content": text}))
    return fitted


def _limits(budget: HistoryBudget, shortest: int) -> list[int]:
    """Return lengths to shorten to, the largest first. A longer text does not fit by itself.

    Powers of two, so that a growing turn rarely needs another length.
    """
    longest = (budget.tokens or 0) * tokens.MAX_CHARACTERS_PER_TOKEN
    powers = [1 << power for power in range(longest.bit_length() - 1, 0, -1)]
    return [power for power in powers if power >= shortest]


def _room(
    blocks: Sequence[Block], budget: HistoryBudget, count_tokens: CountTokens
) -> HistoryBudget | None:
    """Return the budget that remains after the blocks; None if nothing remains."""
    messages = budget.messages - sum(block.size for block in blocks)
    if budget.tokens is None:
        return HistoryBudget(messages) if messages > 0 else None
    left = budget.tokens - sum(count_tokens(block, None) for block in blocks)
    return HistoryBudget(messages, left) if messages > 0 and left > 0 else None


def _shares(
    groups: Sequence[list[Block]],
    budget: HistoryBudget,
    count_tokens: CountTokens,
    limit: int | None = None,
) -> list[float]:
    """Return the share of the budget for the newest group, the two newest, … while they fit."""
    shares: list[float] = []
    messages = token_count = 0
    for group in reversed(groups):
        messages += len(group) + sum([len(block.results) for block in group])
        share = messages / budget.messages
        if budget.tokens is not None and share <= 1:
            token_count += sum([count_tokens(block, limit) for block in group])
            share = max(share, token_count / budget.tokens)
        if share > 1:
            break
        shares.append(share)
    return shares


def _first_seqs(groups: Sequence[list[Block]]) -> list[int]:
    return [group[0].row.seq for group in groups]


def _rank(seq: int) -> int:
    """Return a rank that differs between regularly spaced numbers (multiplicative hash)."""
    return seq * 2_654_435_761 % (1 << 32)


def _newest(items: list[T], count: int) -> list[T]:
    return items[len(items) - count :]

"""Turns: from the message of a user to the final answer of the agent.

Entering is one transaction (`enter.py`). The answer is one too: the message, its usage, its
delivery, and the release of the lease. A step with tool calls, a tool result and a delivery are
one each. No lock and no transaction is held while the agent works.

The answer ends a turn: it is an assistant message without tool calls (decision 0006). A turn that
writes more messages after it takes its lease again, if no other turn has entered since. A delivery
or usage after the answer needs no lease.

Effects of other calls on a session while a turn is inside it:

- reset, switch, fork, end: the turn continues in its session, which has ended. The next message
  begins in the other session at once. A policy waits until the turn is over.
- undo, clear, rewrite and similar calls: messages that the turn stored before are hidden; messages
  that it stores afterwards are visible.
- delete: every write raises `NotFound`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from tertulia.core.history.formats import Format, Timestamps
from tertulia.core.history.model_traits import ModelTraits
from tertulia.core.message import ToolCall
from tertulia.core.session import Notice, Session
from tertulia.core.usage import Usage
from tertulia.records.turns.control import TurnControl


class TurnProperties:
    """The values of a turn, in sync and in async code: reading them never waits."""

    _control: TurnControl

    @property
    def session(self) -> Session:
        """The session as it was when the turn began; `IllegalMove` before that."""
        return self._control.session

    @property
    def notice(self) -> Notice | None:
        """The notice that a policy ended the session before, or None; returned to one caller."""
        return self._control.notice

    @property
    def duplicate(self) -> bool:
        """True if the message id had a turn before; then nothing can be written in this one."""
        return self._control.duplicate

    @property
    def answer(self) -> str | None:
        """The text of the answer, or None; with `duplicate`, the one that was stored before."""
        return self._control.answer

    @property
    def context_prompt(self) -> str:
        """The part of the system prompt that tells the agent which chat it is in."""
        return self._control.context_prompt


class Turn(TurnProperties):
    """One exchange. Used in a `with` block; every call in it is durable when it returns.

    It shows the calls of an exchange; `TurnControl` has the steps behind them (decision 0012).
    """

    def __init__(self, control: TurnControl) -> None:
        self._control = control

    def history(
        self,
        max_messages: int = 500,
        max_tokens: int | None = None,
        timestamps: Timestamps = "none",
        format: Format = "openai",
        *,
        model: ModelTraits | None = None,
    ) -> list[dict[str, Any]]:
        """Return the messages for the model, the user's last; see `Transcript.history`."""
        return self._control.history(max_messages, max_tokens, timestamps, format, model=model)

    def add_assistant(
        self,
        text: str | None,
        *,
        tool_calls: Sequence[ToolCall | Mapping[str, Any]] = (),
        reasoning: str | None = None,
        usage: Usage | None = None,
        deliver: str | None = None,
        more: bool = False,
        **fields: Any,
    ) -> None:
        """Store a message of the model. Without tool calls it is the answer, and ends the turn.

        With `deliver`, such as "origin", it is put into the outbox in the same transaction. With
        `more` it is a part of the answer and the turn goes on. Other fields, such as
        `thinking_blocks`, are stored with the message.
        """
        self._control.add_assistant(
            text,
            tool_calls=tool_calls,
            reasoning=reasoning,
            usage=usage,
            deliver=deliver,
            more=more,
            **fields,
        )

    def add_tool_result(self, call_id: str, content: Any, *, name: str | None = None) -> None:
        """Store the result of a call of this turn: text, content parts, or any JSON value."""
        self._control.add_tool_result(call_id, content, name=name)

    def add_usage(self, usage: Usage) -> None:
        """Record the usage of a model call without a message, such as a failed or auxiliary one."""
        self._control.add_usage(usage)

    def deliver(self, text: str, to: str = "origin", *, delivery: str | None = None) -> str:
        """Put a message into the outbox, once for each delivery id; return that id.

        A turn that is resumed after an interruption puts its deliveries in again, unless the caller
        gave them ids. A delivery to another conversation is recorded there.
        """
        return self._control.deliver(text, to, delivery=delivery)

    def __enter__(self) -> Self:
        self._control.enter()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._control.leave(failed=problem is not None)


def control_of(turn: Turn | TurnControl) -> TurnControl:
    """Return the control behind a turn, for integrations that are handed a `Turn`."""
    return turn._control if isinstance(turn, Turn) else turn

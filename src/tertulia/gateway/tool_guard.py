"""The guard of an agent's tools: it decides for each call whether it runs, asks, or is declined.

The gateway stores a step before any of its calls runs. If one of them has to be approved, none
runs: the turn waits (`records/turns/waiting.py`). Independently of that, each tool checks the
decision once more when it is called, so that no agent can run a call that nobody approved.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import msgspec

from tertulia import aio
from tertulia.agents import json_schema
from tertulia.agents.base import Content, Tool
from tertulia.aio.turn import TurnControl
from tertulia.core import pairing_code
from tertulia.core.approval import (
    MAX_SHOWN,
    ApprovalSettings,
    Decision,
    arguments_of,
    decide,
    show_arguments,
)
from tertulia.core.buttons import approval_buttons
from tertulia.core.foreign_content import has_foreign_content, newest_turn
from tertulia.core.message import ToolCall
from tertulia.gateway import replies
from tertulia.records.approval_questions import AskedCall
from tertulia.records.people import Role
from tertulia.records.turns.waiting import Suspension, declined_text

_NEWEST: Final = 200  # messages in which the turn is looked for foreign content
_DENIED: Final = "a rule of the configuration does not allow this call"
_NOBODY: Final = "it needs an approval, and nobody is there who could give it"
_NOT_APPROVED: Final = "it needs an approval that it does not have"
_TOO_LONG: Final = (
    f"its arguments are longer than {MAX_SHOWN} characters, too long to be shown for an approval"
)


class Requester(msgspec.Struct, frozen=True, kw_only=True):
    """The person whose turn it is, and where they can be asked.

    asked_in   the target of questions; None if nobody can be asked
    target     where the answer is delivered if the turn continues later; None: nowhere
    """

    person: str
    role: Role
    asked_in: str | None = "origin"
    target: str | None = "origin"


class ToolGuard:
    """Decides about the calls of one turn."""

    def __init__(
        self,
        store: aio.Store,
        settings: ApprovalSettings,
        tools: Sequence[Tool],
        requester: Requester,
    ) -> None:
        self._store = store
        self._settings = settings
        self._unguarded = {tool.name: tool for tool in tools}
        self._requester = requester
        self._session_id = ""
        self.tools = tuple(
            msgspec.structs.replace(tool, call=self._guarded(tool)) for tool in tools
        )

    def enter(self, session_id: str) -> None:
        """Note the session of the turn: calls may have been approved for all of it."""
        self._session_id = session_id

    async def find_asking(self, calls: Sequence[ToolCall]) -> list[ToolCall]:
        """Return the calls that a person has to approve before any of them runs.

        None if nobody can be asked: then each of them is declined when it is called. A call that
        would fail anyhow is not asked for: of an unknown tool, or with invalid arguments.
        """
        asking = []
        for call in calls if self._requester.asked_in is not None else ():
            tool, arguments = self._unguarded.get(call.name), arguments_of(call)
            if tool is None or arguments is None:
                continue
            if json_schema.find_violations(tool.parameters, arguments):
                continue
            if len(show_arguments(arguments)) > MAX_SHOWN:
                continue
            if await self._decide(tool, arguments) == "ask":
                asking.append(call)
        return asking

    async def suspend(
        self, turn: TurnControl, calls: Sequence[ToolCall], *, replaces: str | None
    ) -> None:
        """Store that the turn waits for an approval of these calls, and ask for it."""
        requester, minutes = self._requester, self._settings.minutes
        assert requester.asked_in is not None
        entries = await self._store.transcript(turn.session.id).entries(newest=_NEWEST)
        # Without the last entry, the step that asks: its calls have not run.
        is_once_only = has_foreign_content(newest_turn(entries[:-1]))
        requests = []
        for call in calls:
            code = pairing_code.new_code()
            arguments = show_arguments(arguments_of(call) or {})
            instructions = replies.approval_instructions(
                code, minutes=minutes, is_once_only=is_once_only
            )
            request = AskedCall(
                code=code,
                call=call,
                question=replies.approval_question(call.name, arguments),
                instructions=instructions,
                buttons=approval_buttons(code, is_once_only=is_once_only),
            )
            requests.append(request)
        await turn.suspend(
            Suspension(
                requests=tuple(requests),
                seconds=minutes * 60,
                requester=requester.person,
                is_once_only=is_once_only,
                target=requester.target,
                asked_in=requester.asked_in,
                replaces=replaces,
            )
        )

    @property
    def approved_tools(self) -> tuple[Tool, ...]:
        """The tools for calls that were approved: only a rule that denies still counts."""
        return tuple(
            msgspec.structs.replace(tool, call=self._guarded(tool, is_approved=True))
            for tool in self._unguarded.values()
        )

    def _guarded(
        self, tool: Tool, *, is_approved: bool = False
    ) -> Callable[[dict[str, Any]], Awaitable[Content]]:
        async def call(arguments: dict[str, Any]) -> Content:
            decision = await self._decide(tool, arguments)
            if decision == "deny":
                return declined_text(_DENIED)
            if decision == "ask" and not is_approved:
                return declined_text(self._refusal(arguments))
            return await tool.call(arguments)

        return call

    def _refusal(self, arguments: dict[str, Any]) -> str:
        if self._requester.asked_in is None:
            return _NOBODY
        return _TOO_LONG if len(show_arguments(arguments)) > MAX_SHOWN else _NOT_APPROVED

    async def _decide(self, tool: Tool, arguments: dict[str, Any]) -> Decision:
        role, rules = self._requester.role, self._settings.rules
        decision = decide(tool.name, arguments, role, rules, asks=tool.asks)
        if decision != "ask":
            return decision
        grants = await self._store.approvals.grants(
            self._requester.person, session_id=self._session_id
        )
        return "allow" if any(grant.covers(tool.name, arguments) for grant in grants) else "ask"

"""The road of a message. Read this first.

    receive → admit → inbox            then the platform is told "received"
    lane → turn → agent → outbox       in order for each conversation, one at a time
    deliver                            in order for each chat

Each station is a line here and a module beside this one. What is accepted is in the database before
anybody is told so; from then on any node can go on where another one stopped.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING

from tertulia import aio
from tertulia.agents.base import Agent, Tool
from tertulia.core.source import Source
from tertulia.errors import AgentError, BudgetExceeded, Conflict, Error, SessionBusy
from tertulia.gateway import (
    access,
    commands,
    replies,
    schedule_tool,
)
from tertulia.gateway.agent_turn import AgentTurn
from tertulia.gateway.interrupts import Interrupts
from tertulia.gateway.metrics import (
    Metrics,
    NullMetrics,
)
from tertulia.gateway.settings import GatewaySettings
from tertulia.platforms.base import Adapter, Incoming
from tertulia.records.people import Role
from tertulia.records.queues.inbox import InboxItem
from tertulia.records.turns.user_message import UserMessage

if TYPE_CHECKING:
    from tertulia.processes.registry import ProcessRegistry

log = logging.getLogger("tertulia.gateway")

_CUT_OFF = Error("The gateway stopped before this was answered.")
_BUG = Error("The gateway has a bug.", hint="Its log says where.")


class Pipeline:
    """The stations of one gateway."""

    def __init__(
        self,
        store: aio.Store,
        agent: Agent,
        adapters: Mapping[str, Adapter],
        rules: GatewaySettings,
        tools: tuple[Tool, ...] = (),
        processes: ProcessRegistry | None = None,
    ) -> None:
        self.store = store
        self.agent = agent
        self.adapters = adapters
        self.rules = rules
        self.tools = tools
        self.processes = processes
        self.interrupts = Interrupts(store, rules)
        self.metrics: Metrics = NullMetrics()

    # -- receive → admit → inbox

    async def receive(self, incoming: Incoming) -> None:
        """Accept a message. When this returns, it is stored, or it is none of ours."""
        command = commands.parse(incoming.text)
        verdict, arrival = await self.store.run_batched(self._admit, incoming, command)
        if arrival is not None and arrival.is_new:
            await self.interrupts.hear(arrival)
        elif verdict == "stranger":
            await self._offer_pairing(incoming)
        elif verdict == "welcome" and command is not None and command.is_immediate:
            await self._answer_at_once(incoming, command)

    def _admit(
        self, incoming: Incoming, command: commands.ParsedCommand | None
    ) -> tuple[access.Verdict, InboxItem | None]:
        """Who wrote, whether they are answered, and if they are, their message: one transaction."""
        role = self._role(incoming.source)
        verdict = access.decide(incoming, role, self.rules.of(incoming.source.platform))
        if verdict != "welcome" or (command is not None and command.is_immediate):
            return verdict, None
        return verdict, self.store.sync.inbox.put(
            incoming.source,
            incoming.text,
            # Without one of its own it could not be known again after a crash, nor be forgotten.
            message_id=incoming.message_id or uuid.uuid4().hex,
            media=incoming.media,
            gather_seconds=0 if command is not None else self.rules.gather_seconds,
        )

    def _role(self, source: Source) -> Role:
        stored = self.store.sync.people.role_of(source)
        return access.role_of(source, stored, self.rules.of(source.platform))

    async def _offer_pairing(self, incoming: Incoming) -> None:
        code = await self.store.people.ask(incoming.source)
        if code is not None:
            await self.store.outbox.put(
                replies.pairing(code), "origin", origin=incoming.source, delivery=f"pair:{code}"
            )

    async def _answer_at_once(self, incoming: Incoming, command: commands.ParsedCommand) -> None:
        """A question about the gateway itself does not wait for a turn to end."""
        reply = await self._command(incoming.source, command)
        name = UserMessage(incoming.source, None, incoming.message_id, ()).dedupe_key
        await self.store.outbox.put(
            reply.text, "origin", origin=incoming.source, session_id=reply.about,
            delivery=None if name is None else f"command:{name}",
        )  # fmt: skip

    # -- lane → turn → agent → outbox

    async def answer(self, arrival: InboxItem) -> None:
        """Answer what a lane has claimed; what becomes of it is written down in any case."""
        try:
            await self._answer(arrival)
        except asyncio.CancelledError:
            # The gateway stops: whoever starts next goes on with it, and need not wait.
            await asyncio.shield(self._later(arrival, _CUT_OFF, 0))
            raise
        except SessionBusy as problem:
            await self._later(arrival, problem, 0.5)
        except Conflict as problem:
            log.info("another node went on with %s: %s", arrival.id, problem.message)
        except Error as problem:
            log.warning("message %s was not answered: %s", arrival.id, problem)
            gives_up = arrival.attempts >= self.rules.tries and not problem.retryable
            await self._later(arrival, problem, 2.0**arrival.attempts, gives_up=gives_up)
        except Exception:
            log.exception("message %s was not answered", arrival.id)
            gives_up = arrival.attempts >= self.rules.tries
            await self._later(arrival, _BUG, 2.0**arrival.attempts, gives_up=gives_up)

    async def _answer(self, arrival: InboxItem) -> None:
        command = commands.parse(arrival.text)
        if arrival.attempts > self.rules.tries * 4:
            # It has ended every node that took it: one message must not end them all.
            await self._later(arrival, _CUT_OFF, 0, gives_up=True)
            return
        is_settled = False
        if command is None:
            said = UserMessage(arrival.source, arrival.text, None, arrival.media)
            is_settled = await self._converse(arrival, said)
        elif arrival.attempts > 1 and not command.is_repeatable:
            # A node was lost in the middle of it: what has run is not run again by itself.
            await self._reply(arrival, replies.interrupted(command.name))
        else:
            reply = await self._command(arrival.source, command)
            if reply.text:
                await self._reply(arrival, reply.text, about=reply.about)
            if reply.again is not None:
                is_settled = await self._converse(arrival, reply.again)
        if not is_settled:
            await self.store.inbox.done(arrival)

    async def _command(
        self, source: Source, command: commands.ParsedCommand
    ) -> commands.CommandReply:
        role = await self.store.run_batched(self._role, source)
        place = commands.CommandContext(self.store.sync, source, self.rules, role)
        return await asyncio.to_thread(commands.run, place, command)

    async def _converse(self, arrival: InboxItem, said: UserMessage) -> bool:
        """Have it answered in a turn; whether the answer has settled it too."""
        adapter = self.adapters.get(arrival.source.platform)
        tools = await self.tools_for(arrival.source, arrival.key)
        exchange = AgentTurn(
            self.store, self.agent, adapter, self.rules, tools, metrics=self.metrics
        )
        turn = self.store.turn_control(
            arrival.source,
            said.text,
            message_id=arrival.message_id,
            media=said.media,
            wait=self.store.settings.lease_seconds,
        )
        try:
            async with turn:
                if not turn.duplicate:
                    turn.sync.inbox_item = arrival
                    with self.interrupts.turn(arrival.key) as signals:
                        await exchange.run(turn, signals, arrival, said.text or "")
        except BudgetExceeded as refusal:
            await self._reply(arrival, replies.refused(refusal))
        except AgentError as problem:
            log.warning("the agent did not answer message %s: %s", arrival.id, problem)
            if turn.answer is None:
                await self._reply(arrival, replies.failed(problem), about=turn.session.id)
        if turn.is_interrupted:
            await self._reply(arrival, replies.CUT_OFF, about=turn.session.id)
        return turn.sync.has_settled_item

    async def tools_for(
        self, source: Source, key: str, *, may_plan: bool = True
    ) -> tuple[Tool, ...]:
        """What the agent may do for whoever wrote."""
        role = await self.store.run_batched(self._role, source)
        found = self.tools
        if may_plan:
            found += schedule_tool.tools(self.store, source, role)
        if self.processes is None:
            return found
        from tertulia.processes.agent_tools import tools_for  # which needs a Unix

        # Where nothing can be sent to, news of a program stand in the conversation.
        origin = source if source.platform in self.adapters else None
        return (*found, *tools_for(self.processes, origin, key, role))

    async def _reply(self, arrival: InboxItem, text: str, about: str | None = None) -> None:
        """Said by the gateway, not by the agent; once, however often the message is tried."""
        await self.store.outbox.put(
            text, "origin", origin=arrival.source, session_id=about,
            delivery=replies.reply_key(arrival),
        )  # fmt: skip

    async def _later(
        self, arrival: InboxItem, problem: Error, seconds: float, *, gives_up: bool = False
    ) -> None:
        try:
            if gives_up:
                await self._reply(arrival, replies.given_up(problem))
            await self.store.inbox.failed(
                arrival, problem.message, retry_after=min(seconds, 60), for_good=gives_up
            )
        except Error as again:
            # The claim runs out, and then some node tries again.
            log.warning("message %s could not be put back: %s", arrival.id, again)

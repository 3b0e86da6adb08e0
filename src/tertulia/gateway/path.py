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
from collections.abc import Mapping

from tertulia import aio
from tertulia.agents.base import Agent, Tool
from tertulia.core.source import Source
from tertulia.errors import AgentError, BudgetExceeded, Conflict, Error, SessionBusy
from tertulia.gateway import admit, commands, words
from tertulia.gateway.exchange import Exchange, Running
from tertulia.gateway.meter import Meter, Unmetered
from tertulia.gateway.rules import Rules
from tertulia.platforms.base import Adapter, Incoming
from tertulia.records.inbox import Arrival

log = logging.getLogger("tertulia.gateway")

# Nobody waits here for long: the lane itself sees to it that only one turn comes at a time.
_WAIT_SECONDS = 10.0


class Path:
    """The stations of one gateway."""

    def __init__(
        self,
        store: aio.Store,
        agent: Agent,
        adapters: Mapping[str, Adapter],
        rules: Rules,
        tools: tuple[Tool, ...] = (),
    ) -> None:
        self.store = store
        self.agent = agent
        self.adapters = adapters
        self.rules = rules
        self.tools = tools
        self.running = Running()
        self.meter: Meter = Unmetered()

    # -- receive → admit → inbox

    async def receive(self, incoming: Incoming) -> None:
        """Accept a message. When this returns, it is stored, or it is none of ours."""
        verdict = await self._admit(incoming)
        if verdict == "stranger":
            await self._offer_pairing(incoming)
        elif verdict == "welcome":
            command = commands.parse(incoming.text)
            if command is not None and command.is_immediate:
                await self._answer_at_once(incoming, command)
            else:
                await self._accept(incoming, is_command=command is not None)

    async def _admit(self, incoming: Incoming) -> admit.Verdict:
        rules = self.rules.of(incoming.source.platform)
        role = await self.store.people.role_of(incoming.source)
        if role == "guest" and admit.is_owner(incoming, rules):
            await self.store.people.meet(incoming.source, role="owner")
            role = "owner"
        return admit.decide(incoming, role, rules)

    async def _accept(self, incoming: Incoming, *, is_command: bool) -> None:
        await self.store.inbox.put(
            incoming.source,
            incoming.text,
            message_id=incoming.message_id,
            media=incoming.media,
            gather_seconds=0 if is_command else self.rules.gather_seconds,
        )

    async def _offer_pairing(self, incoming: Incoming) -> None:
        code = await self.store.people.ask(incoming.source)
        if code is not None:
            await self._say(incoming, words.pairing(code), f"pair:{code}")

    async def _answer_at_once(self, incoming: Incoming, command: commands.Asked) -> None:
        """A question about the gateway itself does not wait for a turn to end."""
        reply = await self._command(incoming.source, command)
        name = f"{incoming.source.platform}:{incoming.source.chat_id}:{incoming.message_id}"
        await self._say(incoming, reply.text, f"command:{name}" if incoming.message_id else None)

    async def _say(self, incoming: Incoming, text: str, delivery: str | None) -> None:
        await self.store.outbox.put(text, "origin", origin=incoming.source, delivery=delivery)

    # -- lane → turn → agent → outbox

    async def answer(self, arrival: Arrival) -> None:
        """Answer what a lane has claimed; what becomes of it is written down in any case."""
        try:
            await self._answer(arrival)
        except SessionBusy as problem:
            await self._later(arrival, problem, 0.5)
        except Conflict as problem:
            log.info("another node went on with %s: %s", arrival.id, problem.message)
        except Error as problem:
            log.warning("message %s was not answered: %s", arrival.id, problem)
            await self._later(arrival, problem, 2.0**arrival.attempts)

    async def _answer(self, arrival: Arrival) -> None:
        command = commands.parse(arrival.text)
        if command is None:
            await self._converse(arrival)
        elif arrival.attempts > 1 and not command.is_repeatable:
            # A node was lost in the middle of it: what has run is not run again by itself.
            await self._reply(arrival, words.interrupted(command.name))
        else:
            reply = await self._command(arrival.source, command)
            if reply.text:
                await self._reply(arrival, reply.text)
            if reply.again is not None:
                await self._converse(arrival, text=reply.again)
        await self.store.inbox.done(arrival)

    async def _command(self, source: Source, command: commands.Asked) -> commands.Reply:
        place = commands.Place(self.store.sync, source, self.rules, self.running)
        return await asyncio.to_thread(commands.run, place, command)

    async def _converse(self, arrival: Arrival, text: str | None = None) -> None:
        exchange = Exchange(
            self.store, self.agent, self.adapters.get(arrival.source.platform), self.rules,
            self.tools, meter=self.meter,
        )  # fmt: skip
        said = arrival.text if text is None else text
        turn = self.store.turn(
            arrival.source,
            said,
            message_id=arrival.message_id,
            media=arrival.media,
            wait=_WAIT_SECONDS,
        )
        try:
            async with turn:
                if not turn.duplicate:
                    with self.running.of(arrival.key) as signals:
                        await exchange.run(turn, signals, arrival, said or "")
        except BudgetExceeded as refusal:
            await self._reply(arrival, words.refused(refusal))
        except AgentError as problem:
            await self._reply(arrival, words.failed(problem))

    async def _reply(self, arrival: Arrival, text: str) -> None:
        """Said by the gateway, not by the agent; once, however often the message is tried."""
        await self.store.outbox.put(
            text, "origin", origin=arrival.source, delivery=f"reply:{arrival.id}"
        )

    async def _later(self, arrival: Arrival, problem: Error, seconds: float) -> None:
        gives_up = arrival.attempts >= self.rules.tries and not isinstance(problem, SessionBusy)
        try:
            if gives_up:
                await self._reply(arrival, words.given_up(problem))
            await self.store.inbox.failed(
                arrival, problem.message, retry_after=min(seconds, 60), for_good=gives_up
            )
        except Error as again:
            # The claim runs out, and then some node tries again.
            log.warning("message %s could not be put back: %s", arrival.id, again)

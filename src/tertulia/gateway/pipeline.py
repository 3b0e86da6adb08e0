"""The way of a message through the gateway, from top to bottom. Read this module first.

    listen → receive → admit → enqueue    then the adapter tells the platform "received"
    claim → answer → turn → agent         one turn at a time for each conversation, in order
    deliver                               one message at a time for each chat, in order

`start` starts the loops: `listen` once for each adapter, `claim_messages`, `claim_schedule_runs`
and `deliver`. Nothing else calls the stations, except that `Responder` (`request_reply.py`) runs
turns for callers who wait for the answer.

A message is committed to the database before the platform is told that it was received. From then
on any node can continue it: inbox items and deliveries are claimed for a limited time, and a claim
that is not renewed expires by the clock of the database. This holds on SQLite, where the nodes are
processes on one machine, and on PostgreSQL, where they may run on many.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from typing import TYPE_CHECKING, NamedTuple

from tertulia import aio
from tertulia.agents.base import Agent, Tool
from tertulia.aio.turn import TurnControl
from tertulia.core.backoff import Backoff
from tertulia.core.source import LOCAL, Source
from tertulia.errors import AgentError, BudgetExceeded, Error
from tertulia.gateway import access, commands, replies, schedule_tool
from tertulia.gateway.adapters import Adapters
from tertulia.gateway.agent_turn import AgentTurn, MessageToAnswer
from tertulia.gateway.deliveries import DeliveryWorker
from tertulia.gateway.inbox_worker import InboxWorker
from tertulia.gateway.interrupts import Interrupts
from tertulia.gateway.metrics import Metrics, NullMetrics
from tertulia.gateway.retries import STOPPED, Retries
from tertulia.gateway.schedule_runner import MAX_RUNS, ScheduleRunner
from tertulia.gateway.settings import GatewaySettings
from tertulia.gateway.turn_slots import TurnSlots
from tertulia.gateway.workers import Worker
from tertulia.platforms.base import Adapter, Incoming, Update
from tertulia.platforms.settings import PlatformSettings
from tertulia.records.people import Role
from tertulia.records.queues.inbox import InboxItem
from tertulia.records.turns.user_message import UserMessage

if TYPE_CHECKING:
    from tertulia.gateway.request_reply import Responder
    from tertulia.processes.registry import ProcessRegistry

log = logging.getLogger("tertulia.gateway")

_LISTEN_RETRY_SECONDS = 5.0


class PipelineTasks(NamedTuple):
    """The running loops of a pipeline, grouped in the order in which they are stopped."""

    listeners: list[asyncio.Task[None]]
    claims: list[asyncio.Task[None]]
    deliveries: asyncio.Task[None]
    interrupts: asyncio.Task[None]
    renewals: list[asyncio.Task[None]]

    @property
    def endless(self) -> list[asyncio.Task[None]]:
        """Return the loops that end only by a failure; an adapter may stop listening by itself."""
        return [*self.claims, self.deliveries, self.interrupts, *self.renewals]


class Pipeline:
    """The stations of one gateway and the loops that drive them."""

    def __init__(
        self,
        store: aio.Store,
        agent: Agent,
        adapters: Adapters,
        settings: GatewaySettings,
        tools: tuple[Tool, ...] = (),
        processes: ProcessRegistry | None = None,
        folder: str | None = None,
    ) -> None:
        self.store = store
        self.agent = agent
        self.adapters = adapters
        self.settings = settings
        self.tools = tools
        self.processes = processes
        self.token_roles = settings.token_roles
        self.interrupts = Interrupts(store, settings)
        self.metrics: Metrics = NullMetrics()
        lease = store.settings.lease_seconds
        self._retries = Retries(
            "message",
            store.inbox,
            gives_up=self._gives_up,
            report=self._report_given_up,
            backoff=Backoff(first=2, longest=60),
            busy_seconds=0.5,
        )
        self.slots = TurnSlots(settings.turns, settings.turns_per_person)
        self.responders: list[Responder] = []
        self.inbox_worker = InboxWorker(store, self.answer, self.slots)
        run = ScheduleRunner(self, adapters, folder).run
        self.schedule_worker = Worker("schedule", store.schedules, run, MAX_RUNS, lease=lease)
        self.delivery_worker = DeliveryWorker(store, adapters, settings.sends)

    def start(self) -> PipelineTasks:
        """Start every loop as a task of its own; each one runs until it is cancelled."""
        start = asyncio.create_task
        workers = (self.inbox_worker, self.schedule_worker, self.delivery_worker)
        return PipelineTasks(
            listeners=[start(self.listen(adapter)) for adapter in self.adapters.values()],
            claims=[start(self.claim_messages()), start(self.claim_schedule_runs())],
            deliveries=start(self.deliver()),
            interrupts=start(self.interrupts.run()),
            renewals=[start(worker.renew_claims()) for worker in workers],
        )

    # -- receive: an adapter hands over a message

    async def listen(self, adapter: Adapter) -> None:
        """Let an adapter listen; if it fails, listen again, so that no adapter ends the others."""
        has_menu = False
        while True:
            try:
                if not has_menu:
                    await adapter.fill_menu(commands.menu())
                    has_menu = True
                await adapter.listen(self.receive)
            except Error as problem:
                log.warning(
                    "%s stopped listening, retrying in %g s: %s",
                    adapter.name, _LISTEN_RETRY_SECONDS, problem,
                )  # fmt: skip
            except Exception:
                log.exception(
                    "the adapter of %s has a bug, retrying in %g s",
                    adapter.name, _LISTEN_RETRY_SECONDS,
                )  # fmt: skip
            else:
                return
            await asyncio.sleep(_LISTEN_RETRY_SECONDS)

    async def receive(self, update: Update) -> None:
        """Accept an update: when this returns, it is stored, or it needs no answer in a turn.

        Raises the store's error if it could not be stored; then the adapter does not tell the
        platform "received", and the platform sends the update again.
        """
        if isinstance(update, Incoming):
            await self._receive_message(update)

    async def _receive_message(self, incoming: Incoming) -> None:
        command = commands.parse(incoming.text)
        verdict, item = await self.store.run_batched(self._accept, incoming, command)
        if item is not None and item.is_new:
            await self.interrupts.notice(item)
        elif verdict == "stranger":
            await self._offer_pairing(incoming)
        elif verdict == "welcome" and command is not None and command.is_immediate:
            await self._answer_at_once(incoming, command)

    def _accept(
        self, incoming: Incoming, command: commands.ParsedCommand | None
    ) -> tuple[access.Verdict, InboxItem | None]:
        """Admit a message and put it into the inbox, in one transaction."""
        verdict = self._admit(incoming)
        if verdict != "welcome" or (command is not None and command.is_immediate):
            return verdict, None
        return verdict, self._enqueue(incoming, command)

    # -- admit: decide whether the message is answered

    def _admit(self, incoming: Incoming) -> access.Verdict:
        role = self._role(incoming.source)
        return access.decide(incoming, role, self._settings_of(incoming.source))

    def _role(self, source: Source) -> Role:
        stored = self.store.sync.people.role_of(source)
        return access.role_of(source, stored, self._settings_of(source), self.token_roles)

    def _tool_role(self, source: Source) -> Role:
        """Return the lowest role of the chats that share a source's conversation.

        The agent reads what all of them wrote, so none may lend its tools to another.
        """
        chats = self.store.sync.people.linked_chats(source)
        linked = [self._role(chat.source) for chat in chats if chat.source is not None]
        return access.lowest([self._role(source), *linked])

    async def role_of_creator(self, origin: Source) -> Role | None:
        """Return the role of a schedule's creator now, or None if they may no longer write."""
        role = await self.store.run_batched(self._role, origin)
        incoming = Incoming(source=origin, text=None, is_addressed=True)
        verdict = access.decide(incoming, role, self._settings_of(origin))
        is_allowed = verdict == "welcome" and access.has_token(origin, self.token_roles)
        return role if is_allowed else None

    def _settings_of(self, source: Source) -> PlatformSettings:
        return self.settings.of(source.platform, source.account)

    async def _offer_pairing(self, incoming: Incoming) -> None:
        """Send a pairing code to an unknown person, unless there were too many requests lately."""
        code = await self.store.people.request_pairing(incoming.source)
        if code is not None:
            await self.store.outbox.put(
                replies.pairing(code), "origin", origin=incoming.source, delivery=f"pair:{code}"
            )

    async def _answer_at_once(self, incoming: Incoming, command: commands.ParsedCommand) -> None:
        """Answer a command that only reads, without waiting for the turn in progress to end."""
        reply = await self._run_command(incoming.source, command)
        dedupe_key = UserMessage(incoming.source, None, incoming.message_id, ()).dedupe_key
        await self.store.outbox.put(
            reply.text, "origin", origin=incoming.source, session_id=reply.about,
            delivery=None if dedupe_key is None else f"command:{dedupe_key}",
        )  # fmt: skip

    # -- enqueue: put the message into the inbox

    def _enqueue(self, incoming: Incoming, command: commands.ParsedCommand | None) -> InboxItem:
        return self.store.sync.inbox.put(
            incoming.source,
            incoming.text,
            # Without an id it could not be recognised after a crash, nor be deleted with the rest.
            message_id=incoming.message_id or uuid.uuid4().hex,
            media=[media.to_dict() for media in incoming.media],
            gather_seconds=0 if command is not None else self.settings.gather_seconds,
        )

    # -- claim: take items from the queues; each becomes a task

    async def claim_messages(self) -> None:
        """Claim inbox items until cancelled; the worker calls `answer` for each of them."""
        while True:
            await self.inbox_worker.claim_and_start()

    async def claim_schedule_runs(self) -> None:
        """Claim due schedule runs until cancelled; the worker calls `ScheduleRunner.run`."""
        while True:
            await self.schedule_worker.claim_and_start()

    async def answer(self, item: InboxItem) -> None:
        """Answer a claimed message, and store the outcome whatever happens."""
        await self._retries.run(item, self._answer)

    async def _answer(self, item: InboxItem) -> None:
        """Run the command or the turn of a claimed message, then mark the message done."""
        command = commands.parse(item.text)
        if item.attempts > self.settings.tries * 4:
            # Every node that claimed it has died: one message must not end all nodes.
            await self._retries.give_up(item, STOPPED)
            return
        is_settled = False
        if command is None:
            message = UserMessage(item.source, item.text, None, item.media)
            is_settled = await self._run_turn(item, message)
        elif item.attempts > 1 and not command.is_repeatable:
            # A node was lost while it ran the command: do not run it a second time.
            await self._reply(item, replies.interrupted(command.name))
        else:
            reply = await self._run_command(item.source, command)
            if reply.text:
                await self._reply(item, reply.text, about=reply.about)
            if reply.again is not None:
                is_settled = await self._run_turn(item, reply.again)
        if not is_settled:
            await self.store.inbox.done(item)

    async def _run_command(
        self, source: Source, command: commands.ParsedCommand
    ) -> commands.CommandReply:
        role = await self.store.run_batched(self._role, source)
        context = commands.CommandContext(self.store.sync, source, self.settings, role)
        return await asyncio.to_thread(commands.run, context, command)

    def _gives_up(self, item: InboxItem, problem: Error) -> bool:
        return item.attempts >= self.settings.tries and not problem.retryable

    async def _report_given_up(self, item: InboxItem, problem: Error) -> None:
        await self._reply(item, replies.given_up(problem), key=replies.failure_key(item))

    # -- turn: open the session under its lease, and store what the agent answers

    async def _run_turn(self, item: InboxItem, message: UserMessage) -> bool:
        """Answer a message in a turn; return whether the answer settled the inbox item too."""
        agent_turn = await self._agent_turn(item)
        turn = self.store.turn_control(
            item.source,
            message.text,
            message_id=item.message_id,
            media=message.media,
            wait=self.store.settings.lease_seconds,
            inbox_item=item,
        )
        try:
            async with turn:
                if not turn.duplicate:
                    await self._run_agent(agent_turn, turn, item, message.text or "")
        except BudgetExceeded as refusal:
            await self._reply(item, replies.refused(refusal), key=replies.refusal_key(item))
        except AgentError as problem:
            log.warning("the agent did not answer message %s: %s", item.id, problem)
            if turn.answer is None:
                # The person at the terminal of this machine is the owner, who can repair it.
                is_owner = item.source.platform == LOCAL
                text = (replies.failed_for_owner if is_owner else replies.failed)(problem)
                key = replies.failure_key(item)
                await self._reply(item, text, about=turn.session.id, key=key)
        if turn.is_interrupted:
            await self._reply(item, replies.CUT_OFF, about=turn.session.id)
        return turn.has_settled_item

    # -- agent: have the message answered; each event is stored before the next is requested

    async def _run_agent(
        self, agent_turn: AgentTurn, turn: TurnControl, item: InboxItem, text: str
    ) -> None:
        """Run the agent; the answer goes into the transcript and the outbox in one transaction."""
        message = MessageToAnswer(
            source=item.source,
            text=text,
            key=item.key,
            update_id=str(item.id),
            is_retry=item.attempts > 1,
        )
        with self.interrupts.turn(item.key) as signals:
            await agent_turn.run(turn, signals, message)

    async def _agent_turn(self, item: InboxItem) -> AgentTurn:
        adapter = self.adapters.of(item.source.platform, item.source.account)
        tools = await self.tools_for(item.source, item.key)
        return AgentTurn(
            self.store, self.agent, adapter, self.settings, tools, metrics=self.metrics
        )

    async def tools_for(
        self, source: Source, key: str, *, can_schedule: bool = True
    ) -> tuple[Tool, ...]:
        """Return the tools that the agent may call for the person who wrote."""
        role = await self.store.run_batched(self._tool_role, source)
        tools = self.tools
        if can_schedule:
            tools += schedule_tool.tools(self.store, source, role)
        if self.processes is None:
            return tools
        from tertulia.processes.agent_tools import tools_for  # needs a Unix

        # Without an adapter nothing can be sent to the chat: then news of a program go into the
        # conversation.
        origin = source if self.adapters.serves(source) else None
        return (*tools, *tools_for(self.processes, origin, key, role))

    # -- deliver: send what is in the outbox

    async def _reply(
        self, item: InboxItem, text: str, about: str | None = None, key: str | None = None
    ) -> None:
        """Put a text of the gateway itself into the outbox, once for all tries of a message."""
        await self.store.outbox.put(
            text, "origin", origin=item.source, session_id=about,
            delivery=key or replies.reply_key(item),
        )  # fmt: skip

    async def deliver(self) -> None:
        """Claim due deliveries until cancelled; the worker calls `Adapter.send` for each."""
        while True:
            await self.delivery_worker.claim_and_start()

"""The path of a message through the gateway, step by step. Read this module first.

    listen → receive → admit → enqueue    then the adapter tells the platform "received"
    claim → answer → turn → agent         one turn at a time for each conversation, in order
    deliver                               one message at a time for each chat, in order

`start` starts the loops: `listen` once for each adapter, `claim_messages`, `claim_schedule_runs`
and `deliver`. No other code calls these steps, except `Responder` (`request_reply.py`), which runs
turns for callers that wait for the answer.

A message is committed to the database before the platform is told that it was received. From then
on any node can continue it: inbox items and deliveries are claimed for a limited time, and a claim
that is not renewed expires by the clock of the database. This holds on SQLite, where the nodes are
processes on one machine, and on PostgreSQL, where they may run on many.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec

from tertulia import aio
from tertulia.agents.base import Agent, Tool, traits_of
from tertulia.aio.turn import TurnControl
from tertulia.core.buttons import command_of
from tertulia.core.memory import Memory
from tertulia.core.message import USER, text_of
from tertulia.core.session import Session
from tertulia.core.source import LOCAL, Source
from tertulia.core.target import ORIGIN
from tertulia.errors import AgentError, BudgetExceeded, Error, LimitExceeded, TooLarge
from tertulia.gateway import access, commands, memory_tool, replies, schedule_tool
from tertulia.gateway.account_pauses import AccountPauses
from tertulia.gateway.adapters import Adapters
from tertulia.gateway.agent_table import AgentTable
from tertulia.gateway.agent_turn import AgentTurn, MessageToAnswer, shows_memories
from tertulia.gateway.deliveries import DeliveryWorker
from tertulia.gateway.image_describer import ImageDescriber
from tertulia.gateway.inbox_worker import InboxWorker
from tertulia.gateway.intake_limits import IntakeLimits
from tertulia.gateway.interrupts import Interrupts
from tertulia.gateway.listening import AccountListener, ConnectionReporter, node_name
from tertulia.gateway.media_fetcher import MediaFetcher
from tertulia.gateway.media_preparer import MediaPreparer, NoTranscription, PreparedMessage
from tertulia.gateway.metrics import Metrics, NullMetrics
from tertulia.gateway.retries import MESSAGE_BACKOFF, STOPPED, Retries
from tertulia.gateway.schedule_runner import MAX_RUNS, ScheduleRunner
from tertulia.gateway.settings import GatewaySettings
from tertulia.gateway.tool_guard import Requester, ToolGuard
from tertulia.gateway.turn_slots import TurnSlots
from tertulia.gateway.workers import Worker
from tertulia.platforms import registry
from tertulia.platforms.base import (
    COMMAND_KEY,
    Adapter,
    Changed,
    Incoming,
    Pressed,
    Settled,
    Update,
)
from tertulia.platforms.settings import PlatformSettings
from tertulia.records.people import Role
from tertulia.records.queues.inbox import InboxItem, claim_person
from tertulia.records.turns.user_message import UserMessage
from tertulia.version import __version__

if TYPE_CHECKING:
    from tertulia.gateway.request_reply import Responder
    from tertulia.mcp.servers import McpServers
    from tertulia.processes.registry import ProcessRegistry

log = logging.getLogger("tertulia.gateway")

U = TypeVar("U", Incoming, Changed)

_NEWEST = 200  # messages in which the text of a turn that continues is looked for
_ALBUM_SECONDS = 1.5  # between two messages of an album


class PipelineTasks(NamedTuple):
    """The running loops of a pipeline, grouped in the order in which they are stopped."""

    listeners: list[asyncio.Task[None]]
    claims: list[asyncio.Task[None]]
    deliveries: asyncio.Task[None]
    interrupts: asyncio.Task[None]
    renewals: list[asyncio.Task[None]]
    reporter: asyncio.Task[None]

    @property
    def endless(self) -> list[asyncio.Task[None]]:
        """Return the loops that end only by a failure; an adapter may stop listening by itself."""
        return [*self.claims, self.deliveries, self.interrupts, *self.renewals]


class EntryReads:
    """Data that a turn reads in addition to its session; the fields are set when it has begun."""

    role: Role = "guest"
    memories: Sequence[Memory] = ()


class Pipeline:
    """The stations of one gateway and the loops that drive them."""

    def __init__(
        self,
        store: aio.Store,
        agents: AgentTable,
        adapters: Adapters,
        settings: GatewaySettings,
        tools: tuple[Tool, ...] = (),
        processes: ProcessRegistry | None = None,
        folder: str | None = None,
        describer: ImageDescriber | None = None,
        mcp: McpServers | None = None,
    ) -> None:
        self.store = store
        self.agents = agents
        self.adapters = adapters
        self.settings = settings
        self.tools = tools
        self.processes = processes
        self.mcp = mcp
        self.token_roles = settings.token_roles
        self.interrupts = Interrupts(store, settings)
        self.metrics: Metrics = NullMetrics()
        lease = store.settings.lease_seconds
        self._retries = Retries(
            "message",
            store.inbox,
            gives_up=self._gives_up,
            report=self._report_given_up,
            backoff=MESSAGE_BACKOFF,
            busy_seconds=0.5,
        )
        self._intake = IntakeLimits(settings)
        self.slots = TurnSlots(settings.turns, settings.turns_per_person)
        self.responders: list[Responder] = []
        self.node = node_name()
        self.inbox_worker = InboxWorker(store, self.answer, self.slots, node=self.node)
        run = ScheduleRunner(self, adapters, folder).run
        self.schedule_worker = Worker("schedule", store.schedules, run, MAX_RUNS, lease=lease)
        self.media_fetcher = MediaFetcher(store, adapters, settings)
        self.media_preparer = MediaPreparer(store, settings.media)
        self.describer = describer
        self.pauses = AccountPauses()
        self.delivery_worker = DeliveryWorker(store, adapters, settings, self.pauses)
        self.reporter = ConnectionReporter(
            store, [*adapters.values()], node=self.node, pauses=self.pauses,
            count_turns=lambda: sum(self.slots.running.values()),
        )  # fmt: skip

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
            reporter=start(self.reporter.run()),
        )

    # -- receive: an adapter hands over a message

    async def listen(self, adapter: Adapter) -> None:
        """Let an adapter listen; if it fails, listen again, so that no adapter ends the others."""
        if adapter.name == LOCAL:
            await self._serve_terminal()
        listener = AccountListener(
            self.store, adapter, self.receive, node=self.node, pauses=self.pauses,
            menu=commands.menu(),
        )  # fmt: skip
        await listener.run()

    async def _serve_terminal(self) -> None:
        """Let only this node answer the messages that are typed in its terminal."""
        try:
            await self.store.nodes.serve_terminal(self.node, version=__version__)
        except Error as problem:
            log.warning("the terminal shares its messages with other nodes: %s", problem)

    async def receive(self, update: Update) -> None:
        """Accept an update: when this returns, it is stored, or it needs no answer in a turn.

        Raises the store's error if it could not be stored; then the adapter does not tell the
        platform "received", and the platform sends the update again.
        """
        match update:
            case Incoming():
                await self._receive_message(await self._with_agent(update))
            case Changed():
                await self._receive_change(await self._with_agent(update))
            case Settled():
                await self._receive_outcome(update)
            case Pressed():
                await self._receive_press(update)

    async def _with_agent(self, update: U) -> U:
        """Return an update whose source names the agent that answers there now."""
        if not self.store.settings.agents:
            return update
        source = await self.store.agent_choices.resolve(update.source)
        return msgspec.structs.replace(update, source=source)

    async def _receive_change(self, change: Changed) -> None:
        """Change or withdraw a message that still waits; afterwards nothing happens."""
        if change.kind == "edited":
            media = None if change.media is None else [file.to_dict() for file in change.media]
            await self.store.inbox.edit(change.source, change.message_id, change.text, media=media)
        elif change.kind == "deleted":
            await self.store.inbox.withdraw(change.source, change.message_id)

    async def _receive_outcome(self, outcome: Settled) -> None:
        """Store the late outcome of a delivery."""
        delivery = await self.store.outbox.settle_late(
            outcome.delivery,
            is_sent=outcome.is_sent,
            message_id=outcome.message_id,
            problem=outcome.problem,
        )
        if delivery is not None and delivery.state == "dead":
            log.warning("delivery %s failed after it was sent: %s", delivery.id, outcome.problem)

    async def _receive_press(self, press: Pressed) -> None:
        """Accept the command of a button as if the person who pressed it had typed the command."""
        text = command_of(press.value)
        if text is None:
            log.warning("a press in %s was not understood and is skipped", press.source.platform)
            return
        message_id = f"press-{press.press_id}"
        incoming = Incoming(source=press.source, text=text, message_id=message_id)
        await self._receive_message(await self._with_agent(incoming))

    async def _receive_message(self, incoming: Incoming) -> None:
        command = commands.parse(incoming.text)
        try:
            verdict, item = await self.store.run_batched(self._accept, incoming, command)
        except (LimitExceeded, TooLarge) as problem:
            await self._refuse(incoming, problem)
            return
        if item is not None and item.is_new:
            await self.interrupts.notice(item)
        elif verdict == "stranger":
            await self._offer_pairing(incoming)
        elif verdict == "welcome" and command is not None and command.is_immediate:
            await self._answer_at_once(incoming, command)

    def _accept(
        self, incoming: Incoming, command: commands.ParsedCommand | None
    ) -> tuple[access.Verdict, InboxItem | None]:
        """Admit a message and put it into the inbox, in one transaction.

        Raises `LimitExceeded` or `TooLarge` for a message beyond a limit.
        """
        role = self._role(incoming.source)
        verdict = access.decide(incoming, role, self._settings_of(incoming.source))
        if verdict == "welcome" and incoming.is_bot and not self._admit_bot(incoming):
            return "ignored", None
        if verdict != "welcome":
            return verdict, None
        is_immediate = command is not None and command.is_immediate
        self._intake.check(incoming, role, is_immediate=is_immediate)
        return verdict, None if is_immediate else self._enqueue(incoming, command)

    async def _refuse(self, incoming: Incoming, problem: LimitExceeded | TooLarge) -> None:
        """Tell the sender of a message beyond a limit, and take no notice of it otherwise.

        An adapter whose sender waits for an answer passes the error on; else one sentence goes to
        the chat, once in a while.
        """
        source = incoming.source
        adapter = self.adapters.of(source.platform, source.account)
        if adapter is not None and adapter.refuses_senders:
            raise problem
        log.warning("message of %s refused: %s", source.platform, problem.code)
        if self._intake.may_tell(incoming, problem):
            await self.store.outbox.put(
                str(problem), "origin", origin=source, delivery=replies.notice_key(),
                is_plain=True,
            )  # fmt: skip

    # -- admit: decide whether the message is answered

    def _admit_bot(self, incoming: Incoming) -> bool:
        """Count a message of a program, so that two of them do not answer each other for ever."""
        message_id = incoming.message_id or uuid.uuid4().hex
        is_admitted = self.store.sync.listeners.admit_bot(incoming.source, message_id)
        if not is_admitted:
            log.warning("a chat of %s had too many messages of bots", incoming.source.platform)
        return is_admitted

    def _role(self, source: Source) -> Role:
        return self._effective_role(source, self.store.sync.people.role_of(source))

    def _effective_role(self, source: Source, stored: Role) -> Role:
        return access.role_of(source, stored, self._settings_of(source), self.token_roles)

    def _tool_role(self, source: Source) -> Role:
        """Return the lowest role of the chats that share a source's conversation.

        The agent reads what all of them wrote, so none may lend its tools to another.
        """
        stored, chats = self.store.sync.people.role_and_links(source)
        linked = [self._role(chat.source) for chat in chats if chat.source is not None]
        return access.lowest([self._effective_role(source, stored), *linked])

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
                replies.pairing(code), "origin", origin=incoming.source,
                delivery=f"pair:{code}", is_plain=True,
            )  # fmt: skip

    async def _answer_at_once(self, incoming: Incoming, command: commands.ParsedCommand) -> None:
        """Answer a command that only reads, without waiting for the turn in progress to end."""
        reply = await self._run_command(incoming.source, command)
        dedupe_key = UserMessage(incoming.source, None, incoming.message_id, ()).dedupe_key
        await self.store.outbox.put(
            reply.text, "origin", origin=incoming.source, session_id=reply.about, is_plain=True,
            delivery=f"{COMMAND_KEY}{dedupe_key or uuid.uuid4().hex}",
        )  # fmt: skip

    # -- enqueue: put the message into the inbox

    def _enqueue(self, incoming: Incoming, command: commands.ParsedCommand | None) -> InboxItem:
        return self.store.sync.inbox.put(
            incoming.source,
            incoming.text,
            # Without an id it could not be recognised after a crash, nor be deleted with the rest.
            message_id=incoming.message_id or uuid.uuid4().hex,
            media=[media.to_dict() for media in incoming.media],
            gather_seconds=0 if command is not None else self._gather_seconds(incoming),
            group=incoming.group,
            waiting_limit=self.settings.waiting_per_person,
        )

    def _gather_seconds(self, incoming: Incoming) -> float:
        """Return how long the message waits for others: an album comes in several messages."""
        seconds = self.settings.gather_seconds
        return seconds if incoming.group is None else max(seconds, _ALBUM_SECONDS)

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
        if item.resumes is not None:
            is_settled = await self._run_turn(item, UserMessage(item.source, None, None, ()))
        elif command is None:
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
        context = commands.CommandContext(self.store.sync, source, self.settings, role, self.agents)
        return await asyncio.to_thread(commands.run, context, command)

    def _gives_up(self, item: InboxItem, problem: Error) -> bool:
        return item.attempts >= self.settings.tries and not problem.retryable

    async def _report_given_up(self, item: InboxItem, problem: Error) -> None:
        await self._reply(item, replies.given_up(problem), key=replies.failure_key(item))

    # -- turn: open the session under its lease, and store what the agent answers

    async def _run_turn(self, item: InboxItem, message: UserMessage) -> bool:
        """Answer a message in a turn; return whether the answer settled the inbox item too."""
        prepared = PreparedMessage(text=message.text, files=[])
        if message.media:
            files = await self._fetch_files(item, message.media)
            prepared = await self.prepare_files(item.source, message.text, files)
            await self._report_unusable_files(item, prepared)
        reads = EntryReads()
        agent_turn: AgentTurn | None = None
        turn = self.store.turn_control(
            item.source,
            prepared.text,
            message_id=item.message_id,
            media=prepared.files,
            wait=self.store.settings.lease_seconds,
            inbox_item=item,
            resumes=item.resumes,
            on_enter=lambda session: self._read_on_entry(reads, item.source, session),
        )
        try:
            async with turn:
                if not turn.duplicate and prepared.failure is None:
                    agent_turn = await self._agent_turn(item, reads)
                    await self._run_agent(agent_turn, turn, item, prepared)
                elif not turn.duplicate:
                    await self._report_voice_note(item, prepared, turn.session.id)
        except BudgetExceeded as refusal:
            await self._reply(item, replies.refused(refusal), key=replies.refusal_key(item))
        except AgentError as problem:
            log.warning("the agent did not answer message %s: %s", item.id, problem)
            if turn.answer is None:
                # The person at the terminal of this machine is the owner, who can repair it.
                is_owner = item.source.platform == LOCAL
                text = (replies.failed_for_owner if is_owner else replies.failed)(problem)
                await self._reply(
                    item, text, about=turn.session.id, key=replies.failure_key(item),
                    replaces=None if agent_turn is None else agent_turn.draft_id,
                )  # fmt: skip
        if turn.is_interrupted:
            await self._reply(item, replies.CUT_OFF, about=turn.session.id)
        return turn.has_settled_item

    async def _fetch_files(self, item: InboxItem, media: Sequence[Any]) -> list[Any]:
        """Fetch the files of a message, and tell the person about those that could not be."""
        files = await self.media_fetcher.fetch_all(item.source, media)
        for number, file in enumerate(files):
            problem = file.get("problem") if isinstance(file, dict) else None
            if problem:
                await self.store.outbox.put(
                    replies.file_problem(file.get("name"), problem), "origin", origin=item.source,
                    delivery=f"file:{item.id}:{number}", is_plain=True,
                )  # fmt: skip
        return files

    async def prepare_files(
        self, source: Source, text: str | None, files: Sequence[Any]
    ) -> PreparedMessage:
        """Return a message with what the model that answers a source gets of its files."""
        traits = traits_of(await self._agent_now(source)) if files else None
        is_blind = traits is not None and not traits.sees_images
        describe = self.describer.describe if self.describer and is_blind else None
        return await self.media_preparer.prepare(text, files, describe=describe)

    async def _agent_now(self, source: Source) -> Agent:
        """Return the agent that answers a source, with the model of its current session."""
        entry = self.agents.of(source)
        if not entry.models:
            return entry.agent
        key = await self.store.sessions.conversation(source)
        session = await self.store.sessions.current(key)
        if session is None:
            return entry.agent
        own = await self.store.agent_choices.of_session(session.id)
        return entry.with_model(own.model)

    async def _report_unusable_files(self, item: InboxItem, prepared: PreparedMessage) -> None:
        """Tell the person about each file that no model gets."""
        for number, (name, problem) in enumerate(prepared.problems):
            await self.store.outbox.put(
                replies.file_unusable(name, problem), "origin", origin=item.source,
                delivery=f"unusable:{item.id}:{number}", is_plain=True,
            )  # fmt: skip

    async def _report_voice_note(
        self, item: InboxItem, prepared: PreparedMessage, session_id: str
    ) -> None:
        """Tell the person that a voice note was not heard; the model is not called without it."""
        is_off = isinstance(prepared.failure, NoTranscription)
        text = replies.NO_TRANSCRIPTION if is_off else replies.NOT_TRANSCRIBED
        await self._reply(item, text, about=session_id, key=replies.failure_key(item))

    # -- agent: have the message answered; each event is stored before the next is requested

    async def _run_agent(
        self, agent_turn: AgentTurn, turn: TurnControl, item: InboxItem, prepared: PreparedMessage
    ) -> None:
        """Run the agent; the answer goes into the transcript and the outbox in one transaction."""
        message = MessageToAnswer(
            source=item.source,
            text=(prepared.text or "") if item.resumes is None else await self._text_of_turn(turn),
            key=item.key,
            update_id=str(item.id),
            message_id=item.message_id,
            streams=self._settings_of(item.source).stream == "auto",
            is_retry=item.attempts > 1,
            has_unseen_images=prepared.has_unseen_images,
            usages=prepared.usages,
        )
        with self.interrupts.turn(item.key) as signals:
            await agent_turn.run(turn, signals, message)

    async def _text_of_turn(self, turn: TurnControl) -> str:
        """Return what the person wrote in the newest turn, which continues."""
        entries = await self.store.transcript(turn.session.id).entries(newest=_NEWEST)
        texts = [text_of(entry.body) for entry in entries if entry.role == USER]
        return texts[-1] if texts else ""

    def _read_on_entry(self, reads: EntryReads, source: Source, session: Session) -> None:
        """Read the other data that a turn needs, in the thread that has entered the turn."""
        reads.role = self._tool_role(source)
        if shows_memories(self.settings, session):
            reads.memories = self.store.sync.memories.shown(session.id)

    async def _agent_turn(self, item: InboxItem, reads: EntryReads) -> AgentTurn:
        source = item.source
        approval = None if item.resumes is None else await self.store.approvals.get(item.resumes)
        is_attended = registry.platform(source.platform).notify
        if approval is not None:
            is_attended = approval.asked_in == ORIGIN
        role = reads.role
        tools = await self.tools_for(source, item.key, role)
        target = ORIGIN if approval is None else approval.target
        guard = self.guard_for(source, role, tools, is_attended=is_attended, target=target)
        return AgentTurn(
            self.store,
            self.agents.of(source),
            self.adapters.of(source.platform, source.account),
            self.settings,
            tools,
            metrics=self.metrics,
            delivers=target is not None,
            target=target or ORIGIN,
            guard=guard,
            media=self.media_preparer,
            memories=reads.memories,
        )

    async def tool_role(self, source: Source) -> Role:
        """Return the role that decides which tools the agent gets for the person who wrote."""
        return await self.store.run_batched(self._tool_role, source)

    def guard_for(
        self,
        source: Source,
        role: Role,
        tools: tuple[Tool, ...],
        *,
        is_attended: bool,
        target: str | None = ORIGIN,
    ) -> ToolGuard:
        """Return the guard of the tools for the person who wrote.

        Without somebody in the chat, the owner can be asked at home, if the settings say so.
        `target` is where the answer goes if the turn has to wait.
        """
        requester = Requester(
            person=claim_person(source),
            role=role,
            asked_in=ORIGIN if is_attended else self._owner_home(),
            target=target,
        )
        return ToolGuard(self.store, self.settings.approvals, tools, requester)

    async def tell_owner(self, text: str) -> None:
        """Send a text to the home of the owner, if there is one."""
        home = self._home()
        if home is not None:
            await self.store.outbox.put(text, home, delivery=replies.notice_key(), is_plain=True)

    def _owner_home(self) -> str | None:
        """Return the platform at whose home the owner is asked, or None."""
        return self._home() if self.settings.approvals.unattended == "owner" else None

    def _home(self) -> str | None:
        homes = sorted(self.store.settings.homes)
        return next((name for name in homes if self.adapters.serves_platform(name)), None)

    async def tools_for(
        self, source: Source, key: str, role: Role, *, can_schedule: bool = True
    ) -> tuple[Tool, ...]:
        """Return the tools that the agent may call for the person who wrote, with that role."""
        tools = self.tools
        if can_schedule:
            tools += schedule_tool.tools(self.store, source, role)
            if self.settings.memory:
                tools += memory_tool.tools(self.store, source, key, role)
        if self.mcp is not None:
            tools += await self.mcp.tools_for(role)
        return self.agents.of(source).filter_tools(
            (*tools, *self._process_tools(source, key, role))
        )

    def _process_tools(self, source: Source, key: str, role: Role) -> tuple[Tool, ...]:
        if self.processes is None:
            return ()
        from tertulia.processes.agent_tools import tools_for  # needs a Unix

        # Without an adapter nothing can be sent to the chat: then news of a program go into the
        # conversation.
        origin = source if self.adapters.serves(source) else None
        return tools_for(self.processes, origin, key, role)

    # -- deliver: send what is in the outbox

    async def _reply(
        self,
        item: InboxItem,
        text: str,
        about: str | None = None,
        key: str | None = None,
        replaces: str | None = None,
    ) -> None:
        """Put a text of the gateway itself into the outbox, once for all tries of a message.

        `replaces` is the draft of an answer that will not come.
        """
        if item.source.platform == access.CALLERS:
            return
        await self.store.outbox.put(
            text, "origin", origin=item.source, session_id=about,
            delivery=key or replies.reply_key(item), is_plain=True, replaces=replaces,
            node=item.node,
        )  # fmt: skip

    async def deliver(self) -> None:
        """Claim due deliveries until cancelled; the worker calls `Adapter.send` for each."""
        while True:
            await self.delivery_worker.claim_and_start()

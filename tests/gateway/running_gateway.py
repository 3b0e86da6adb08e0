"""A gateway with a scripted chat app, and the few words its tests are told in."""

from __future__ import annotations

import asyncio
import itertools
import math
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

import tertulia
from tertulia import Policies, ResetPolicy, Settings, Source, aio
from tertulia.agents.base import Agent, Delta, Event, Request, Step, Tool
from tertulia.agents.parrot import ParrotAgent
from tertulia.core.approval import ApprovalRule, ApprovalSettings
from tertulia.core.usage import Usage
from tertulia.gateway.agent_table import AgentTable
from tertulia.gateway.app import Gateway
from tertulia.gateway.expiry import Flush
from tertulia.gateway.image_describer import ImageDescriber
from tertulia.gateway.settings import GatewaySettings
from tertulia.platforms.base import (
    Adapter,
    Incoming,
    MenuEntry,
    Outgoing,
    Pressed,
    Receive,
    StreamUpdate,
)
from tertulia.platforms.settings import PlatformSettings
from tertulia.processes.registry import ProcessRegistry
from tertulia.testing import FakeClock
from tests.legality.validators import faults

ANA = Source("telegram", "42", user_id="42", user_name="Ana")
BEN = Source("telegram", "43", user_id="43", user_name="Ben")
CARA = Source("signal", "77", user_id="77", user_name="Cara")
# By the real clock: at four in the morning a daily policy would end what a test is talking in.
IDLE = Policies(default=ResetPolicy(mode="idle"))
FAST = Settings(zone="UTC", durability="fast", policies=IDLE)
# Everybody is let in, so that a test need not care.
OPEN = PlatformSettings(admission="everyone")
# Everybody is a guest; some tests send long texts. The time before messages has tests of its own.
ANYBODY = GatewaySettings(
    platforms={"telegram": OPEN, "signal": OPEN}, guest_text=200_000, timestamps="none"
)
# Tests of programs are not about approvals.
TERMINAL_ALLOWED = ApprovalSettings(rules=(ApprovalRule(tool="terminal", decision="allow"),))
# So long a test waits for something that is bound to happen, however busy the machine.
PATIENCE = 60.0

_numbers = itertools.count(1)

Send = Callable[[Outgoing], Awaitable[None]]


class App(Adapter):
    """A chat app in this process. What `send` is given goes through `on_send` first."""

    def __init__(self, name: str = "telegram", *, is_idempotent: bool = False) -> None:
        self.name = name
        self.idempotent_seconds = math.inf if is_idempotent else 0.0
        self.sent: list[Outgoing] = []
        self.shown: list[StreamUpdate] = []
        self.closed: list[Outgoing] = []
        self.on_close: Send | None = None
        self.menu: tuple[MenuEntry, ...] = ()
        self.on_send: Send | None = None
        self.is_closed = False
        self._receive: Receive | None = None
        self._listens = asyncio.Event()

    async def listen(self, receive: Receive) -> None:
        self._receive = receive
        self._listens.set()
        await asyncio.Event().wait()

    async def send(self, message: Outgoing) -> str | None:
        if self.on_send is not None:
            await self.on_send(message)
        self.sent.append(message)
        return f"sent-{len(self.sent)}"

    async def close_buttons(self, message: Outgoing) -> None:
        if self.on_close is not None:
            await self.on_close(message)
        self.closed.append(message)

    async def show(self, source: Source, shown: StreamUpdate) -> str | None:
        self.shown.append(shown)
        return None

    async def fill_menu(self, entries: tuple[MenuEntry, ...]) -> None:
        self.menu = entries

    async def close(self) -> None:
        self.is_closed = True

    async def get(self, text: str | None, who: Source = ANA, **details: Any) -> None:
        """Somebody writes; when this returns, the app was told that it is accepted."""
        await asyncio.wait_for(self._listens.wait(), PATIENCE)
        assert self._receive is not None
        details.setdefault("message_id", f"{self.name}-{next(_numbers)}")
        await self._receive(Incoming(source=who, text=text, **details))

    async def get_press(self, value: str, who: Source = ANA, *, press_id: str = "") -> None:
        """Somebody presses a button; when this returns, the app was told that it is accepted."""
        await asyncio.wait_for(self._listens.wait(), PATIENCE)
        assert self._receive is not None
        press_id = press_id or f"{self.name}-{next(_numbers)}"
        await self._receive(Pressed(source=who, value=value, press_id=press_id))

    def to(self, who: Source) -> list[str]:
        return [message.text for message in self.sent if message.chat_id == who.chat_id]


Script = Callable[[Request], AsyncIterator[Event]]


class Scripted:
    """An agent that does what a test says."""

    name = "scripted"

    def __init__(self, script: Script) -> None:
        self._script = script
        self.requests: list[Request] = []
        self.is_closed = False

    async def run(self, request: Request) -> AsyncGenerator[Event, None]:
        self.requests.append(request)
        async for event in self._script(request):
            yield event

    async def close(self) -> None:
        self.is_closed = True


class Echo:
    """Answers "re TEXT", and keeps what history it was shown."""

    name = "echo"

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.histories: list[list[dict[str, Any]]] = []

    async def run(self, request: Request) -> AsyncGenerator[Event, None]:
        self.asked.append(request.text)
        self.histories.append(await request.history())
        yield Delta(f"re {request.text}")
        yield Step(f"re {request.text}", usage=Usage(10, 2, model="echo"))

    async def close(self) -> None:
        pass


class RunningGateway:
    """One node, running."""

    def __init__(self, store: aio.Store, gateway: Gateway, apps: dict[str, App]) -> None:
        self.store = store
        self.gateway = gateway
        self.apps = apps
        self.running = asyncio.create_task(gateway.run())

    @property
    def app(self) -> App:
        return next(iter(self.apps.values()))

    async def say(self, text: str | None, who: Source = ANA, **details: Any) -> list[str]:
        """Somebody writes; what they have heard when all is quiet again."""
        app = self.apps[who.platform]
        before = len(app.to(who))
        await app.get(text, who, **details)
        await self.quiet()
        return app.to(who)[before:]

    async def hears(self, text: str, who: Source = ANA) -> str:
        """The same, where there is one answer."""
        heard = await self.say(text, who)
        assert len(heard) == 1, heard
        return heard[0]

    async def quiet(self) -> None:
        """Wait until nothing is to be answered or sent."""
        await self.until(self._is_quiet, "all is answered and sent")

    async def _is_quiet(self) -> bool:
        """Each box in one look: between two, what is sent may have become what waits again."""
        items = (await self.store.inbox.find(limit=1000)).items
        if any(item.state in ("waiting", "taken") for item in items):
            return False
        deliveries = (await self.store.outbox.find(limit=1000)).items
        due = [delivery for delivery in deliveries if delivery.state in ("waiting", "sending")]
        return not any(delivery.platform in self.apps for delivery in due)

    async def until(self, condition: Callable[[], Any], what: str) -> None:
        await until(condition, what, self.running)

    async def session(self, who: Source = ANA) -> tertulia.Session:
        found = await self.store.sessions.current(await self.store.sessions.conversation(who))
        assert found is not None
        return found

    async def told(self, who: Source = ANA) -> list[str]:
        """What is seen of the current session."""
        entries = await self.store.transcript((await self.session(who)).id).load()
        return [str(message["content"]) for message in entries]


async def until(
    condition: Callable[[], Any],
    what: str,
    running: asyncio.Task[None] | None = None,
    *,
    patience: float = PATIENCE,
) -> None:
    """Wait for something that is bound to happen, as long as the gateway lives."""
    deadline = time.monotonic() + patience
    while True:
        found = condition()
        if asyncio.iscoroutine(found):
            found = await found
        if found:
            return
        if running is not None and running.done():
            await running
        assert time.monotonic() < deadline, f"waited in vain: {what}"
        await asyncio.sleep(0.01)


class BreakableCheck:
    """A check for running programs, which finds none, and fails while it is broken."""

    def __init__(self) -> None:
        self.is_broken = False

    def __call__(self, key: str) -> bool:
        if self.is_broken:
            raise FileNotFoundError("/srv/secret")
        return False


@asynccontextmanager
async def running_gateway(
    where: str,
    agent: Agent | None = None,
    *,
    apps: Iterable[App] | None = None,
    rules: GatewaySettings = ANYBODY,
    settings: Settings = FAST,
    clock: FakeClock | None = None,
    tools: Iterable[Tool] = (),
    flush: Flush | None = None,
    folder: str | None = None,
    programs: Path | None = None,
    describer: ImageDescriber | None = None,
    agents: AgentTable | None = None,
) -> AsyncIterator[RunningGateway]:
    """A gateway that runs; in the end it is stopped, and its store must be sound."""
    given = list(apps) if apps is not None else [App()]
    async with aio.open(where, settings=settings, clock=clock) as store:
        processes = None if programs is None else ProcessRegistry(store.sync, programs)
        gateway = Gateway(
            store, agent or ParrotAgent(), given, settings=rules, tools=tuple(tools), flush=flush,
            folder=folder, processes=processes, describer=describer, agents=agents,
        )  # fmt: skip
        node = RunningGateway(store, gateway, {app.name: app for app in given})
        try:
            yield node
        finally:
            gateway.stop()
            with suppress(asyncio.CancelledError):
                await node.running
        await check(store)


async def check(store: aio.Store) -> None:
    """The store is sound, and every history is legal."""
    problems = await store.check()
    assert problems == [], problems
    for session in (await store.sessions.find(limit=1000)).items:
        history = await store.transcript(session.id).history()
        assert not faults("openai", history), history


def rules(**changes: Any) -> GatewaySettings:
    return msgspec.structs.replace(ANYBODY, **changes)

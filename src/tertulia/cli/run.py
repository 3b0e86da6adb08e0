"""The gateway as a program: what `tertulia chat` and `tertulia run` do."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING

from tertulia.cli import (
    locations,
    output,
)
from tertulia.cli.options import Request
from tertulia.config.load import LoadedConfig
from tertulia.config.schema import (
    AgentConfig,
    Config,
)
from tertulia.core.message import ASSISTANT, text_of
from tertulia.core.source import Source
from tertulia.core.text.prompt_safe import plain
from tertulia.errors import ConfigError
from tertulia.storage.connect import public_name

if TYPE_CHECKING:
    from tertulia import aio
    from tertulia.agents.base import Agent
    from tertulia.aio.connect import PendingStore
    from tertulia.gateway.app import Gateway
    from tertulia.gateway.expiry import Flush
    from tertulia.http.settings import HttpSettings
    from tertulia.platforms.base import Adapter
    from tertulia.platforms.terminal import TerminalAdapter
    from tertulia.processes.registry import ProcessRegistry
    from tertulia.store import Store

log = logging.getLogger("tertulia.gateway")

_LOOK_SECONDS = 0.02
_LOOKED_BACK = 200  # messages, for the answer to the last one


def chat(request: Request, found: LoadedConfig) -> None:
    """Talk in this terminal until there is nothing more to say."""
    asyncio.run(_chat(request, found))


def run(request: Request, config: Config, has_terminal: bool) -> None:
    """Serve what the configuration names until a signal."""
    asyncio.run(_run(request, config, has_terminal))


async def _chat(request: Request, found: LoadedConfig) -> None:
    from tertulia.config.build import agent_of

    config = found.config
    agent = agent_of(config.agent)
    async with _opened(request, config) as store:
        await _greet(request, store, config)
        local = _local(config, store)
        await _serve(request, config, store, agent, [local], local)


async def _run(request: Request, config: Config, has_terminal: bool) -> None:
    from tertulia.config.build import (
        adapters_of,
        agent_of,
        http_of,
    )

    agent = agent_of(config.agent)
    adapters: list[Adapter] = adapters_of(config)
    http = http_of(config)
    has_local = has_terminal and config.local.enabled
    if not adapters and not has_local and http is None:
        raise ConfigError(
            "There is nothing to serve: no platform is enabled, and there is no terminal.",
            hint="Name a platform in the configuration, set enabled = true under [http], or talk"
            " with: tertulia chat",
            field="platforms",
        )
    async with _opened(request, config) as store:
        local = _local(config, store) if has_local else None
        if local is not None:
            adapters.append(local)
            await _greet(request, store, config)
        await _serve(request, config, store, agent, adapters, local, http=http)


async def _serve(
    request: Request,
    config: Config,
    store: aio.Store,
    chosen: Agent,
    adapters: list[Adapter],
    local: TerminalAdapter | None,
    *,
    http: HttpSettings | None = None,
) -> None:
    """Run the gateway until a signal, or until the terminal has nothing more to say."""
    from tertulia.gateway.app import Gateway
    from tertulia.gateway.logging_setup import (
        Logged,
        writing,
    )

    agent = Logged(chosen)
    gateway = Gateway(
        store,
        agent,
        adapters,
        rules=config.rules,
        flush=_flush(config, store, agent),
        folder=os.path.join(locations.data_folder(), "schedules"),
        processes=_processes(config, store),
    )
    with writing(config.log, store.sync.redactor, is_quiet=local is not None):
        _stop_at_signals(gateway)
        told = None if local is None else partial(output.say, request)
        leaving = asyncio.create_task(_leave(local, gateway, told)) if local and told else None
        try:
            async with _reached(gateway, http, told):
                await gateway.run()
        finally:
            if leaving is not None:
                leaving.cancel()
                with suppress(asyncio.CancelledError):
                    await leaving
    if local is not None and local.problem is not None:
        raise local.problem


def _flush(config: Config, store: aio.Store, agent: Agent) -> Flush | None:
    """Saves what is to be remembered. The parrot would only remember what it was asked."""
    if not config.store.remember or config.agent.kind == "parrot":
        return None
    from tertulia.gateway.memory_files import FileMemory
    from tertulia.gateway.memory_flush import MemoryFlush

    folder = config.gateway.memory or os.path.join(locations.data_folder(), "memory")
    return MemoryFlush(store, agent, FileMemory(folder, agent=config.store.agent))


def _processes(config: Config, store: aio.Store) -> ProcessRegistry | None:
    """The programs of the agent, where it may start some."""
    if not config.processes.enabled:
        return None
    from tertulia.config.build import environment_of
    from tertulia.processes.registry import ProcessRegistry

    folder = os.path.join(locations.data_folder(), "processes")
    work = config.processes.folder or os.path.join(locations.data_folder(), "work")
    return ProcessRegistry(
        store.sync,
        folder,
        work=work,
        rules=config.processes.rules(),
        environment=environment_of(config.processes, work),
    )


@asynccontextmanager
async def _reached(
    gateway: Gateway, http: HttpSettings | None, told: Callable[[str], None] | None
) -> AsyncIterator[None]:
    """Serve HTTP as long as the block lasts, if that is wanted; the person at the terminal, who
    does not see the log, is told where."""
    if http is None:
        yield
        return
    from tertulia.http.server import serve

    async with serve(gateway, http) as serving:
        log.info("HTTP on %s, described at /openapi.json", serving.url)
        if told is not None:
            told(f"HTTP is served on {serving.url}; /openapi.json there describes it.\n")
        yield


async def _leave(local: TerminalAdapter, gateway: Gateway, told: Callable[[str], None]) -> None:
    """Stop when the person has left. Who does not want to wait for an answer need say so once."""
    await local.finished.wait()
    if local.is_answering and local.problem is None:
        told("\nThe answer is finished first. ctrl-C leaves at once; then it comes the next time.")
    _end_at(signal.SIGINT)
    gateway.stop()


def _stop_at_signals(gateway: Gateway) -> None:
    """The first signal lets the gateway finish; the second ends it as signals do."""
    loop = asyncio.get_running_loop()

    def stop(number: signal.Signals) -> None:
        _end_at(number)
        gateway.stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        with suppress(NotImplementedError):  # on Windows there is only Ctrl-C as an exception
            loop.add_signal_handler(number, stop, number)


def _end_at(number: signal.Signals) -> None:
    """Let a signal end the program at once: an exception would only cut through what closes."""
    with suppress(NotImplementedError):
        asyncio.get_running_loop().remove_signal_handler(number)
        signal.signal(number, signal.SIG_DFL)


def _opened(request: Request, config: Config) -> PendingStore:
    from tertulia import aio

    where = locations.where(request)
    locations.zone()
    locations.make_private(where)
    return aio.open(where, settings=config.settings)


def _local(config: Config, store: aio.Store) -> TerminalAdapter:
    from tertulia.platforms.terminal import TerminalAdapter

    return TerminalAdapter(settled=_settled(store), history=_history(config))


def _history(config: Config) -> str | None:
    """The file that keeps what was typed; it is for this user only."""
    if not sys.stdin.isatty() or config.local.history == "":
        return None
    import platformdirs

    folder = platformdirs.user_state_path("tertulia", appauthor=False)
    path = os.path.expanduser(config.local.history or str(folder / "history"))
    try:
        os.makedirs(os.path.dirname(path) or ".", mode=0o700, exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_APPEND, 0o600))
    except OSError:
        return None  # what was typed is then remembered until the end of the program
    return path


def _settled(store: aio.Store) -> Callable[[str | None], Awaitable[str | None]]:
    """Waits until all that was typed is answered, and the answers are printed; the answer."""

    async def wait(message_id: str | None) -> str | None:
        while await _has_work(store):  # noqa: ASYNC110  other nodes may do the work, too
            await asyncio.sleep(_LOOK_SECONDS)
        return await asyncio.to_thread(_answer_to, store.sync, message_id) if message_id else None

    return wait


def _answer_to(store: Store, message_id: str) -> str | None:
    """What was answered to a message that was typed a moment ago; None to a command."""
    session = store.sessions.current(store.sessions.conversation(Source.local()))
    newest = [] if session is None else store.transcript(session.id).entries(newest=_LOOKED_BACK)
    turns = {one.turn for one in newest if one.body.get("message_id") == message_id}
    said = [text_of(one.body) for one in newest if one.turn in turns and one.role == ASSISTANT]
    return said[-1] if said else None


async def _has_work(store: aio.Store) -> bool:
    """Looked for in the order in which work goes on: what moves meanwhile is seen further on."""
    key = await asyncio.to_thread(store.sync.sessions.conversation, Source.local())
    for arrival_state in ("waiting", "taken"):
        if (await store.inbox.find(key=key, state=arrival_state, limit=1)).items:
            return True
    for state in ("waiting", "sending"):
        parcels = (await store.outbox.find(state=state, limit=50)).items
        if any(parcel.platform == "local" for parcel in parcels):
            return True
    return False


async def _greet(request: Request, store: aio.Store, config: Config) -> None:
    """Say who answers and where this is kept, if there is a person to read it."""
    if not sys.stdin.isatty():
        return
    agent = config.agent
    who, where = _who_answers(agent), public_name(store.sync.path)
    output.say(request, f"You talk with {who}; it is kept in {where}.")
    if agent.kind == "parrot":
        output.say(
            request, "The parrot is no model: it shows what one would be given. A real one: "
            "tertulia config init",
        )  # fmt: skip
    output.say(request, await asyncio.to_thread(_where_we_were, store))
    output.say(request, "/help lists the commands, alt-Enter makes a new line, ctrl-D leaves.\n")


def _who_answers(agent: AgentConfig) -> str:
    if agent.model:
        return f"{agent.model} ({agent.kind})"
    if agent.command:
        return f"the program {plain(os.path.basename(agent.command[0]), 60)}"
    return "an agent over HTTP" if agent.kind == "http" else f"the {agent.kind}"


def _where_we_were(store: aio.Store) -> str:
    sessions = store.sync.sessions
    session = sessions.current(sessions.conversation(Source.local()))
    if session is None:
        return "This is a new conversation."
    words = session.title or sessions.suggest_title(session.id)
    name = f'"{plain(words, 60)}"' if words else session.id
    count = store.sync.transcript(session.id).count()
    return f"We go on with {name}: {'1 message' if count == 1 else f'{count} messages'} so far."

"""Open the store, build the gateway and serve it until a signal; `chat` and `run` share this."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from tertulia.cli import locations, output
from tertulia.cli.options import CommandOptions
from tertulia.config.schema import Config, HttpSection
from tertulia.gateway.settings import LogSettings
from tertulia.http.settings import NO_TOKEN, Token
from tertulia.install_command import install_command
from tertulia.private_files import make_private_folder, read_or_make_secret
from tertulia.records.machine_zone import machine_zone

if TYPE_CHECKING:
    from tertulia import aio
    from tertulia.aio.connect import PendingStore
    from tertulia.gateway.agent_table import AgentTable
    from tertulia.gateway.app import Gateway
    from tertulia.gateway.expiry import Flush
    from tertulia.http.app import Pages
    from tertulia.mcp.servers import McpServers
    from tertulia.platforms.base import Adapter
    from tertulia.platforms.terminal.adapter import TerminalAdapter
    from tertulia.processes.registry import ProcessRegistry

log = logging.getLogger("tertulia.gateway")

_MAX_LOG_BYTES = 5_000_000
# A collection begins when there are so many more containers than after the last one. Python would
# begin it at 700, which a few messages hold while they are answered.
_NEW_OBJECTS = 10_000


def open_store(options: CommandOptions, config: Config) -> PendingStore:
    """Open the store for a gateway; create it if there is none, readable by this user only."""
    from tertulia import aio

    location = locations.store_location(options)
    machine_zone()
    locations.create_private_file(location)
    return aio.open(location, settings=config.store_settings)


def tune_garbage_collection() -> None:
    """Let Python's garbage collector run rarely, and leave out what the start has made.

    A message leaves nothing for it to find (tests/gateway/test_garbage.py), and nobody is answered
    while it looks. With the modules in it, a collection took up to 100 ms (decision 0065).
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_NEW_OBJECTS, *gc.get_threshold()[1:])


async def serve_gateway(
    options: CommandOptions,
    config: Config,
    store: aio.Store,
    agents: AgentTable,
    adapters: list[Adapter],
    terminal: TerminalAdapter | None,
    *,
    http: HttpSection | None = None,
) -> None:
    """Run the gateway until a signal, or until the user leaves the terminal.

    Raise the problem that ended the terminal, if there was one.
    """
    from tertulia.cli.transcript_follower import TranscriptFollower
    from tertulia.gateway.logging_setup import configured_logging

    gateway = build_gateway(config, store, agents, adapters)
    log_settings = config.log if terminal is None else chat_log(config.log)
    with configured_logging(log_settings, store.sync.redactor, is_quiet=terminal is not None):
        _stop_at_signals(gateway)
        print_text = None if terminal is None else partial(output.print_text, options)
        tasks = []
        if terminal is not None and print_text is not None:
            tasks.append(asyncio.create_task(_stop_when_left(terminal, gateway, print_text)))
        if terminal is not None and sys.stdin.isatty():
            tasks.append(asyncio.create_task(TranscriptFollower(store, terminal).run()))
        try:
            async with _serve_http(gateway, http, config, print_text):
                tune_garbage_collection()
                await gateway.run()
            log.info("stopped; what was not answered yet is answered after the next start")
        finally:
            for task in tasks:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
    if terminal is not None and terminal.is_gone:
        output.discard_output()
    if terminal is not None and terminal.problem is not None:
        raise terminal.problem


def build_gateway(
    config: Config, store: aio.Store, agents: AgentTable, adapters: list[Adapter]
) -> Gateway:
    """Return the gateway of the configuration; other programs of the user cannot inspect it."""
    from tertulia.config.build import build_describer
    from tertulia.gateway.app import Gateway
    from tertulia.gateway.logging_setup import LoggedAgent

    if sys.platform == "linux":
        from tertulia.processes.supervisor import refuse_inspection

        refuse_inspection()
    logged = agents.map(LoggedAgent)
    return Gateway(
        store,
        logged.main.agent,
        adapters,
        settings=config.gateway_settings,
        flush=_memory_flush(config, store, logged),
        folder=os.path.join(locations.data_folder(), "schedules"),
        processes=_process_registry(config, store),
        describer=build_describer(config),
        mcp=_mcp_servers(config, store),
        agents=logged,
    )


def _memory_flush(config: Config, store: aio.Store, agents: AgentTable) -> Flush | None:
    """Return the function that saves memories when a session ends, or None if that is off.

    It is off for the parrot, which would only repeat the request as a memory.
    """
    if not (config.store.remember and config.gateway.memory) or config.main_agent.kind == "parrot":
        return None
    from tertulia.gateway.memory_flush import MemoryFlush

    return MemoryFlush(store, agents.main.agent, agents=agents)


def _mcp_servers(config: Config, store: aio.Store) -> McpServers | None:
    """Return the MCP servers of the configuration, or None if there are none.

    Raise `ConfigError` if they offer more tools than models accept.
    """
    if not config.mcp.servers:
        return None
    from tertulia.mcp.servers import McpServers, require_few_tools

    require_few_tools(config.mcp.servers, store.sync.mcp_pins.find())

    folder = os.path.join(locations.data_folder(), "mcp")
    return McpServers(store, config.mcp.servers, folder=folder)


def _process_registry(config: Config, store: aio.Store) -> ProcessRegistry | None:
    """Return the registry of the agent's background processes, or None if it may start none."""
    if not config.processes.enabled:
        return None
    from tertulia.config.build import build_environment, work_folder
    from tertulia.processes.registry import ProcessRegistry

    folder = os.path.join(locations.data_folder(), "processes")
    work = work_folder(config.processes, locations.data_folder())
    return ProcessRegistry(
        store.sync,
        folder,
        work=work,
        settings=config.processes,
        environment=build_environment(config.processes, work),
    )


@asynccontextmanager
async def _serve_http(
    gateway: Gateway,
    http: HttpSection | None,
    config: Config,
    print_text: Callable[[str], None] | None,
) -> AsyncIterator[None]:
    """Serve HTTP while the block runs, if it is enabled.

    The address is logged, and printed at the terminal, where the log is not shown.
    """
    if http is None:
        yield
        return
    from tertulia.config.load import to_redacted_dict
    from tertulia.http.server import serve

    async with serve(
        gateway,
        with_owner_token(http),
        pages=_console_pages(),
        configuration=to_redacted_dict(config),
    ) as server:
        log.info("HTTP on %s, described at /openapi.json", server.url)
        if print_text is not None:
            print_text(f"HTTP is served on {server.url}; /openapi.json there describes it.\n")
        yield


def _console_pages() -> Pages | None:
    """Return what makes the pages of the console; None if they are not installed."""
    try:
        from tertulia.console.app import console_pages
    except ModuleNotFoundError as problem:
        if problem.name not in ("jinja2", "markupsafe", "nh3"):
            raise
        log.info("no console, it needs: %s", install_command("console"))
        return None
    return console_pages


def with_owner_token(http: HttpSection) -> HttpSection:
    """Return the settings with a token for the owner, if there is none and one is wanted.

    So not every program of this machine is the owner, only those that may read the user's files.
    """
    if http.tokens or not http.owner_token:
        return http
    path = os.path.join(locations.data_folder(), "owner-token")
    log.info("HTTP needs the token of the owner, a bearer token; it is in the file %s", path)
    secret = read_or_make_secret(path)
    return msgspec.structs.replace(
        http, tokens=(Token(name=NO_TOKEN, role="owner", secret=secret),)
    )


def chat_log(settings: LogSettings) -> LogSettings:
    """Return the log settings for a conversation: a file in the state folder, unless one is set.

    So no log line stands in it, nor before the failures that a pipe gets on its standard error. A
    file that has grown large is moved aside, once.
    """
    if settings.file is not None:
        return settings
    import platformdirs

    path = platformdirs.user_state_path("tertulia", appauthor=False) / "chat.log"
    try:
        make_private_folder(str(path.parent))
        if path.exists() and path.stat().st_size > _MAX_LOG_BYTES:
            path.replace(path.with_suffix(".log.1"))
    except OSError:
        return settings
    return msgspec.structs.replace(settings, file=str(path))


async def _stop_when_left(
    terminal: TerminalAdapter, gateway: Gateway, print_text: Callable[[str], None]
) -> None:
    """Stop the gateway when the user has left the terminal.

    One ctrl-C is then enough to leave without the answer that is being written.
    """
    await terminal.finished.wait()
    if terminal.is_answering and terminal.problem is None and not terminal.is_gone:
        with suppress(OSError):  # the window may be closed
            print_text(
                "\nThe answer is finished first. ctrl-C leaves at once;"
                " then it is shown the next time."
            )
    _end_process_at(signal.SIGINT)
    gateway.stop()


def _stop_at_signals(gateway: Gateway) -> None:
    """Let the first signal stop the gateway gracefully, and the second end the process."""
    loop = asyncio.get_running_loop()

    def stop(number: signal.Signals) -> None:
        _end_process_at(number)
        gateway.stop()

    # A closed window and a lost connection send SIGHUP; its default would keep the leases.
    numbers = [signal.SIGTERM, signal.SIGINT, *([signal.SIGHUP] if os.name == "posix" else [])]
    for number in numbers:
        with suppress(NotImplementedError):  # Windows has only Ctrl-C, as an exception
            loop.add_signal_handler(number, stop, number)


def _end_process_at(number: signal.Signals) -> None:
    """Restore the default action of a signal, which ends the process at once.

    A KeyboardInterrupt instead would be raised inside the code that closes everything.
    """
    with suppress(NotImplementedError):
        asyncio.get_running_loop().remove_signal_handler(number)
        signal.signal(number, signal.SIG_DFL)

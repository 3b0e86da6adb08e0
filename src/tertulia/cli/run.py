"""`tertulia run`: serve the platforms of the configuration."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from tertulia.cli import locations
from tertulia.cli.options import CliCommand, CommandOptions, plain_option
from tertulia.cli.wizard import create_config
from tertulia.core.source import LOCAL
from tertulia.errors import ConfigError

if TYPE_CHECKING:
    from tertulia.config.schema import Config
    from tertulia.platforms.base import Adapter


@click.command(cls=CliCommand)
@plain_option
@click.pass_obj
def run(options: CommandOptions, plain: bool) -> None:
    """Serve the platforms of the configuration, and this terminal if there is one.

    If there is no configuration yet, a few questions create one. SIGTERM and ctrl-C let the answers
    that are being written finish; messages that wait are answered after the next start.
    """
    import asyncio

    loaded = locations.load_config(options)
    has_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    if loaded.path is None and has_terminal:
        create_config(options)
        loaded = locations.load_config(options)
    asyncio.run(_run(options, loaded.config, has_terminal=has_terminal, is_plain=plain))


async def _run(
    options: CommandOptions, config: Config, *, has_terminal: bool, is_plain: bool
) -> None:
    from tertulia.cli import serve, terminal_chat
    from tertulia.config.build import (
        build_adapters,
        build_agents,
        build_http_settings,
    )

    agents = build_agents(config, locations.data_folder())
    adapters: list[Adapter] = build_adapters(config, locations.platforms_folder())
    http = build_http_settings(config, adapters)
    serves_terminal = has_terminal and config.platform(LOCAL).enabled
    if not adapters and not serves_terminal and http is None:
        raise ConfigError(
            "There is nothing to serve: no platform is enabled, and there is no terminal.",
            hint="Name a platform in the configuration, set enabled = true under [http], or talk"
            " with: tertulia chat",
            field="platforms",
        )
    async with serve.open_store(options, config) as store:
        terminal = None
        if serves_terminal:
            terminal = terminal_chat.terminal_adapter(config, store, is_plain=is_plain)
            adapters.append(terminal)
            served = [adapter.name for adapter in adapters[:-1]]
            await terminal_chat.print_greeting(store, config, is_plain=is_plain, served=served)
        await serve.serve_gateway(options, config, store, agents, adapters, terminal, http=http)
        if terminal is not None:
            terminal_chat.print_farewell(store)

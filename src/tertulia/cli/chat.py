"""`tertulia chat`: talk with the agent in this terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tertulia.cli import locations
from tertulia.cli.options import CliCommand, CommandOptions, plain_option

if TYPE_CHECKING:
    from tertulia.config.schema import Config


@click.command(cls=CliCommand)
@plain_option
@click.pass_obj
def chat(options: CommandOptions, plain: bool) -> None:
    """Talk with the agent in this terminal.

    The configuration names the agent; without one it is the parrot, which shows the input that a
    model would get. The conversation continues where it stopped, also after a crash. Lines piped to
    the standard input are answered one after the other.

    \b
    /help        list the commands     ctrl-C   stop the answer that is being written
    alt-Enter    start a new line      ctrl-D   leave
    """
    import asyncio

    asyncio.run(_chat(options, locations.load_config(options).config, is_plain=plain))


async def _chat(options: CommandOptions, config: Config, *, is_plain: bool) -> None:
    from tertulia.cli import serve, terminal_chat
    from tertulia.config.build import build_agents

    agents = build_agents(config, locations.data_folder())
    async with serve.open_store(options, config) as store:
        await terminal_chat.print_greeting(store, config, is_plain=is_plain)
        terminal = terminal_chat.terminal_adapter(config, store, is_plain=is_plain)
        await serve.serve_gateway(options, config, store, agents, [terminal], terminal)
        terminal_chat.print_farewell(store)
    code = terminal_chat.exit_code(terminal)
    if code:
        raise SystemExit(code)

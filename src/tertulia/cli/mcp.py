"""`tertulia mcp`: MCP servers whose tools the agent may use."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click
import msgspec

from tertulia.cli import locations, output
from tertulia.cli.options import TEXT, CommandGroup, CommandOptions, json_option, program_name
from tertulia.cli.platforms import append_section
from tertulia.errors import ConfigError, NotFound

if TYPE_CHECKING:
    from rich.table import Table

    from tertulia.mcp.definitions import ToolList
    from tertulia.mcp.settings import McpServerSettings
    from tertulia.records.mcp_pins import PinnedTools

_SECONDS = 60.0
_OWN_ADDRESS = "http://127.0.0.1/mcp"  # of the application in this process


@click.group(cls=CommandGroup, invoke_without_command=True, no_args_is_help=False)
@click.pass_context
def mcp(ctx: click.Context) -> None:
    """Serve the store to an MCP client, or manage MCP servers.

    Without a command it speaks on standard input and output: this process is itself a gateway
    without platforms, with the rights of the owner. `tertulia mcp serve` passes everything on to a
    gateway that runs.
    """
    if ctx.invoked_subcommand is not None:
        return
    import asyncio

    asyncio.run(_serve_store(ctx.obj))


@mcp.command()
@click.argument("servers", metavar="JSON", type=TEXT)
@json_option
@click.pass_obj
def add(options: CommandOptions, servers: str) -> None:
    """Add servers from JSON, a text or a file, with "mcpServers" as other programs have it.

    The section of each server is written to the configuration. Its tools are accepted as they are
    when it is connected for the first time. Variables of its environment are not written: set them
    where the gateway runs.
    """
    path = locations.config_path(options)
    sections = {name: _section_values(name, item) for name, item in _read_json(servers).items()}
    for name, section in sections.items():
        _check_section(name, *section)
    _refuse_configured(path, sections)
    names = []
    for name, (values, secrets, headers) in sections.items():
        append_section(path, f"mcp.servers.{name}", values)
        if secrets:
            append_section(path, f"mcp.servers.{name}.secrets", secrets)
        if headers:
            append_section(path, f"mcp.servers.{name}.headers", headers)
        names.append(name)
        if not options.json:
            missing = [variable for variable in secrets.values() if variable not in os.environ]
            hint = f" Set {', '.join(missing)} where the gateway runs." if missing else ""
            output.print_text(options, f"{name} is written to {path}.{hint}")
    if options.json:
        output.print_json({"config": path, "servers": names})
    else:
        text = f"Connect to it and list its tools: {program_name()} mcp check {names[0]}"
        output.print_text(options, text)


@mcp.command("list")
@json_option
@click.pass_obj
def list_(options: CommandOptions) -> None:
    """List the servers of the configuration, and the tools that were accepted."""
    servers = locations.load_config(options).config.mcp.servers
    pins = {}
    if not locations.is_store_missing(locations.store_location(options)):
        with locations.open_to_read(options) as store:
            pins = {pinned.server: pinned for pinned in store.mcp_pins.find()}
    rows = [_row(name, settings, pins.get(name)) for name, settings in servers.items()]
    output.print_items(options, rows, dict, _table, "There are no MCP servers.")


@mcp.command()
@click.argument("name", metavar="NAME", type=TEXT)
@json_option
@click.pass_obj
def check(options: CommandOptions, name: str) -> None:
    """Connect to the server NAME, and show its tools and what is wrong with them."""
    import asyncio  # slow to import

    settings = _require_server(options, name)
    with output.spinner(options, f"Connecting to {name}"):
        description, tools = asyncio.run(_connect(name, settings))
    from tertulia.mcp.servers import encode_definitions

    with locations.open_or_create_store(options) as store:
        store.mcp_pins.note_offered(name, encode_definitions(tools.tools))
        pinned = store.mcp_pins.get(name)
    changes = _changes(pinned)
    if options.json:
        output.print_json(
            {
                "server": description,
                "tools": [tool.name for tool in tools.tools],
                "problems": dict(tools.problems),
                "changes": changes,
            }
        )
        return
    lines = [f"{name} is {description}."]
    for tool in tools.tools:
        note = f" ({changes[tool.name]})" if tool.name in changes else ""
        lines.append(f"  {tool.name}{note}: {output.display_line(tool.description, 100)}")
    lines += [f"  {tool} cannot be offered: {why}" for tool, why in tools.problems.items()]
    if changes:
        command = f"{program_name()} mcp accept {name}"
        lines.append(f"Changed and new tools are offered after: {command}")
    output.print_text(options, "\n".join(map(output.display_line, lines)))


@mcp.command()
@click.argument("name", metavar="NAME", type=TEXT)
@json_option
@click.pass_obj
def accept(options: CommandOptions, name: str) -> None:
    """Accept the tools of the server NAME as they were last seen."""
    from tertulia.mcp.servers import require_few_tools

    servers = locations.load_config(options).config.mcp.servers
    with locations.open_existing_store(options) as store:
        require_few_tools(servers, [_as_accepted(item, name) for item in store.mcp_pins.find()])
        pinned = store.mcp_pins.accept(name)
    tools = sorted(pinned.accepted)
    output.print_result(
        options,
        {"server": name, "tools": tools},
        f"Accepted: {output.display_line(', '.join(tools), 500)}",
    )


@mcp.command()
@click.argument("name", metavar="NAME", type=TEXT)
@json_option
@click.pass_obj
def restart(options: CommandOptions, name: str) -> None:
    """End the program of the server NAME on this machine; the gateway starts it again."""
    from tertulia.mcp.leftovers import ProcessNotes

    _require_server(options, name)
    folder = os.path.join(locations.data_folder(), "mcp")
    ended = ProcessNotes(folder).end_server(name)
    sentence = (
        f"Ended {ended}; the gateway starts it again." if ended else "It is not running here."
    )
    output.print_result(options, {"server": name, "ended": ended}, sentence)


@mcp.command()
@click.option("--url", help="The address of the gateway; default: that of the configuration.")
@click.pass_obj
def serve(options: CommandOptions, url: str | None) -> None:
    """Offer the operations of a running gateway to an MCP client, on standard input and output.

    The token is that in the variable TERTULIA_TOKEN, or else that of the owner on this machine.
    """
    import asyncio

    from tertulia.mcp.stdio_bridge import serve_stdio

    http = locations.load_config(options).config.http
    address = url or f"http://{http.host}:{http.port}"
    secret = os.environ.get("TERTULIA_TOKEN") or _owner_secret()
    asyncio.run(serve_stdio(f"{address.rstrip('/')}/mcp", secret))


async def _serve_store(options: CommandOptions) -> None:
    """Run a gateway without platforms until the input ends, and pass the messages to it."""
    import asyncio
    import secrets

    import httpx2

    from tertulia.cli import serve as serving
    from tertulia.config.build import build_agents
    from tertulia.gateway.logging_setup import configured_logging
    from tertulia.http.app import application
    from tertulia.http.settings import NO_TOKEN, HttpSettings, Token
    from tertulia.mcp.stdio_bridge import serve_stdio

    config = locations.load_config(options).config
    agents = build_agents(config, locations.data_folder())
    secret = secrets.token_urlsafe(32)
    http = HttpSettings(tokens=(Token(name=NO_TOKEN, role="owner", secret=secret),))
    async with serving.open_store(options, config) as store:
        gateway = serving.build_gateway(config, store, agents, [])
        transport = httpx2.ASGITransport(app=application(gateway, http))
        # Standard output is the protocol's: the log goes to a file.
        log_settings = serving.chat_log(config.log)
        with configured_logging(log_settings, store.sync.redactor, is_quiet=True):
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(gateway.run())
                try:
                    await serve_stdio(_OWN_ADDRESS, secret, transport=transport)
                finally:
                    gateway.stop()


def _owner_secret() -> str:
    """Return the token that `tertulia run` made for the owner; empty if there is none."""
    try:
        with open(os.path.join(locations.data_folder(), "owner-token"), encoding="utf-8") as file:
            return file.read().strip()
    except OSError:
        return ""


async def _connect(name: str, settings: McpServerSettings) -> tuple[str, ToolList]:
    """Return what a server says about itself, and its tools; raise `ConfigError`."""
    from tertulia.mcp.protocol import CallLost, ServerRefused, ServerUnavailable
    from tertulia.mcp.server_client import connect

    try:
        connection = await connect(name, settings, os.environ)
        try:
            return await _describe(connection)
        finally:
            await connection.close()
    except (ServerUnavailable, ServerRefused, CallLost) as problem:
        raise ConfigError(
            f"The MCP server {name} does not work: {problem}.",
            hint="Run its command by hand, or check its address.",
            field=f"mcp.servers.{name}",
        ) from problem


async def _describe(connection: Any) -> tuple[str, ToolList]:
    from tertulia.mcp.protocol import negotiate

    session = await negotiate(connection, probe_seconds=_SECONDS / 6, seconds=_SECONDS)
    tools = await session.list_tools(seconds=_SECONDS)
    return f"{session.server}, {session.revision}", tools


def _require_server(options: CommandOptions, name: str) -> McpServerSettings:
    servers = locations.load_config(options).config.mcp.servers
    if name not in servers:
        raise NotFound(
            f"There is no MCP server {name!r} in the configuration.",
            hint="List them with: tertulia mcp list",
        )
    return servers[name]


def _read_json(text: str) -> Mapping[str, Any]:
    """Return the servers in a JSON text or file, by name; raise `ConfigError`."""
    if not text.lstrip().startswith("{"):
        try:
            with open(text, encoding="utf-8") as file:
                text = file.read()
        except (OSError, UnicodeError) as problem:
            reason = problem.strerror if isinstance(problem, OSError) else "it is not a text file"
            raise ConfigError(
                f"{output.display_line(text, 80)} cannot be read: {reason}.",
                hint='Give a file, or JSON such as {"mcpServers": {…}}.',
            ) from problem
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as problem:
        raise ConfigError(f"This is not JSON: {problem}.", hint="Correct it.") from problem
    servers = value.get("mcpServers", value) if isinstance(value, dict) else None
    if not isinstance(servers, dict) or not servers:
        raise ConfigError(
            "There is no server in this JSON.", hint='Give {"mcpServers": {"NAME": {…}}}.'
        )
    return servers


def _section_values(
    name: str, fields: Any
) -> tuple[dict[str, Any], dict[str, str], dict[str, str]]:
    """Return the values of a section, the variables of its secrets, and its headers."""
    if not isinstance(fields, dict):
        raise ConfigError(f"The server {name!r} is not an object.", hint="Correct the JSON.")
    for key, kind in (("args", list), ("env", dict), ("headers", dict)):
        if not isinstance(fields.get(key) or kind(), kind):
            expected = "a list" if kind is list else "an object"
            raise ConfigError(
                f"{key!r} of the server {name!r} is not {expected}.", hint="Correct the JSON."
            )
    if not isinstance(fields.get("command") or "", str):
        raise ConfigError(
            f"'command' of the server {name!r} is not a text.",
            hint='Give the program as "command" and its arguments as "args".',
        )
    values: dict[str, Any] = {}
    if fields.get("url"):
        values["url"] = str(fields["url"])
    elif fields.get("command"):
        arguments = fields.get("args") or []
        values["command"] = [str(fields["command"]), *map(str, arguments)]
    secrets = {str(key): str(key) for key in fields.get("env") or {}}
    headers = {str(key): str(value) for key, value in (fields.get("headers") or {}).items()}
    return values, secrets, headers


def _check_section(
    name: str, values: Mapping[str, Any], secrets: Mapping[str, str], headers: Mapping[str, str]
) -> None:
    """Raise `ConfigError` if the configuration would refuse the section."""
    from tertulia.mcp.settings import McpServerSettings, McpSettings

    command = tuple(values.get("command", ()))
    settings = McpServerSettings(
        command=command, url=values.get("url"), secrets=secrets, headers=headers
    )
    McpSettings(servers={name: settings})


def _refuse_configured(path: str, names: Iterable[str]) -> None:
    """Raise `ConfigError` if the file has a section of one of these servers, or is not valid."""
    if not os.path.exists(path):
        return
    from tertulia.config.load import load_config

    servers = load_config(path, {}).config.mcp.servers
    for name in names:
        if name in servers:
            raise ConfigError(
                f"The MCP server {name!r} is configured already. Nothing was written.",
                hint=f"Change its section in {path}, or give the new server another name.",
                field=f"mcp.servers.{name}",
            )


def _row(name: str, settings: McpServerSettings, pinned: PinnedTools | None) -> dict[str, Any]:
    return {
        "name": name,
        "address": settings.url or " ".join(settings.arguments),
        "role": settings.role,
        "approval": settings.approval,
        "tools": None if pinned is None else len(pinned.accepted),
        "changed": bool(_changes(pinned)),
    }


def _changes(pinned: PinnedTools | None) -> dict[str, str]:
    """Return the tools that are not as they were accepted, with what is different."""
    if pinned is None or pinned.offered is None:
        return {}
    changes = {}
    for name, fields in pinned.offered.items():
        if name not in pinned.accepted:
            changes[name] = "new"
        elif fields.get("hash") != pinned.accepted[name].get("hash"):
            changes[name] = "changed"
    return changes | {name: "gone" for name in pinned.accepted if name not in pinned.offered}


def _as_accepted(pinned: PinnedTools, name: str) -> PinnedTools:
    """Return the pins as they are once the tools of the server NAME are accepted."""
    if pinned.server != name or pinned.offered is None:
        return pinned
    return msgspec.structs.replace(pinned, accepted=pinned.offered, offered=None)


def _table(rows: Sequence[dict[str, Any]]) -> Table:
    table = output.new_table("name", "role", "approval", "tools", "address", elastic="address")
    for row in rows:
        count = "not seen yet" if row["tools"] is None else str(row["tools"])
        table.add_row(
            output.cell(row["name"]),
            row["role"],
            row["approval"],
            output.cell(f"{count}, changed" if row["changed"] else count),
            output.cell(row["address"]),
        )
    return table

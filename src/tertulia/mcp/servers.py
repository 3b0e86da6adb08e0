"""All MCP servers of a node: their tools for the agent, and their pinned definitions.

The definitions that a server gives of its tools when the owner adds it are pinned. A tool whose
definition changes later, or that is new, is not offered until the owner accepts it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec

from tertulia import aio
from tertulia.agents.base import Content, Tool
from tertulia.errors import ConfigError
from tertulia.mcp.definitions import MAX_TOOLS, ToolDefinition, ToolList, offered_name
from tertulia.mcp.leftovers import ProcessNotes
from tertulia.mcp.protocol import CallLost, ServerRefused, ServerUnavailable
from tertulia.mcp.results import to_content
from tertulia.mcp.server_client import IDLE_SECONDS, ServerClient
from tertulia.mcp.settings import McpServerSettings
from tertulia.records.mcp_pins import PinnedTools
from tertulia.records.people import Role

log = logging.getLogger("tertulia.mcp")

Tell = Callable[[str], Awaitable[None]]


class McpServers:
    """The MCP servers of one node.

    `tell` is called with a text for the owner, once for each change of a server's tools.
    """

    def __init__(
        self,
        store: aio.Store,
        servers: Mapping[str, McpServerSettings],
        *,
        folder: str | None = None,
        idle_seconds: float = IDLE_SECONDS,
    ) -> None:
        self._store = store
        self._notes = None if folder is None else ProcessNotes(folder)
        self.tell: Tell | None = None
        self._has_warned = False
        self.clients = {
            name: ServerClient(
                name,
                settings,
                on_tools=self._pin_tools,
                notes=self._notes,
                idle_seconds=idle_seconds,
            )
            for name, settings in servers.items()
        }

    async def run(self) -> None:
        """Keep every server connected until cancelled."""
        if self._notes is not None:
            count = await asyncio.to_thread(self._notes.end_leftovers)
            if count:
                log.warning("%s MCP servers of a gateway that is gone were ended", count)
        async with asyncio.TaskGroup() as tasks:
            for client in self.clients.values():
                tasks.create_task(client.run())

    async def tools_for(self, role: Role) -> tuple[Tool, ...]:
        """Return the tools that the agent may call for a person with that role, by name."""
        allowed = {
            name: client for name, client in self.clients.items() if client.settings.allows(role)
        }
        if not allowed:
            return ()
        pins = await self._store.mcp_pins.find()
        tools = [
            _make_tool(client, definition)
            for pinned in pins
            if (client := allowed.get(pinned.server)) is not None
            for definition in offered_definitions(pinned)
            if client.settings.offers(definition.name)
        ]
        if len(tools) > MAX_TOOLS and not self._has_warned:
            self._has_warned = True
            await self._report(f"{too_many_tools(len(tools))} Only {MAX_TOOLS} are offered now.")
        return tuple(sorted(tools, key=lambda tool: tool.name)[:MAX_TOOLS])

    async def _pin_tools(self, server: str, tools: ToolList) -> None:
        """Pin the first definitions of a server; store later ones, and report a change once."""
        for name, problem in tools.problems.items():
            log.warning("tool %s of MCP server %s is not offered: %s", name, server, problem)
        offered = encode_definitions(tools.tools)
        is_news = await self._store.mcp_pins.note_offered(server, offered)
        if not is_news:
            return
        text = (
            f"The tools of the MCP server {server} have changed since you accepted them. Changed"
            f" and new tools are not offered. Look at them: tertulia mcp check {server}; then, if"
            f" they are right: tertulia mcp accept {server}"
        )
        await self._report(text)

    async def _report(self, text: str) -> None:
        log.warning("%s", text)
        if self.tell is not None:
            await self.tell(text)


def too_many_tools(count: int) -> str:
    """Return the sentence that the servers offer too many tools."""
    return f"The MCP servers offer {count} tools; models get at most {MAX_TOOLS}."


def require_few_tools(
    servers: Mapping[str, McpServerSettings], pins: Sequence[PinnedTools]
) -> None:
    """Raise `ConfigError` if the accepted tools are more than models accept in a request."""
    count = sum(
        settings.offers(definition.name)
        for pinned in pins
        if (settings := servers.get(pinned.server)) is not None
        for definition in offered_definitions(pinned)
    )
    if count > MAX_TOOLS:
        raise ConfigError(
            too_many_tools(count),
            hint="Name those that are needed in mcp.servers.NAME.tools, with * and ?.",
            field="mcp.servers",
        )


def encode_definitions(definitions: Sequence[ToolDefinition]) -> dict[str, dict[str, Any]]:
    """Return the definitions by name, as they are stored; the hash stands beside each."""
    return {
        definition.name: {**msgspec.to_builtins(definition), "hash": definition.hash}
        for definition in definitions
    }


def decode_definitions(stored: Mapping[str, Mapping[str, Any]]) -> dict[str, ToolDefinition]:
    """Return stored definitions by name."""
    return {name: msgspec.convert(fields, ToolDefinition) for name, fields in stored.items()}


def offered_definitions(pinned: PinnedTools) -> list[ToolDefinition]:
    """Return the pinned definitions that the server has not changed since."""
    offered = pinned.offered if pinned.offered is not None else pinned.accepted
    unchanged = {
        name: fields
        for name, fields in pinned.accepted.items()
        if name in offered and offered[name].get("hash") == fields.get("hash")
    }
    return list(decode_definitions(unchanged).values())


def _make_tool(client: ServerClient, definition: ToolDefinition) -> Tool:
    settings = client.settings
    asks = settings.approval == "ask" or (
        settings.approval == "reads" and not definition.is_read_only
    )

    async def call(arguments: dict[str, Any]) -> Content:
        try:
            return to_content(await client.call(definition.name, arguments))
        except ServerUnavailable as problem:
            return f"Error: the server of this tool is not available ({problem}). It did not run."
        except CallLost as problem:
            return f"Error: {problem}. Whether the call had any effect is not known."
        except ServerRefused as problem:
            return f"Error: {problem}"

    description = definition.description or f"A tool of the server {client.name}."
    name = offered_name(client.name, definition.name)
    return Tool(name, description, definition.parameters, call, asks)

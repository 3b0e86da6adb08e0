"""Commands that people choose from Discord's menu, and the answers that they wait for.

A command must be acknowledged within three seconds; its answer then takes the place of "is
thinking …". The token for that is valid for 15 minutes and is kept in memory alone: after a
restart, or if another node sends the answer, it comes as an ordinary message instead.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Iterable, Mapping
from typing import Any, Final

from tertulia.errors import OutcomeUnknown, PlatformError
from tertulia.platforms.base import MenuEntry, Outgoing
from tertulia.platforms.discord.rest_api import RestApi, unreadable

log = logging.getLogger("tertulia.platforms")

_TOKEN_SECONDS: Final = 14 * 60.0
_ACKNOWLEDGE_SECONDS: Final = 3.0
_MAX_PENDING: Final = 1000
_NAME = re.compile(r"[a-z0-9_-]{1,32}")


class PendingCommand:
    """A command whose answer has not been sent yet."""

    def __init__(self, interaction: Mapping[str, Any], channel_id: str) -> None:
        self.id = str(interaction["id"])
        self.token = str(interaction["token"])
        self.channel_id = channel_id
        self.ends = time.monotonic() + _TOKEN_SECONDS
        self.is_acknowledged = asyncio.get_running_loop().create_future()
        self.delivery: str | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id}>"


class SlashCommands:
    """The commands that wait for an answer."""

    def __init__(self, api: RestApi) -> None:
        self._api = api
        self._pending: dict[str, PendingCommand] = {}

    def add(self, interaction: Mapping[str, Any], channel_id: str) -> PendingCommand:
        """Remember a command before it is handed over, because its answer may come at once."""
        now = time.monotonic()
        for old in [item for item in self._pending.values() if item.ends < now]:
            del self._pending[old.id]
        command = PendingCommand(interaction, channel_id)
        if len(self._pending) < _MAX_PENDING:
            self._pending[command.id] = command
        return command

    async def acknowledge(self, command: PendingCommand) -> None:
        """Tell Discord that an answer will come; without that there is an ordinary message."""
        path = f"/interactions/{command.id}/{command.token}/callback"
        is_acknowledged = False
        try:
            await self._api.ask("POST", path, {"type": 5}, seconds=_ACKNOWLEDGE_SECONDS)
            is_acknowledged = True
        except PlatformError as problem:
            log.warning("discord: a command was not acknowledged: %s", problem.message)
            self._pending.pop(command.id, None)
        finally:
            if not command.is_acknowledged.done():
                command.is_acknowledged.set_result(is_acknowledged)

    async def acknowledge_press(self, interaction: Mapping[str, Any]) -> None:
        """Tell Discord that a button had its effect; the message is changed later."""
        path = f"/interactions/{interaction['id']}/{interaction['token']}/callback"
        try:
            await self._api.ask("POST", path, {"type": 6}, seconds=_ACKNOWLEDGE_SECONDS)
        except PlatformError as problem:
            log.info("discord: a press was not acknowledged: %s", problem.message)

    def drop(self, command: PendingCommand) -> None:
        """Forget a command that was not handed over."""
        self._pending.pop(command.id, None)
        if not command.is_acknowledged.done():
            command.is_acknowledged.set_result(False)

    async def answer(self, message: Outgoing, channel_id: str, body: Mapping[str, Any]) -> Any:
        """Send a text as the answer to a command that waits in the channel; None if none does.

        An answer in a group names the command it replies to. The gateway's own replies name none:
        they answer the command that has waited longest.
        """
        command = self._find(message, channel_id)
        if command is None:
            return None
        command.delivery = message.delivery
        if not await asyncio.shield(command.is_acknowledged):
            return None
        application = await self._application()
        path = f"/webhooks/{application}/{command.token}/messages/@original"
        allowed = ("content", "allowed_mentions", "components")
        edit = {name: body[name] for name in allowed if name in body}
        try:
            answer = await self._api.send("PATCH", path, edit)
        except OutcomeUnknown:
            raise  # the same text goes to the same message once more
        except PlatformError as problem:
            log.warning("discord: the answer to a command was refused: %s", problem.message)
            self._pending.pop(command.id, None)
            return None
        self._pending.pop(command.id, None)
        return answer

    def _find(self, message: Outgoing, channel_id: str) -> PendingCommand | None:
        now = time.monotonic()
        commands = [
            command
            for command in self._pending.values()
            if command.channel_id == channel_id and command.ends > now
        ]
        for command in commands:
            if message.delivery == command.delivery or message.reply_to == command.id:
                return command
        if message.reply_to is not None:
            return None
        return next((command for command in commands if command.delivery is None), None)

    async def _application(self) -> str:
        application = (await self._api.ask_object("GET", "/applications/@me")).get("id")
        if not isinstance(application, str):
            raise unreadable()
        return application

    def is_command(self, message_id: str | None) -> bool:
        """Return whether a message id is that of a command that waits."""
        return message_id in self._pending

    async def fill_menu(self, application: str, entries: Iterable[MenuEntry]) -> None:
        """Set the menu, unless it is this one already: Discord limits changes by the day."""
        menu = [_definition(entry) for entry in entries if _NAME.fullmatch(entry.name)][:100]
        path = f"/applications/{application}/commands"
        current = await self._api.ask("GET", path)
        items = current if isinstance(current, list) else []
        before = [_shown_entry(item) for item in items]
        after = [_shown_entry(item) for item in menu]
        if sorted(before) != sorted(after):
            await self._api.ask("PUT", path, menu)


def _shown_entry(item: Any) -> tuple[str, str]:
    """Return what people see of a command in the menu."""
    fields = item if isinstance(item, dict) else {}
    return str(fields.get("name")), str(fields.get("description"))


def _definition(entry: MenuEntry) -> dict[str, Any]:
    option = {"type": 3, "name": "text", "description": "More, if the command takes it"}
    return {
        "type": 1,
        "name": entry.name,
        "description": (entry.description or entry.name)[:100],
        "options": [option],
        # In servers and in private chats with the bot, not in chats of others.
        "contexts": [0, 1],
        "integration_types": [0],
    }

"""Listening to Discord's gateway: connect, resume, hand each event over, catch up.

An event is handed over until it is stored; meanwhile heartbeats keep the connection, and nothing
more is read. The position moves behind what is stored. After a new session, messages that were
written meanwhile are read from the channels, before anything else is handed over.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from email.utils import parsedate_to_datetime
from typing import Any, Final, TypeVar

from msgspec.structs import replace

from tertulia.core.backoff import JITTER, Backoff
from tertulia.core.source import Source
from tertulia.errors import (
    AccountProblem,
    Error,
    LeaseLost,
    PlatformError,
    PlatformUnavailable,
    RateLimited,
    Refused,
)
from tertulia.platforms.base import MALFORMED, Changed, Passed, Receive, Update
from tertulia.platforms.discord import gateway_events
from tertulia.platforms.discord.cursor_position import Position
from tertulia.platforms.discord.gateway_events import Channel, ChatContext, DiscordBot
from tertulia.platforms.discord.rest_api import RestApi
from tertulia.platforms.discord.slash_commands import SlashCommands
from tertulia.platforms.discord.socket_session import (
    ConnectionEnded,
    Event,
    SocketSession,
    connect,
    run_together,
)
from tertulia.platforms.http_library import PathMissing

log = logging.getLogger("tertulia.platforms")

T = TypeVar("T")

_RECONNECT = Backoff(first=1, longest=30)
_STORE = Backoff(first=0.5, longest=10)
# A connection that lasted so long begins with the shortest pause again.
_STABLE_SECONDS: Final = 60.0
_CURSOR_SECONDS: Final = 30.0
# So many attempts to reach the address of a session, then a new one is begun.
_MAX_FAILURES: Final = 5
# So many attempts to read what the server does not have, or a proxy does not pass on.
_MAX_MISSING: Final = 4
_ROLES_SECONDS: Final = 600.0
_MAX_REMEMBERED: Final = 5_000
# Messages of different channels may come out of order by so much.
_MARGIN_SECONDS: Final = 60.0
# Nothing older is answered after an absence.
_ABSENCE_SECONDS: Final = 24 * 3600.0
_PAGE: Final = 100
_MAX_PAGES: Final = 20
_CHANNEL_EVENTS: Final = frozenset({
    "CHANNEL_CREATE", "CHANNEL_UPDATE", "CHANNEL_DELETE",
    "THREAD_CREATE", "THREAD_UPDATE", "THREAD_DELETE",
})  # fmt: skip


class EventListener:
    """Listens for one bot. `on_frame` is called at each sign of life, `on_ready` when it works."""

    def __init__(
        self,
        api: RestApi,
        token: str,
        bot: DiscordBot,
        commands: SlashCommands,
        *,
        account: str,
        gateway_url: str | None,
        intents: int,
        command_names: frozenset[str],
        on_frame: Callable[[], None],
        on_ready: Callable[[], None],
        on_problem: Callable[[str], None],
    ) -> None:
        self._api = api
        self._token = token
        self._bot = bot
        self._commands = commands
        self._account = account
        self._gateway_url = gateway_url
        self._intents = intents
        self._command_names = command_names
        self._on_frame = on_frame
        self._on_ready = on_ready
        self._on_problem = on_problem
        self._position = Position()
        self._cursor_at = 0.0
        self._is_greeted = False
        self._channels: OrderedDict[str, Channel] = OrderedDict()
        self._roles: dict[str, tuple[float, frozenset[str]]] = {}
        self._authors: OrderedDict[str, Source] = OrderedDict()

    async def run(self, cursor: str | None, receive: Receive) -> None:
        """Hand every update over until cancelled; raise `AccountProblem` if the bot is refused."""
        self._position = Position.read(cursor)
        attempts = failures = 0
        while True:
            started, pause = time.monotonic(), None
            self._is_greeted = False
            try:
                await self._connect(receive)
            except AccountProblem:
                raise
            except ConnectionEnded as ended:
                problem: PlatformError = ended
                pause = ended.pause
                if not ended.is_resumable:
                    self._position = self._position.without_session()
            except PlatformError as failure:
                problem = failure
            failures = 0 if self._is_greeted else failures + 1
            if failures >= _MAX_FAILURES:
                # The address of the session may be gone; the API tells a new one.
                self._position, failures = self._position.without_session(), 0
            self._on_problem(problem.message)
            attempts = 1 if time.monotonic() - started > _STABLE_SECONDS else attempts + 1
            await _pause(problem, attempts, pause)

    async def _connect(self, receive: Receive) -> None:
        """Make one connection and listen to it until it ends."""
        position = self._position
        url = position.url if position.is_resumable else await self._address()
        async with connect(self._api, self._gateway_url or url or "", self._on_frame) as session:
            interval = await session.hello()
            self._is_greeted = True
            if position.session is not None:
                await session.resume(self._token, position.session, position.seq)
            else:
                await session.identify(self._token, self._intents)
            await run_together(self._listen(session, receive), session.beat(interval))

    async def _address(self) -> str:
        """Return the address for a new session; wait if there were too many sessions today."""
        try:
            answer = await self._api.ask_object("GET", "/gateway/bot")
        except (Refused, PathMissing):
            answer = {}
        if self._gateway_url is not None and "session_start_limit" not in answer:
            return self._gateway_url  # a server of one's own, which counts no sessions
        try:
            limit = answer["session_start_limit"]
            url, left = str(answer["url"]), int(limit["remaining"])
            pause = float(limit["reset_after"]) / 1000
        except MALFORMED:
            raise PlatformUnavailable(
                "Discord did not say where its gateway is.", hint="Check base_url."
            ) from None
        if left < 1:
            # One session more would make Discord reset the token.
            raise RateLimited(
                "The bot has begun too many sessions today.",
                hint="Stop the program that connects again and again with this token.",
                retry_after=max(1.0, pause),
            )
        return url

    async def _listen(self, session: SocketSession, receive: Receive) -> None:
        async for event in session.events():
            await self._handle(event, receive)

    # -- events

    async def _handle(self, event: Event, receive: Receive) -> None:
        """Hand one event over, and move the position behind it."""
        if event.name == "READY":
            await self._begin(event, receive)
            return
        await self._note_private_chat(event, receive)
        before = self._position
        self._position = replace(before, seq=event.seq)
        try:
            await self._dispatch(event, receive)
        except MALFORMED as problem:
            log.warning(
                "discord: event %s was not understood and is skipped (%s in %s)",
                event.seq, type(problem).__name__, event.name[:40],
            )  # fmt: skip
        except BaseException:
            self._position = before  # it comes again after a resume
            raise
        if time.monotonic() - self._cursor_at > _CURSOR_SECONDS:
            await self._hand_over(Passed(cursor=self._position.cursor), receive)

    async def _note_private_chat(self, event: Event, receive: Receive) -> None:
        """Store a private chat before its first message: Discord lists none after an absence."""
        data = event.data
        if event.name == "MESSAGE_CREATE" and isinstance(data, dict) and not data.get("guild_id"):
            try:
                chat = gateway_events.read_id(data.get("channel_id"))
            except ValueError:
                return  # it is skipped as a message that is not understood
            if chat not in self._position.dms:
                self._position = self._position.after_message(0, chat)
                await self._hand_over(Passed(cursor=self._position.cursor), receive)

    async def _dispatch(self, event: Event, receive: Receive) -> None:
        data = event.data
        match event.name:
            case "RESUMED":
                self._on_ready()
            case "MESSAGE_CREATE":
                await self._on_message(data, receive)
            case "MESSAGE_UPDATE" if gateway_events.is_message(data):
                await self._on_edit(data, receive)
            case "MESSAGE_DELETE":
                await self._on_deleted([data["id"]], receive)
            case "MESSAGE_DELETE_BULK":
                await self._on_deleted(data["ids"], receive)
            case "INTERACTION_CREATE":
                await self._on_interaction(data, receive)
            case name if name in _CHANNEL_EVENTS:
                self._channels.pop(str(data["id"]), None)
            case "GUILD_CREATE":
                for channel in [*data.get("channels", ()), *data.get("threads", ())]:
                    self._remember_channel({**channel, "guild_id": data["id"]})

    async def _begin(self, event: Event, receive: Receive) -> None:
        """Take a new session over, after everything before it was read."""
        try:
            session, url = event.data["session_id"], event.data["resume_gateway_url"]
        except MALFORMED:
            raise ConnectionEnded("Discord began a session without an id.") from None
        before = self._position
        if before.latest:
            try:
                await self._catch_up(receive)
            except BaseException:
                self._position = before  # all of it is read again
                raise
        else:
            now = gateway_events.snowflake(self._server_time())
            self._position = replace(before, latest=now)
        self._position = replace(self._position, session=session, url=url, seq=event.seq)
        await self._hand_over(Passed(cursor=self._position.cursor), receive)
        self._on_ready()

    async def _on_message(
        self, message: Any, receive: Receive, channel: Channel | None = None
    ) -> None:
        is_live = channel is None
        is_private = is_live and message.get("guild_id") is None
        chat = gateway_events.read_id(message["channel_id"]) if is_private else None
        # A wrong id must not hide what is written before its time.
        newest = gateway_events.snowflake(self._server_time())
        message_id = min(int(gateway_events.read_id(message["id"])), newest)
        self._position = self._position.after_message(message_id, chat)
        if gateway_events.is_own(message, self._bot) or not gateway_events.is_message(message):
            return
        context = await self._context(message, channel)
        update = gateway_events.read_message(message, self._bot, context)
        if update is None:
            return
        assert update.message_id is not None
        remember(self._authors, update.message_id, update.source)
        # A message that is read after an absence is before the new session's first event.
        await self._hand_over(
            replace(update, cursor=self._position.cursor) if is_live else update, receive
        )

    async def _on_edit(self, message: Any, receive: Receive) -> None:
        if "author" not in message or gateway_events.is_own(message, self._bot):
            return
        context = await self._context(message, None)
        update = gateway_events.read_edit(message, self._bot, context)
        if update is not None:
            await self._hand_over(replace(update, cursor=self._position.cursor), receive)

    async def _on_deleted(self, message_ids: list[Any], receive: Receive) -> None:
        """Withdraw messages; Discord does not say whose they were, so only recent ones."""
        for message_id in message_ids:
            source = self._authors.get(message_id)
            if source is not None:
                cursor = self._position.cursor if message_id == message_ids[-1] else None
                change = Changed(
                    kind="deleted", source=source, message_id=message_id, cursor=cursor
                )
                await self._hand_over(change, receive)

    async def _on_interaction(self, interaction: Any, receive: Receive) -> None:
        channel_data = {"guild_id": interaction.get("guild_id"), **interaction["channel"]}
        channel = self._remember_channel(channel_data)
        context = await self._context(interaction, channel)
        press = gateway_events.read_press(interaction, context)
        if press is not None:
            await self._hand_over(replace(press, cursor=self._position.cursor), receive)
            await self._commands.acknowledge_press(interaction)
            return
        update = gateway_events.read_command(interaction, context)
        if update is None:
            return
        command = self._commands.add(interaction, channel.id)
        try:
            await self._hand_over(replace(update, cursor=self._position.cursor), receive)
        except BaseException:
            self._commands.drop(command)
            raise
        await self._commands.acknowledge(command)

    async def _hand_over(self, update: Update, receive: Receive) -> None:
        """Hand an update over until it is stored; the connection lives on meanwhile."""
        attempts = 0
        while True:
            try:
                await receive(update)
            except LeaseLost:
                raise
            except Error as problem:
                attempts += 1
                seconds = _STORE.delay(attempts, JITTER.random())
                log.warning(
                    "discord: an update could not be stored, trying again in %.1f s: %s",
                    seconds, problem,
                )  # fmt: skip
                await asyncio.sleep(seconds)
            except MALFORMED as bug:
                # It must not be skipped as an event that is not understood.
                raise RuntimeError("an update could not be handed over") from bug
            else:
                if update.cursor is not None:
                    self._cursor_at = time.monotonic()
                return

    # -- channels and roles

    async def _context(self, message: Any, channel: Channel | None) -> ChatContext:
        """Return where a message was written."""
        guild_id = message.get("guild_id")
        if channel is None:
            channel_id = gateway_events.read_id(message["channel_id"])
            if guild_id is None:
                channel = Channel(id=channel_id, type=gateway_events.DM)
            else:
                channel = await self._channel(channel_id, str(guild_id))
        parent, roles = None, frozenset[str]()
        if channel.is_thread and channel.parent_id is not None:
            parent = await self._channel(channel.parent_id, channel.guild_id)
        guild_id = guild_id or channel.guild_id
        if guild_id is not None and gateway_events.mentions_roles(message):
            roles = await self._own_roles(str(guild_id))
        return ChatContext(
            account=self._account, channel=channel, parent=parent, roles=roles,
            commands=self._command_names,
        )  # fmt: skip

    async def _channel(self, channel_id: str, guild_id: str | None) -> Channel:
        channel = self._channels.get(channel_id)
        if channel is not None:
            return channel
        try:
            data = await self._ask_until_answered(f"/channels/{channel_id}")
            return self._remember_channel({"guild_id": guild_id, **data})
        except (Refused, *MALFORMED):  # its messages are read all the same
            return Channel(id=channel_id, type=0, guild_id=guild_id)

    def _remember_channel(self, data: Any) -> Channel:
        channel = Channel.read(data)
        remember(self._channels, channel.id, channel)
        return channel

    async def _own_roles(self, guild_id: str) -> frozenset[str]:
        until, roles = self._roles.get(guild_id, (0.0, frozenset[str]()))
        if until < time.monotonic():
            try:
                path = f"/guilds/{guild_id}/members/{self._bot.id}"
                roles = frozenset((await self._ask_until_answered(path))["roles"])
            except (Refused, *MALFORMED):
                roles = frozenset()
            self._roles[guild_id] = time.monotonic() + _ROLES_SECONDS, roles
        return roles

    async def _ask_until_answered(self, path: str) -> Any:
        """Ask until there is an answer; raise `Refused`, or `AccountProblem`."""

        async def ask() -> Any:
            try:
                return await self._api.ask("GET", path)
            except PathMissing as problem:
                # Only names are asked for here: no message waits for them.
                raise Refused(problem.message, hint="It is left out.") from None

        return await ask_until_answered(ask)

    async def _ask_for_list(self, path: str, field: str | None = None) -> list[Any]:
        """Ask until there is a list, which may be a field of the answer; raise as above."""

        async def ask() -> list[Any]:
            answer = await self._api.ask("GET", path)
            if field is not None and isinstance(answer, dict):
                answer = answer.get(field)
            if not isinstance(answer, list):
                raise PathMissing("Discord gave no list.", hint="Check base_url.")
            return answer

        return await ask_until_answered(ask)

    # -- catching up

    async def _catch_up(self, receive: Receive) -> None:
        """Read the messages that were written while there was no session."""
        oldest = gateway_events.snowflake(self._server_time() - _ABSENCE_SECONDS)
        margin = int(_MARGIN_SECONDS * 1000) << 22
        since = max(self._position.latest - margin, oldest)
        for channel_id in self._position.dms:
            await self._read_since(Channel(id=channel_id, type=gateway_events.DM), since, receive)
        for guild_id in await self._guilds():
            for channel in await self._changed_channels(guild_id, since):
                await self._read_since(channel, since, receive)

    async def _guilds(self) -> list[str]:
        guilds: list[str] = []
        while True:
            after = f"&after={guilds[-1]}" if guilds else ""
            try:
                page = await self._ask_for_list(f"/users/@me/guilds?limit=200{after}")
            except Refused:
                log.warning("discord: the list of servers could not be read")
                return guilds
            ids = [str(number) for number in map(_number_of, page) if number]
            guilds += ids
            if len(page) < 200 or not ids:
                return guilds

    async def _changed_channels(self, guild_id: str, since: int) -> list[Channel]:
        """Return the channels and threads of a server with messages after `since`."""
        try:
            data = await self._ask_for_list(f"/guilds/{guild_id}/channels")
            data += await self._ask_for_list(f"/guilds/{guild_id}/threads/active", "threads")
        except Refused:
            log.warning("discord: server %s could not be read", guild_id)
            return []
        channels = []
        for item in data:
            try:
                channel = self._remember_channel({"guild_id": guild_id, **item})
            except MALFORMED as problem:
                name = type(problem).__name__
                log.warning("discord: a channel was not understood and is skipped (%s)", name)
                continue
            is_readable = channel.is_thread or channel.type in gateway_events.READABLE
            if is_readable and _number_of({"id": channel.last_message_id}) > since:
                channels.append(channel)
        return channels

    async def _read_since(self, channel: Channel, since: int, receive: Receive) -> None:
        for _ in range(_MAX_PAGES):
            path = f"/channels/{channel.id}/messages?after={since}&limit={_PAGE}"
            try:
                page = await self._ask_for_list(path)
            except Refused as problem:
                if problem.status is None:  # else the bot may not read here
                    log.warning(
                        "discord: what was written in channel %s meanwhile is not read: %s",
                        channel.id, problem.message,
                    )  # fmt: skip
                return
            for message in sorted(page, key=_number_of):
                since = max(since, _number_of(message))
                try:
                    await self._on_message(message, receive, channel)
                except MALFORMED as problem:
                    name = type(problem).__name__
                    log.warning("discord: a message was not understood and is skipped (%s)", name)
            if len(page) < _PAGE:
                return
        log.warning("discord: a channel has more new messages than are read after an absence")

    def _server_time(self) -> float:
        """Return the time of Discord's servers: the clock of this machine may be wrong."""
        try:
            return parsedate_to_datetime(self._api.date or "").timestamp()
        except ValueError:
            return time.time()


async def ask_until_answered(
    ask: Callable[[], Awaitable[T]], on_problem: Callable[[str], None] | None = None
) -> T:
    """Call `ask` until there is an answer; raise `Refused`, or `AccountProblem`."""
    attempts = 0
    while True:
        try:
            return await ask()
        except AccountProblem:
            raise
        except PlatformError as problem:
            attempts += 1
            is_missing = isinstance(problem, PathMissing) and attempts >= _MAX_MISSING
            if is_missing or not problem.retryable:
                status = problem.status if isinstance(problem, Refused) else None
                raise Refused(problem.message, hint="It is left out.", status=status) from None
            if on_problem is not None:
                on_problem(problem.message)
            await _pause(problem, attempts)


async def _pause(problem: PlatformError, attempts: int, seconds: float | None = None) -> None:
    if seconds is None:
        seconds = _RECONNECT.delay(attempts, JITTER.random())
        if isinstance(problem, RateLimited):
            seconds = max(seconds, problem.retry_after)
    log.warning("discord: %s Trying again in %.1f s.", problem.message, seconds)
    await asyncio.sleep(seconds)


def _number_of(item: Any) -> int:
    """Return the id of an item as a number; 0 if it has none."""
    try:
        return int(gateway_events.read_id(item["id"]))
    except MALFORMED:
        return 0


def remember(memory: OrderedDict[str, Any], key: str, value: Any) -> None:
    """Set a value as the newest one, and forget the oldest beyond a limit."""
    memory[key] = value
    memory.move_to_end(key)
    while len(memory) > _MAX_REMEMBERED:
        memory.popitem(last=False)

"""A Discord on loopback, REST API and gateway, driven by a script.

It keeps the promises of the real one that an adapter depends on: a session replays everything after
the `seq` of a Resume, also to another process; closing with 1000 or 1001 ends it; a missing
acknowledgement, op 7 and op 9 come when the script says so; sessions are counted; a nonce is
remembered; messages are checked (token, channel, length, mentions, reply). `test_discord.py`
holds it against another project's client.

    with DiscordServer() as server:
        server.write(DM, "hello")
        server.wait_sent(1)
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import socket
import time
import urllib.parse
import zlib
from collections.abc import AsyncGenerator, Mapping
from email.utils import formatdate
from typing import Any, NamedTuple

import wsproto
from wsproto.connection import ConnectionState
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    RejectConnection,
    TextMessage,
)
from wsproto.events import Request as Upgrade

from tests.servers.no_delay import send_at_once
from tests.servers.ports import free_port
from tests.servers.scripted_http import Fault, Request, Response, ScriptedServer

TOKEN = "MTIzNDU2.fake.token_that-nobody-may-ever-see"
BOT = {"id": "900", "username": "Tertulia", "discriminator": "0", "bot": True, "avatar": None,
       "global_name": None}  # fmt: skip
ANA = {"id": "42", "username": "ana", "discriminator": "0", "global_name": "Ana Díaz",
       "avatar": None}  # fmt: skip
APPLICATION = "901"
GUILD = "100"
GENERAL = "1000"  # a channel of the server
FORUM = "1001"
THREAD = "2000"  # in GENERAL
POST = "2001"  # in FORUM
DM = "3000"  # with Ana
ROLE = "5000"  # of the bot
MAX_FILE = 10 * 2**20
MESSAGE_CONTENT = 1 << 15
_EPOCH = 1_420_070_400_000
_ESCAPE = re.compile(r"\\([\\*_~|`\[#>-])")


class Sent(NamedTuple):
    """A message that the bot sent."""

    channel: str
    content: str
    message_id: str
    reply_to: str | None = None
    file: tuple[str, bytes] | None = None
    has_buttons: bool = False


class Refusal(Exception):
    """A refusal of the API: its status, code and message."""

    def __init__(self, status: int, code: int, message: str, **more: Any) -> None:
        super().__init__(message)
        self.status = status
        self.body = {"code": code, "message": message, **more}


class Session:
    """A session of the gateway, which outlives its connections."""

    def __init__(self, number: int, intents: int) -> None:
        self.id = f"session{number}"
        self.intents = intents
        self.events: list[bytes] = []
        self.is_valid = True
        self.connection: Connection | None = None

    @property
    def seq(self) -> int:
        return len(self.events)


class Connection:
    """A WebSocket of the gateway."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.protocol = wsproto.WSConnection(wsproto.ConnectionType.SERVER)
        self.zlib: Any = None
        self.session: Session | None = None
        self.position = 0  # how many events of the session were sent through it

    def send(self, frame: Mapping[str, Any]) -> None:
        self.send_raw(json.dumps(frame).encode())

    def send_raw(self, frame: bytes) -> None:
        if self.protocol.state is not ConnectionState.OPEN:
            return
        if self.zlib is None:
            event: Any = TextMessage(frame.decode())
        else:
            packed = self.zlib.compress(frame) + self.zlib.flush(zlib.Z_SYNC_FLUSH)
            event = BytesMessage(packed)
        self.writer.write(self.protocol.send(event))

    def close(self, code: int) -> None:
        if self.protocol.state is ConnectionState.OPEN:
            self.writer.write(self.protocol.send(CloseConnection(code, "scripted")))

    def cut(self) -> None:
        self.writer.transport.abort()


class DiscordServer(ScriptedServer):
    """One bot, a server with some channels, and everything that was sent."""

    def __init__(self) -> None:
        super().__init__()
        self.token = TOKEN
        self.flags = 1 << 19  # the intent of message content is on
        self.channels: dict[str, dict[str, Any]] = {
            GENERAL: {"id": GENERAL, "type": 0, "name": "general", "topic": "All and nothing"},
            FORUM: {"id": FORUM, "type": 15, "name": "help"},
            THREAD: {"id": THREAD, "type": 11, "name": "a thread", "parent_id": GENERAL},
            POST: {"id": POST, "type": 11, "name": "a post", "parent_id": FORUM},
            DM: {"id": DM, "type": 1, "recipients": [ANA]},
        }
        for channel in self.channels.values():
            channel["last_message_id"] = None
            if channel["type"] != 1:
                channel |= {"guild_id": GUILD, "position": 0, "permission_overwrites": [],
                            "nsfw": False, "flags": 0}  # fmt: skip
        self.refused: dict[str, Refusal] = {}  # by channel
        self.messages: dict[str, dict[str, Any]] = {}
        self.nonces: dict[str, str] = {}
        self.sent: list[Sent] = []
        self.edits: list[tuple[str, str]] = []
        self.typing: list[str] = []
        self.commands: list[dict[str, Any]] = []
        self.interactions: dict[str, dict[str, Any]] = {}
        self.pings: list[str] = []
        self.violations: list[str] = []
        self.files: dict[str, bytes | None] = {}
        self.file_types: dict[str, str] = {}
        self.is_expired = False
        self.limits: dict[str, str] = {}  # headers of answers
        # the gateway
        self.sessions: dict[str, Session] = {}
        self.identifies = 0
        self.resumes: list[int] = []
        self.heartbeats: list[int | None] = []
        self.closes: list[int] = []
        self.session_starts_left = 1000
        self.heartbeat_millis = 41_250
        self.is_silent = False
        self.acknowledges = True
        self.refuses_handshake: int | None = None
        self.gateway_port = 0
        self.connections: set[Connection] = set()
        self._gateway: socket.socket | None = None
        self._last_id = 0

    @property
    def base_url(self) -> str:
        return f"{self.url}/api/v10"

    @property
    def gateway_url(self) -> str:
        return f"ws://127.0.0.1:{self.gateway_port}"

    # -- people

    def write(
        self,
        channel: str,
        text: str = "",
        *,
        user: Mapping[str, Any] = ANA,
        mentions_bot: bool = False,
        reply_to: str | None = None,
        message_id: str | None = None,
        **fields: Any,
    ) -> dict[str, Any]:
        """Write a message as a person, and return it; `fields` are added to it."""
        with self.lock:
            message = self._message(channel, text, user, message_id)
            if mentions_bot:
                message["mentions"] = [BOT]
            if reply_to is not None:
                message |= {
                    "type": 19,
                    "message_reference": {"message_id": reply_to, "channel_id": channel},
                    "referenced_message": self.messages.get(reply_to),
                }
            message.update(fields)
            self._publish("MESSAGE_CREATE", message)
            return message

    def message(self, channel: str, text: str, user: Mapping[str, Any] = ANA) -> dict[str, Any]:
        """Return a new message of a person, without any event of it."""
        with self.lock:
            return self._message(channel, text, user, None)

    def edit(self, message: Mapping[str, Any], text: str) -> None:
        """Edit a message as the person who wrote it."""
        stamp = "2026-11-17T00:00:00.000000+00:00"
        edited = {**message, "content": text, "edited_timestamp": stamp}
        self.messages[message["id"]] = edited
        self._publish("MESSAGE_UPDATE", edited)

    def delete(self, message: Mapping[str, Any]) -> None:
        """Delete a message."""
        self.messages.pop(message["id"], None)
        guild = self._guild_of(message["channel_id"])
        self.dispatch(
            "MESSAGE_DELETE", {"id": message["id"], "channel_id": message["channel_id"], **guild}
        )

    def choose(
        self, name: str, text: str | None = None, *, channel: str = DM, user: Any = ANA
    ) -> dict[str, Any]:
        """Choose a command from the menu, as a person."""
        options = [] if text is None else [{"type": 3, "name": "text", "value": text}]
        data = {"id": "1", "name": name, "type": 1, "options": options}
        return self._interact(2, channel, user, data)

    def press(self, message_id: str, value: str, *, user: Any = ANA) -> dict[str, Any]:
        """Press a button under a message, as a person."""
        message = self.messages[message_id]
        data = {"component_type": 2, "custom_id": value, "id": 2}
        return self._interact(3, message["channel_id"], user, data, message=message)

    def buttons(self, message_id: str) -> list[tuple[str, str]]:
        """Return the buttons that a message has now: labels and values."""
        rows = self.messages[message_id]["components"]
        return [(key["label"], key["custom_id"]) for row in rows for key in row["components"]]

    def _interact(
        self, kind: int, channel: str, user: Any, data: Mapping[str, Any], **more: Any
    ) -> dict[str, Any]:
        guild = self._guild_of(channel)
        member = {"user": user, "roles": [], "joined_at": None, "deaf": False, "mute": False,
                  "flags": 0, "permissions": "0"}  # fmt: skip
        who = {"member": member} if guild else {"user": user}
        with self.lock:
            interaction = {
                "id": self._new_id(),
                "application_id": APPLICATION,
                "type": kind,
                "token": f"interaction-secret-{len(self.interactions)}",
                "version": 1,
                "attachment_size_limit": MAX_FILE,
                "entitlements": [],
                "authorizing_integration_owners": {},
                "context": 0 if guild else 1,
                "locale": "en-US",
                "app_permissions": "0",
                "channel_id": channel,
                "channel": self.channels[channel],
                "data": data,
                **guild,
                **who,
                **more,
            }
            self.interactions[interaction["token"]] = {
                "channel": channel, "state": "new", "type": kind,
            }  # fmt: skip
            self.dispatch("INTERACTION_CREATE", interaction)
            return interaction

    def attach(self, content: bytes | None, **fields: Any) -> dict[str, Any]:
        """Return an attachment with some content; None is a file without end."""
        with self.lock:
            number = self._new_id()
            self.files[number] = content
            name = fields.get("filename", "file.bin")
            self.file_types[number] = fields.get("content_type", "application/octet-stream")
            size = 10 if content is None else len(content)
            url = f"{self.url}/attachments/1/{number}/{name}?ex=1&is=2&hm=signature-of-a-file"
            return {"id": number, "filename": name, "size": size, "url": url, "proxy_url": url,
                    "content_type": self.file_types[number], **fields}  # fmt: skip

    def wait_sent(self, count: int) -> list[Sent]:
        """Wait until the bot has sent so many messages, and return them."""
        self.wait(lambda: len(self.sent) >= count)
        return list(self.sent)

    @property
    def texts(self) -> list[str]:
        """Return what people read in the messages of the bot, as they are now."""
        return [shown(self.messages[m.message_id]["content"]) for m in self.sent
                if m.message_id in self.messages]  # fmt: skip

    # -- the script of the gateway

    def dispatch(self, name: str, data: Any) -> None:
        """Send an event to every session."""
        with self.lock:
            for session in self.sessions.values():
                self._dispatch(session, name, self._filtered(session, data, name))
        self.notify()

    def dispatch_raw(self, frame: bytes) -> None:
        """Send a frame as it is, with no number, to every connection."""
        self._loop.call_soon_threadsafe(self._send_raw, frame)

    def order(self, operation: int, data: Any = None) -> None:
        """Send an operation such as 7 or 9 to every connection."""
        self.dispatch_raw(json.dumps({"op": operation, "d": data}).encode())

    def close(self, code: int) -> None:
        """Close every connection with a code."""
        self._on_connections(lambda connection: connection.close(code))

    def cut(self) -> None:
        """Cut every connection without a word."""
        self._on_connections(lambda connection: connection.cut())

    def expire_sessions(self) -> None:
        """Forget all sessions: a Resume is answered with op 9."""
        with self.lock:
            for session in self.sessions.values():
                session.is_valid = False

    def move_gateway(self) -> None:
        """Serve the gateway on another port, and not on the old one any more."""

        async def work() -> None:
            self._close_gateway()
            self.gateway_port = 0
            self._open_gateway()

        self.run(work())

    def wait_connected(self, count: int = 1) -> None:
        """Wait until so many sessions have a connection."""
        self.wait(lambda: sum(s.connection is not None for s in self.sessions.values()) >= count)

    def is_stored(self, seq: int) -> bool:
        """Return whether a heartbeat has said that the event `seq` was stored."""
        return (next(reversed(self.heartbeats), 0) or 0) >= seq

    @property
    def seq(self) -> int:
        """Return the number of the last event of the newest session."""
        return list(self.sessions.values())[-1].seq

    def revoke(self, token: str = "another.token") -> None:
        """Replace the token: REST answers 401, and the gateway closes with 4004."""
        self.token = token
        self.close(4004)

    def _on_connections(self, act: Any) -> None:
        async def work() -> None:
            for connection in list(self.connections):
                act(connection)

        self.run(work())

    def _send_raw(self, frame: bytes) -> None:
        for connection in list(self.connections):
            if connection.session is not None:
                connection.send_raw(frame)

    def _dispatch(self, session: Session, name: str, data: Any) -> None:
        frame = {"op": 0, "t": name, "s": session.seq + 1, "d": data}
        session.events.append(json.dumps(frame).encode())
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._deliver, session)

    def _deliver(self, session: Session) -> None:
        connection = session.connection
        while connection is not None and not self.is_silent and connection.position < session.seq:
            connection.send_raw(session.events[connection.position])
            connection.position += 1

    def _filtered(self, session: Session, data: Any, name: str) -> Any:
        """Without the intent, the content of a message in a server is only for the mentioned."""
        is_content = name in ("MESSAGE_CREATE", "MESSAGE_UPDATE") and isinstance(data, dict)
        if not is_content or session.intents & MESSAGE_CONTENT or "guild_id" not in data:
            return data
        if any(person.get("id") == BOT["id"] for person in data.get("mentions", ())):
            return data
        return {**data, "content": "", "attachments": []}

    # -- the gateway

    async def _listen(self) -> None:
        await super()._listen()
        self._open_gateway()

    async def _shut(self) -> None:
        self._close_gateway()
        await super()._shut()

    def _open_gateway(self) -> None:
        self._gateway = socket.create_server(("127.0.0.1", self.gateway_port or free_port()))
        self._gateway.setblocking(False)
        self.gateway_port = self._gateway.getsockname()[1]
        loop = asyncio.get_running_loop()
        loop.add_reader(self._gateway, self._accept_gateway, self._gateway)

    def _close_gateway(self) -> None:
        if self._gateway is not None:
            asyncio.get_running_loop().remove_reader(self._gateway)
            self._gateway.close()
            self._gateway = None
        for connection in list(self.connections):
            connection.cut()

    def _accept_gateway(self, listener: socket.socket) -> None:
        try:
            connected, _ = listener.accept()
        except OSError:
            return  # the client has gone already
        connected.setblocking(False)
        send_at_once(connected)
        task = asyncio.get_running_loop().create_task(self._open_socket(connected))
        self._connections[task] = connected
        task.add_done_callback(lambda done: self._connections.pop(done, None))

    async def _open_socket(self, connected: socket.socket) -> None:
        try:
            reader, writer = await asyncio.open_connection(sock=connected, limit=2**26)
        except (OSError, asyncio.CancelledError):
            connected.close()
            return
        await self._serve(Connection(reader, writer))

    async def _serve(self, connection: Connection) -> None:
        self.connections.add(connection)
        try:
            while data := await connection.reader.read(65536):
                connection.protocol.receive_data(data)
                for event in connection.protocol.events():
                    self._on_event(connection, event)
                await connection.writer.drain()
                if connection.protocol.state is ConnectionState.CLOSED:
                    break
        except (OSError, asyncio.CancelledError, wsproto.utilities.ProtocolError):
            pass
        finally:
            self.connections.discard(connection)
            if connection.session is not None and connection.session.connection is connection:
                connection.session.connection = None
            connection.writer.transport.abort()
            self.notify()

    def _on_event(self, connection: Connection, event: Any) -> None:
        protocol, writer = connection.protocol, connection.writer
        if isinstance(event, Upgrade):
            query = dict(urllib.parse.parse_qsl(event.target.partition("?")[2]))
            if self.refuses_handshake is not None:
                writer.write(protocol.send(RejectConnection(status_code=self.refuses_handshake)))
                return
            if query.get("v") != "10" or query.get("encoding") != "json":
                self.violations.append(f"the gateway was opened with {query}")
            writer.write(protocol.send(AcceptConnection()))
            if query.get("compress") == "zlib-stream":
                connection.zlib = zlib.compressobj()
            if not self.is_silent:
                interval = {"heartbeat_interval": self.heartbeat_millis}
                connection.send({"op": 10, "d": interval, "s": None, "t": None})
        elif isinstance(event, TextMessage):
            self._on_frame(connection, json.loads(event.data))
        elif isinstance(event, CloseConnection):
            with self.changed:
                self.closes.append(event.code)
            if event.code in (1000, 1001) and connection.session is not None:
                connection.session.is_valid = False
            with contextlib.suppress(wsproto.utilities.ProtocolError):
                writer.write(protocol.send(event.response()))

    def _on_frame(self, connection: Connection, frame: Mapping[str, Any]) -> None:
        data = frame.get("d")
        match frame["op"]:
            case 1:
                with self.changed:
                    self.heartbeats.append(data)
                    self.changed.notify_all()
                if self.acknowledges and not self.is_silent:
                    connection.send({"op": 11, "d": None})
            case 2:
                self._identify(connection, frame["d"])
            case 6:
                self._resume(connection, frame["d"])
        self.notify()

    def _identify(self, connection: Connection, data: Mapping[str, Any]) -> None:
        self.identifies += 1
        self.session_starts_left -= 1
        if data["token"] != self.token:
            connection.close(4004)
        elif data["intents"] & MESSAGE_CONTENT and not self.flags & (0b11 << 18):
            connection.close(4014)
        else:
            session = Session(len(self.sessions), data["intents"])
            session.connection, connection.session = connection, session
            with self.lock:
                self.sessions[session.id] = session
                ready = {"v": 10, "user": BOT, "guilds": [{"id": GUILD, "unavailable": True}],
                         "session_id": session.id, "resume_gateway_url": self.gateway_url,
                         "application": {"id": APPLICATION, "flags": self.flags}}  # fmt: skip
                self._dispatch(session, "READY", ready)
                self._dispatch(session, "GUILD_CREATE", self._guild())

    def _resume(self, connection: Connection, data: Mapping[str, Any]) -> None:
        if data["token"] != self.token:
            connection.close(4004)
            return
        session = self.sessions.get(data["session_id"])
        if session is None or not session.is_valid:
            connection.send({"op": 9, "d": False})
            return
        if data["seq"] > session.seq:
            connection.close(4007)
            return
        if session.connection is not None:
            session.connection.close(4000)
        with self.lock:
            self.resumes.append(data["seq"])
            session.connection, connection.session = connection, session
            connection.position = data["seq"]
            self._deliver(session)
            self._dispatch(session, "RESUMED", {"_trace": []})

    def _guild(self) -> dict[str, Any]:
        channels = [item for item in self.channels.values() if item["type"] in (0, 15)]
        threads = [item for item in self.channels.values() if item["type"] == 11]
        everyone = {"id": GUILD, "name": "@everyone", "permissions": "0", "position": 0,
                    "color": 0, "hoist": False, "managed": False, "mentionable": False,
                    "flags": 0}  # fmt: skip
        return {"id": GUILD, "name": "Garden", "owner_id": "42", "channels": channels,
                "threads": [_thread(item) for item in threads], "members": [], "roles": [everyone],
                "emojis": [], "stickers": [], "voice_states": [], "presences": [],
                "stage_instances": [], "guild_scheduled_events": [], "soundboard_sounds": [],
                "features": [], "member_count": 2, "large": False, "unavailable": False,
                "joined_at": "2026-01-01T00:00:00.000000+00:00", "mfa_level": 0,
                "verification_level": 0, "default_message_notifications": 0,
                "explicit_content_filter": 0, "system_channel_flags": 0, "premium_tier": 0,
                "nsfw_level": 0, "preferred_locale": "en-US",
                "afk_timeout": 300}  # fmt: skip

    # -- requests

    def operation_of(self, request: Request) -> str:
        path = request.path.partition("?")[0].removeprefix("/api/v10")
        if path.startswith("/attachments/"):
            return "file"
        match path.strip("/").split("/"):
            case ["channels", _, "messages"]:
                return "create" if request.method == "POST" else "history"
            case ["channels", _, "messages", _]:
                return {"PATCH": "edit", "DELETE": "delete"}.get(request.method, "message")
            case ["channels", _, "typing"]:
                return "typing"
            case ["interactions", *_]:
                return "callback"
            case ["webhooks", *_]:
                return "answer"
            case ["applications", _, "commands"]:
                return "commands"
        return path.strip("/")

    async def respond(self, request: Request) -> Response:
        if request.operation == "file":
            return self._download(request)
        path, _, query = request.path.removeprefix("/api/v10").partition("?")
        headers = {"Date": formatdate(usegmt=True), **self.limits}
        has_token = request.headers.get("authorization") == f"Bot {self.token}"
        is_open = request.operation in ("callback", "answer")
        if not has_token and not is_open:
            body = {"message": "401: Unauthorized", "code": 0}
            return Response(401, json.dumps(body).encode(), headers=headers)
        agent = request.headers.get("user-agent", "")
        if not is_open and not agent.startswith("DiscordBot ("):
            self.violations.append(f"user agent {agent}")
        try:
            with self.lock:
                parts = path.strip("/").split("/")
                answer = self._call(request, parts, dict(urllib.parse.parse_qsl(query)))
        except Refusal as refusal:
            return Response(refusal.status, json.dumps(refusal.body).encode(), headers=headers)
        self.notify()
        if answer is None:
            return Response(204, content_type="text/html; charset=utf-8", headers=headers)
        return Response(body=json.dumps(answer).encode(), headers=headers)

    def _call(self, request: Request, parts: list[str], query: Mapping[str, str]) -> Any:
        match request.method, parts:
            case "GET", ["users", "@me"]:
                return BOT
            case "GET", ["users", "@me", "guilds"]:
                return [{"id": GUILD, "name": "Garden"}] if "after" not in query else []
            case "POST", ["users", "@me", "channels"]:
                return self._private_chat(str(request.fields()["recipient_id"]))
            case "GET", ["applications", "@me"] | ["oauth2", "applications", "@me"]:
                return {"id": APPLICATION, "name": "Tertulia", "flags": self.flags, "bot": BOT,
                        "description": "", "bot_public": True, "bot_require_code_grant": False,
                        "verify_key": "0", "owner": ANA, "icon": None, "team": None}  # fmt: skip
            case "GET", ["gateway", "bot"]:
                left = {"total": 1000, "remaining": self.session_starts_left,
                        "reset_after": 100, "max_concurrency": 1}  # fmt: skip
                return {"url": self.gateway_url, "shards": 1, "session_start_limit": left}
            case "GET", ["guilds", _, "channels"]:
                return [item for item in self.channels.values() if item["type"] in (0, 15)]
            case "GET", ["guilds", _, "threads", "active"]:
                threads = [item for item in self.channels.values() if item["type"] == 11]
                return {"threads": [_thread(item) for item in threads], "members": []}
            case "GET", ["guilds", _, "members", _]:
                return {"user": BOT, "roles": [ROLE]}
            case _, ["applications", _, "commands"]:
                return self._menu(request)
            case "POST", ["interactions", number, token, "callback"]:
                fields = request.fields()
                fields = json.loads(fields.get("payload_json", "null")) or fields
                self._acknowledge(token, fields)
                interaction = {"id": number, "type": 2, "response_message_loading": True}
                return {"interaction": interaction} if "with_response" in query else None
            case _, ["webhooks", _, token, "messages", "@original"]:
                return self._answer_command(request, token)
            case _, ["channels", channel, *rest]:
                return self._channel(request, channel, rest, query)
        raise Refusal(404, 0, "404: Not Found")

    def _channel(
        self, request: Request, channel: str, rest: list[str], query: Mapping[str, str]
    ) -> Any:
        if channel in self.refused:
            raise self.refused[channel]
        if channel not in self.channels:
            raise Refusal(404, 10003, "Unknown Channel")
        match request.method, rest:
            case "GET", []:
                return self.channels[channel]
            case "POST", ["typing"]:
                self.typing.append(channel)
                return None
            case "POST", ["messages"]:
                return self._create(channel, request)
            case "GET", ["messages"]:
                return self._history(channel, query)
        message = self.messages.get(rest[1])
        if message is None or message["channel_id"] != channel:
            raise Refusal(404, 10008, "Unknown Message")
        match request.method:
            case "GET":
                return _without_member(message)
            case "DELETE":
                del self.messages[rest[1]]
                return None
        if message["author"]["id"] != BOT["id"]:
            raise Refusal(403, 50005, "Cannot edit a message authored by another user")
        fields = json.loads(request.body)
        self._check(fields)
        message["content"] = fields["content"]
        message["components"] = fields.get("components", message["components"])
        self.edits.append((rest[1], fields["content"]))
        self._publish("MESSAGE_UPDATE", message)
        return message

    def _create(self, channel: str, request: Request) -> dict[str, Any]:
        fields = request.fields()
        file = fields.get("files[0]")
        if "payload_json" in fields:
            fields = json.loads(fields["payload_json"])
        nonce = fields.get("nonce")
        if nonce is not None and len(str(nonce)) > 25:
            raise Refusal(400, 50035, "Invalid Form Body", errors={"nonce": {}})
        if fields.get("enforce_nonce") and nonce in self.nonces:
            number = self.nonces[nonce]
            return self.messages.get(number) or {"id": number, "content": ""}
        if file is not None and len(file[1]) > MAX_FILE:
            raise Refusal(413, 40005, "Request entity too large")
        if not fields.get("content") and file is None:
            raise Refusal(400, 50006, "Cannot send an empty message")
        reference = fields.get("message_reference")
        if reference is not None:
            reference = {**reference, "message_id": str(reference["message_id"])}
        is_lost = reference is not None and reference["message_id"] not in self.messages
        if reference is not None and is_lost and fields_fail(reference):
            raise Refusal(400, 50035, "Invalid Form Body", errors={"message_reference": {}})
        self._check(fields)
        message = self._message(channel, fields.get("content", ""), BOT, None)
        message["components"] = fields.get("components", [])
        if nonce is not None:
            self.nonces[nonce] = message["id"]
        reply_to = None if reference is None or is_lost else reference["message_id"]
        if reply_to is not None:
            message |= {"type": 19, "message_reference": reference}
        with self.changed:
            has_buttons = bool(message["components"])
            self.sent.append(
                Sent(channel, message["content"], message["id"], reply_to, file, has_buttons)
            )
        self._publish("MESSAGE_CREATE", {**message, "nonce": nonce})
        return message

    def _check(self, fields: Mapping[str, Any]) -> None:
        content = fields.get("content") or ""
        if len(content) > 2000:
            detail = {"_errors": [{"code": "BASE_TYPE_MAX_LENGTH"}]}
            raise Refusal(400, 50035, "Invalid Form Body", errors={"content": detail})
        for row in fields.get("components") or ():
            is_row = row["type"] == 1 and 1 <= len(row["components"]) <= 5
            if not is_row or any(
                key["type"] != 2 or key["style"] not in (1, 2, 3, 4)
                or not 1 <= len(key["custom_id"]) <= 100 or not 1 <= len(key["label"]) <= 80
                for key in row["components"]
            ):  # fmt: skip
                raise Refusal(400, 50035, "Invalid Form Body", errors={"components": {}})
        allowed = fields.get("allowed_mentions")
        if allowed is None or allowed.get("parse") != []:
            self.pings += re.findall(r"@everyone|@here|<@!?\d+>|<@&\d+>", content)

    def _history(self, channel: str, query: Mapping[str, str]) -> list[dict[str, Any]]:
        after, limit = int(query.get("after", 0)), int(query.get("limit", 50))
        newer = sorted(
            (m for m in self.messages.values()
             if m["channel_id"] == channel and int(m["id"]) > after),
            key=lambda message: int(message["id"]),
        )  # fmt: skip
        return [_without_member(message) for message in reversed(newer[:limit])]

    def _private_chat(self, person: str) -> dict[str, Any]:
        for channel in self.channels.values():
            if channel["type"] == 1 and channel["recipients"][0]["id"] == person:
                return channel
        if not person.isdecimal() or int(person) > 10**6:
            raise Refusal(400, 50033, "Invalid Recipient(s)")
        number = f"3{person}"
        person_data = {**ANA, "id": person, "username": f"person{person}"}
        self.channels[number] = {"id": number, "type": 1, "recipients": [person_data],
                                 "last_message_id": None}  # fmt: skip
        return self.channels[number]

    def _menu(self, request: Request) -> Any:
        if request.method == "PUT":
            self.commands = [{"id": str(number), "version": "1", "application_id": APPLICATION,
                              **item}
                             for number, item in enumerate(json.loads(request.body))]  # fmt: skip
        return self.commands

    def _acknowledge(self, token: str, fields: Mapping[str, Any]) -> None:
        interaction = self.interactions.get(token)
        if interaction is None or interaction["state"] == "lost":
            raise Refusal(404, 10062, "Unknown interaction")
        if interaction["state"] != "new":
            raise Refusal(400, 40060, "Interaction has already been acknowledged.")
        if fields["type"] != {2: 5, 3: 6}[interaction["type"]]:
            self.violations.append(f"an interaction was answered with type {fields['type']}")
        interaction["state"] = "waiting" if interaction["type"] == 2 else "acknowledged"

    def _answer_command(self, request: Request, token: str) -> Any:
        interaction = self.interactions.get(token)
        if interaction is None or interaction["state"] == "new":
            raise Refusal(404, 10015, "Unknown Webhook")
        fields = request.fields()
        fields = json.loads(fields.get("payload_json", "null")) or fields
        self._check(fields)
        if "message" not in interaction:
            message = self._message(interaction["channel"], fields["content"], BOT, None)
            message |= {"type": 20, "webhook_id": APPLICATION}
            interaction["message"] = message["id"]
            interaction["state"] = "answered"
            self.sent.append(Sent(interaction["channel"], fields["content"], message["id"]))
        message = self.messages[interaction["message"]]
        message["content"] = fields["content"]
        message["components"] = fields.get("components", message["components"])
        return message

    # -- the rest

    def _download(self, request: Request) -> Response:
        path, _, query = request.path.partition("?")
        number = path.split("/")[3]
        if "authorization" in request.headers:
            self.violations.append("the token was sent to the server of files")
        if self.is_expired or "hm=" not in query or number not in self.files:
            return Response(404, b"This content is no longer available.", "text/plain")
        content = self.files[number]
        if content is None:
            return Response(stream=_endless(), content_type="application/octet-stream")
        return Response(body=content, content_type=self.file_types[number])

    def _message(
        self, channel: str, text: str, user: Mapping[str, Any], message_id: str | None
    ) -> dict[str, Any]:
        number = message_id or self._new_id()
        message = {
            "id": number, "channel_id": channel, "type": 0, "content": text, "author": dict(user),
            "attachments": [], "mentions": [], "mention_roles": [], "mention_everyone": False,
            "embeds": [], "components": [], "tts": False, "pinned": False, "flags": 0,
            "timestamp": "2026-11-17T00:00:00.000000+00:00", "edited_timestamp": None,
        }  # fmt: skip
        self.messages[number] = message
        self.channels[channel]["last_message_id"] = number
        return message

    def _publish(self, name: str, message: Mapping[str, Any]) -> None:
        guild = self._guild_of(message["channel_id"])
        member: dict[str, Any] = {
            "nick": None,
            "roles": [],
            "joined_at": None,
            "deaf": False,
            "mute": False,
        }
        people: dict[str, Any] = {"member": {**member, "flags": 0}} if guild else {}
        self.dispatch(name, {**message, **guild, **people})

    def _guild_of(self, channel: str) -> dict[str, str]:
        return {} if self.channels[channel]["type"] == 1 else {"guild_id": GUILD}

    def _new_id(self) -> str:
        now = (int(time.time() * 1000) - _EPOCH) << 22
        self._last_id = max(self._last_id + 1, now)
        return str(self._last_id)


def fields_fail(reference: Mapping[str, Any]) -> bool:
    """Return whether a reply to a message that is gone fails."""
    return bool(reference.get("fail_if_not_exists", True))


def shown(content: str) -> str:
    """Return what people read of a text without formatting."""
    return _ESCAPE.sub(r"\1", content)


def refusal(status: int, code: int, message: str = "no", times: int | None = 1) -> Fault:
    """Return a fault that is a refusal in the form of the API."""
    return Fault(status, json.dumps({"code": code, "message": message}).encode(), times=times)


def rate_limit(seconds: float, *, is_global: bool = False, times: int | None = 1) -> Fault:
    """Return a 429 that asks for a pause."""
    body = {"message": "You are being rate limited.", "retry_after": seconds, "global": is_global}
    # Without this header it would come from something before the API, such as Cloudflare.
    return Fault(429, json.dumps(body).encode(), headers={"Via": "1.1 google"}, times=times)


def _thread(channel: Mapping[str, Any]) -> dict[str, Any]:
    metadata = {"archived": False, "auto_archive_duration": 60, "locked": False,
                "archive_timestamp": "2026-01-01T00:00:00.000000+00:00"}  # fmt: skip
    return {**channel, "owner_id": "42", "thread_metadata": metadata, "message_count": 1,
            "member_count": 1, "rate_limit_per_user": 0}  # fmt: skip


def _without_member(message: Mapping[str, Any]) -> dict[str, Any]:
    hidden = ("member", "guild_id", "nonce")
    return {name: value for name, value in message.items() if name not in hidden}


async def _endless() -> AsyncGenerator[bytes, None]:
    while True:
        yield b"x" * 65536

"""A Slack on loopback, driven by a script: the Web API, Socket Mode and the Events API.

It keeps the promises of the real one that an adapter depends on: an event goes to one of the open
sockets and is sent again if it is not acknowledged in time, a mention comes as two events, the
app's own messages and edits come back, an address of a socket is good for one use, texts are
escaped and messages are checked (channel, thread, length, mentions). Several workspaces may have
the app. `tests/servers/test_slack.py` holds it against Slack's own client.

    with SlackServer() as server:
        server.write("D1", "hello")
        server.wait_sent(1)
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import itertools
import json
import re
import time
import urllib.parse
from collections.abc import AsyncGenerator, Mapping
from typing import Any, NamedTuple

import httpx2

from tests.servers.scripted_http import Fault, Request, Response, ScriptedServer
from tests.servers.server_socket import ServerSocket

APP_TOKEN = "xapp-1-A1-fake-app-token-nobody-may-see"
BOT_TOKEN = "xoxb-1-fake-bot-token-nobody-may-see"
SIGNING_SECRET = "fake-signing-secret-nobody-may-see"
TEAM = "T1"
BOT = "UBOT1"
ANA = "UANA"
MAX_SOCKETS = 10

_PING = re.compile(r"<[!@#]")
# The parameters of each method; anything else is noted as a violation.
METHODS: dict[str, set[str]] = {
    "auth.test": set(),
    "apps.connections.open": set(),
    "chat.postMessage": {"channel", "text", "markdown_text", "thread_ts", "mrkdwn", "blocks"},
    "chat.update": {"channel", "ts", "text", "markdown_text", "mrkdwn", "blocks"},
    "conversations.open": {"users"},
    "conversations.info": {"channel"},
    "users.info": {"user"},
    "files.info": {"file"},
    "files.getUploadURLExternal": {"filename", "length"},
    "files.completeUploadExternal": {"files", "channel_id", "thread_ts", "initial_comment"},
    "assistant.threads.setStatus": {"channel_id", "thread_ts", "status"},
}
# Methods that read only forms; JSON is ignored by the real ones.
FORMS = {"conversations.info", "users.info", "files.info", "files.getUploadURLExternal"}


class Sent(NamedTuple):
    """A message that the app sent; `text` is as people read it."""

    channel: str
    thread: str | None
    text: str
    ts: str
    is_markdown: bool = False
    file: tuple[str, bytes] | None = None
    team: str = TEAM
    has_buttons: bool = False


class Workspace(NamedTuple):
    """A workspace in which the app is installed."""

    team: str
    token: str
    bot: str
    bot_id: str


class Event:
    """An event on its way, and how often it was sent."""

    def __init__(self, payload: Any, team: str) -> None:
        self.payload = payload
        is_press = isinstance(payload, dict) and payload.get("type") == "block_actions"
        self.kind = "interactive" if is_press else "events_api"
        self.team = team
        self.sends = 0
        self.state = "waiting"  # then acknowledged, or lost
        self.problem = ""  # why it was not acknowledged at the last time


class Refusal(Exception):
    """A refusal of the Web API."""


class SlackServer(ScriptedServer):
    """The state of one app, its workspaces, and what was sent."""

    def __init__(self) -> None:
        super().__init__()
        self.workspaces = {BOT_TOKEN: Workspace(TEAM, BOT_TOKEN, BOT, "B1")}
        self.app_token: str = APP_TOKEN
        self.channels: dict[str, dict[str, Any]] = {}
        self.archived: set[str] = set()
        self.outside: set[str] = set()  # channels that the app is not in
        self.messages: dict[tuple[str, str], dict[str, Any]] = {}
        self.sent: list[Sent] = []
        self.edits: list[tuple[str, str, str]] = []
        self.statuses: list[tuple[str, str, str]] = []
        self.pings: list[str] = []
        self.violations: list[str] = []
        self.events: list[Event] = []
        self.sockets: list[ServerSocket] = []
        self.most_sockets = 0
        self.hellos = 0
        self.is_silent = False  # nothing is sent or answered on the sockets
        self.says_hello = True
        self.has_markdown = True  # an older server does not know `markdown_text`
        self.returns_own = True
        self.ack_seconds = 3.0
        self.pauses: tuple[float, ...] = (0.0, 0.05, 0.1)  # Slack: at once, 1 and 5 minutes
        self.http_target: str | None = None  # where events are posted instead
        self.files: dict[str, bytes | None] = {}
        self.file_types: dict[str, str] = {}
        self.expired: set[str] = set()
        self.uploads: dict[str, tuple[str, bytes | None]] = {}
        self._tickets: set[str] = set()
        self._waiting: dict[str, asyncio.Future[None]] = {}
        self._numbers = itertools.count(1)
        self._turn = 0
        self._in_order = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._room = asyncio.Semaphore(16)

    # -- people

    def add_workspace(self, team: str, token: str) -> Workspace:
        """Install the app in another workspace."""
        workspace = Workspace(team, token, f"UBOT{team}", f"B{team}")
        self.workspaces[token] = workspace
        return workspace

    def write(
        self,
        channel: str,
        text: str,
        *,
        user: str = ANA,
        team: str = TEAM,
        thread: str | None = None,
        files: list[dict[str, Any]] | None = None,
        is_raw: bool = False,
        **fields: Any,
    ) -> dict[str, Any]:
        """Write a message as a person and return its event; a mention of the app is two events."""
        message = self.message(channel, user, text if is_raw else escape(text), thread, team)
        if files is not None:
            message |= {"files": files, "subtype": "file_share"}
        message |= fields
        kind = {"D": "im", "G": "mpim"}.get(channel[:1], "channel")
        self.push({**message, "channel_type": kind}, team=team)
        bot = self.workspace(team).bot
        if f"<@{bot}>" in message["text"]:
            mention = {name: message[name] for name in message if name not in ("type", "subtype")}
            self.push({**mention, "type": "app_mention"}, team=team)
        return message

    def edit(self, message: Mapping[str, Any], text: str) -> None:
        """Edit a message as the person who wrote it."""
        edited = {**message, "text": escape(text), "edited": {"user": message["user"], "ts": "2"}}
        self.messages[message["channel"], message["ts"]] = edited
        self._push_changed(message, edited, TEAM)

    def delete(self, message: Mapping[str, Any]) -> None:
        """Delete a message as the person who wrote it."""
        self.push({
            "type": "message", "subtype": "message_deleted", "channel": message["channel"],
            "deleted_ts": message["ts"], "ts": self._ts(), "previous_message": dict(message),
        })  # fmt: skip

    def press(
        self, channel: str, ts: str, value: str, *, user: str = ANA, team: str = TEAM
    ) -> Event:
        """Press a button of a message, whatever its value was."""
        return self.push_payload(self.press_payload(channel, ts, value, user, team), team=team)

    def press_payload(
        self, channel: str, ts: str, value: str, user: str = ANA, team: str = TEAM
    ) -> dict[str, Any]:
        """Return the payload of a press."""
        message = self.messages[channel, ts]
        action = {
            "type": "button", "action_id": "answer_0", "block_id": "b1", "value": value,
            "text": {"type": "plain_text", "text": "?", "emoji": True}, "action_ts": self._ts(),
        }  # fmt: skip
        return {
            "type": "block_actions", "api_app_id": "A1", "token": "deprecated",
            "trigger_id": "1.2.secret-trigger", "response_url": "https://hooks.slack.com/actions/x",
            "team": {"id": team, "domain": "acme"}, "enterprise": None,
            "user": {"id": user, "username": "ana", "name": "ana", "team_id": team},
            "channel": {"id": channel, "name": "directmessage"}, "is_enterprise_install": False,
            "container": {"type": "message", "message_ts": ts, "channel_id": channel,
                          "is_ephemeral": False},
            "message": message, "state": {"values": {}}, "actions": [action],
        }  # fmt: skip

    def buttons(self, channel: str, ts: str) -> list[tuple[str, str]]:
        """Return the buttons that a message has now: labels and values."""
        return [
            (item["text"]["text"], item["value"])
            for block in self.messages[channel, ts].get("blocks") or ()
            if block["type"] == "actions"
            for item in block["elements"]
        ]

    def message(
        self, channel: str, user: str, text: str, thread: str | None = None, team: str = TEAM
    ) -> dict[str, Any]:
        """Return a new message of a channel, without any event of it."""
        with self.lock:
            self.add_channel(channel)
            message: dict[str, Any] = {
                "type": "message", "user": user, "text": text, "channel": channel,
                "ts": self._ts(), "team": team,
            }  # fmt: skip
            if thread is not None:
                message["thread_ts"] = thread
                parent = self.messages.get((channel, thread))
                if parent is not None and message["ts"] != thread:
                    message["parent_user_id"] = parent["user"]
            self.messages[channel, message["ts"]] = message
            return message

    def add_channel(self, channel: str) -> None:
        """Make a channel, if it does not exist."""
        names = {"D": "", "G": "mpdm-ana--ben-1"}
        name = names.get(channel[:1], "garden")
        self.channels.setdefault(channel, {"id": channel, "name": name})

    def push(self, event: Any, *, team: str = TEAM) -> Event:
        """Send an event to the app, again if it is not acknowledged."""
        return self.push_payload(self.payload(event, team=team), team=team)

    def payload(self, event: Any, *, team: str = TEAM) -> dict[str, Any]:
        """Return an event with all that Slack says about it."""
        number = next(self._numbers)
        return {
            "token": "deprecated", "team_id": team, "api_app_id": "A1", "event": event,
            "type": "event_callback", "event_id": f"Ev{number}", "event_time": 1700000000,
            "authorizations": [{"enterprise_id": None, "team_id": team, "user_id": "UBOT",
                                "is_bot": True, "is_enterprise_install": False}],
            "is_ext_shared_channel": False,
        }  # fmt: skip

    def push_payload(self, payload: Any, *, team: str = TEAM) -> Event:
        """Send a payload as it is; a text is sent instead of the whole envelope."""
        event = Event(payload, team)
        with self.lock:
            self.events.append(event)
        self._loop.call_soon_threadsafe(self._spawn, self._deliver(event))
        return event

    def add_file(
        self, content: bytes | None, media_type: str = "image/png", name: str = "photo.png"
    ) -> dict[str, Any]:
        """Store a file that people sent, and return it as events have it; None has no end."""
        file_id = f"F{next(self._numbers)}"
        self.files[file_id] = content
        self.file_types[file_id] = media_type
        url = f"{self.url}/files-pri/{file_id}/download/{name}"
        return {
            "id": file_id, "name": name, "title": name, "mimetype": media_type, "mode": "hosted",
            "size": len(content) if content is not None else 0, "url_private": url,
            "url_private_download": url,
        }  # fmt: skip

    def revoke(self) -> None:
        """Revoke the token of the bot."""
        self.workspaces = {"xoxb-another": next(iter(self.workspaces.values()))}

    def restore(self) -> None:
        """Accept the token of the bot again."""
        self.workspaces = {BOT_TOKEN: Workspace(TEAM, BOT_TOKEN, BOT, "B1")}

    def workspace(self, team: str) -> Workspace:
        return next(item for item in self.workspaces.values() if item.team == team)

    def sign(self, body: bytes, *, at: float | None = None) -> dict[str, str]:
        """Return the headers with which Slack signs a request."""
        sent_at = str(int(time.time() if at is None else at))
        signed = b"v0:" + sent_at.encode() + b":" + body
        digest = hmac.new(SIGNING_SECRET.encode(), signed, hashlib.sha256).hexdigest()
        return {
            "content-type": "application/json",
            "x-slack-request-timestamp": sent_at,
            "x-slack-signature": f"v0={digest}",
        }

    # -- for tests

    @property
    def texts(self) -> list[str]:
        return [message.text for message in self.sent]

    def wait_sent(self, count: int) -> list[Sent]:
        """Wait until the app has sent so many messages, and return them."""
        self.wait(lambda: len(self.sent) >= count)
        return list(self.sent)

    def wait_settled(self, *events: Event) -> None:
        """Wait until events, or all of them, are acknowledged or lost."""

        def list_waiting() -> str:
            waiting = [event for event in events or self.events if event.state == "waiting"]
            sends = [(event.sends, event.problem, str(event.payload)[:200]) for event in waiting]
            return f"{len(waiting)} events are not acknowledged, such as {sends[:3]}"

        self.wait(
            lambda: all(event.state != "waiting" for event in events or self.events),
            describe=list_waiting,
        )

    @property
    def open_sockets(self) -> list[ServerSocket]:
        return [socket for socket in self.sockets if socket.is_open]

    def wait_sockets(self, count: int) -> None:
        """Wait until so many sockets are open."""
        self.wait(lambda: len(self.open_sockets) == count)

    def wait_replaced(self, hellos: int) -> None:
        """Wait until so many sockets were opened, and all but one are closed."""
        self.wait(lambda: self.hellos >= hellos and len(self.open_sockets) == 1)

    def on_sockets(self, *, close: int | None = None, disconnect: str | None = None) -> None:
        """Close the sockets with a code, announce their end, or cut them."""

        async def act() -> None:
            for socket in self.open_sockets:
                if disconnect is not None:
                    envelope = {"type": "disconnect", "reason": disconnect, "debug_info": {}}
                    await socket.send(json.dumps(envelope))
                elif close is not None:
                    await socket.close(close)
                else:
                    socket.cut()

        self.run(act())

    def send_raw(self, data: bytes) -> None:
        """Send bytes on every socket as they are."""

        async def act() -> None:
            for socket in self.open_sockets:
                await socket.send_raw(data)

        self.run(act())

    def mute(self) -> None:
        """Send and answer nothing on the sockets from now on, with the connections open."""
        self.is_silent = True
        for socket in self.open_sockets:
            socket.is_mute = True

    # -- events

    def _spawn(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)  # the loop itself keeps only a weak reference
        task.add_done_callback(self._end)

    def _end(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self.violations.append(f"an event could not be sent: {task.exception()!r}")

    async def _deliver(self, event: Event) -> None:
        for pause in (None, *self.pauses):
            if pause is not None:
                await asyncio.sleep(pause)
            retry = event.sends
            event.sends += 1
            self.notify()
            post = self._post if self.http_target is not None else self._envelope
            if await post(event, retry):
                event.state = "acknowledged"
                self.notify()
                return
        event.state = "lost"
        self.notify()

    async def _envelope(self, event: Event, retry: int) -> bool:
        """Send an event on one socket; return whether it was acknowledged in time."""
        envelope_id = f"e-{next(self._numbers)}"
        acknowledged = asyncio.get_running_loop().create_future()
        self._waiting[envelope_id] = acknowledged
        text = event.payload
        if isinstance(text, str):
            text = text.replace("ENVELOPE", envelope_id)
        else:
            text = json.dumps({
                "envelope_id": envelope_id, "payload": event.payload, "type": event.kind,
                "accepts_response_payload": False, "retry_attempt": retry,
                "retry_reason": "timeout" if retry else "",
            })  # fmt: skip
        async with self._in_order:
            while not (sockets := self.open_sockets):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            self._turn += 1
            if not self.is_silent:
                await sockets[self._turn % len(sockets)].send(text)
        try:
            await asyncio.wait_for(acknowledged, self.ack_seconds)
        except TimeoutError:
            return False
        return True

    async def _post(self, event: Event, retry: int) -> bool:
        body = event.payload.encode() if isinstance(event.payload, str) else None
        body = json.dumps(event.payload).encode() if body is None else body
        if event.kind == "interactive":
            body = urllib.parse.urlencode({"payload": body.decode()}).encode()
        headers = self.sign(body)
        if event.kind == "interactive":
            headers["content-type"] = "application/x-www-form-urlencoded"
        if retry:
            headers |= {"x-slack-retry-num": str(retry), "x-slack-retry-reason": "http_timeout"}
        try:
            # The time-out covers connecting too: hundreds that begin at once would all be too late.
            async with (
                self._room,
                httpx2.AsyncClient(timeout=self.ack_seconds, verify=False) as client,
            ):
                target = self.http_target or ""
                answer = await client.post(target, content=body, headers=headers)
                event.problem = answer.text[:200]
                return answer.is_success
        except Exception as problem:  # noqa: BLE001 - whatever went wrong, Slack sends it again
            event.problem = repr(problem)
            return False

    async def serve_socket(self, request: Request, socket: ServerSocket) -> None:
        ticket = dict(urllib.parse.parse_qsl(request.path.partition("?")[2])).get("ticket", "")
        if ticket not in self._tickets:
            self.violations.append("a socket without a fresh ticket")
            await socket.close(1008)
            return
        self._tickets.discard(ticket)
        socket.is_mute = self.is_silent
        if self.says_hello:
            hello = {"type": "hello", "num_connections": 1, "connection_info": {"app_id": "A1"},
                     "debug_info": {"host": "applink-1"}}  # fmt: skip
            await socket.send(json.dumps(hello))
        with self.changed:
            self.sockets.append(socket)
            self.hellos += 1
            self.most_sockets = max(self.most_sockets, len(self.open_sockets))
            self.changed.notify_all()
        async for text in socket.texts():
            answer = json.loads(text)
            if set(answer) - {"envelope_id", "payload"}:
                self.violations.append(f"an acknowledgement with {sorted(answer)}")
            future = self._waiting.get(answer.get("envelope_id"))
            if future is None:
                self.violations.append("an acknowledgement of nothing")
            elif not future.done():
                future.set_result(None)
        self.notify()

    # -- requests

    def operation_of(self, request: Request) -> str:
        path = request.path.partition("?")[0]
        for folder in ("files-pri", "upload", "link"):
            if path.startswith(f"/{folder}/"):
                return folder
        return path.removeprefix("/api/")

    async def respond(self, request: Request) -> Response:
        if request.operation == "upload":
            return self._upload(request)
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        if request.operation == "files-pri":
            return self._download(request, token)
        try:
            result = self._call(request, token)
        except Refusal as refusal:
            return Response(body=json.dumps({"ok": False, "error": str(refusal)}).encode())
        self.notify()
        return Response(body=json.dumps({"ok": True, **result}).encode())

    def _call(self, request: Request, token: str) -> dict[str, Any]:
        method = request.operation
        if method not in METHODS:
            raise Refusal("unknown_method")
        if request.method != "POST":
            self.violations.append(f"{method} called with {request.method}")
        if method == "apps.connections.open":
            return self._open_connection(token)
        workspace = self.workspaces.get(token)
        if workspace is None:
            raise Refusal("not_authed" if not token else "invalid_auth")
        fields = request.fields()
        is_json = request.headers.get("content-type", "").startswith("application/json")
        if method in FORMS and is_json:
            self.violations.append(f"{method} called with JSON")
        unknown = set(fields) - METHODS[method]
        if unknown - {"token", "team_id"}:
            self.violations.append(f"{method} with {sorted(unknown)}")
        return self._answer_method(method, fields, workspace)

    def _answer_method(
        self, method: str, fields: dict[str, Any], workspace: Workspace
    ) -> dict[str, Any]:
        match method:
            case "auth.test":
                return {
                    "url": "https://acme.slack.com/", "team": "Acme", "user": "tertulia",
                    "team_id": workspace.team, "user_id": workspace.bot,
                    "bot_id": workspace.bot_id, "is_enterprise_install": False,
                }  # fmt: skip
            case "chat.postMessage":
                return self._send(fields, workspace)
            case "chat.update":
                return self._update(fields, workspace)
            case "conversations.open":
                channel = f"D{fields['users'][1:]}"
                self.add_channel(channel)
                return {"channel": {"id": channel}}
            case "conversations.info":
                return {"channel": self._require_channel(fields["channel"])}
            case "users.info":
                profile = {"display_name": f"Name of {fields['user']}"}
                return {"user": {"id": fields["user"], "name": "ana", "profile": profile}}
            case "files.info":
                if fields["file"] not in self.files:
                    raise Refusal("file_not_found")
                url = f"{self.url}/files-pri/{fields['file']}/download/x"
                kind = self.file_types[fields["file"]]
                return {"file": {"url_private_download": url, "mimetype": kind}}
            case "files.getUploadURLExternal":
                file_id = f"F{next(self._numbers)}"
                self.uploads[file_id] = (fields["filename"], None)
                url = f"{self.url}/upload/v1/secret-{file_id}"
                return {"upload_url": url, "file_id": file_id}
            case "assistant.threads.setStatus":
                self._require_channel(fields["channel_id"])
                self.statuses.append((fields["channel_id"], fields["thread_ts"], fields["status"]))
                return {}
        return self._complete(fields, workspace)

    def _open_connection(self, token: str) -> dict[str, Any]:
        if token != self.app_token:
            raise Refusal("invalid_auth")
        ticket = f"secret-ticket-{next(self._numbers)}"
        self._tickets.add(ticket)
        return {"url": f"ws://127.0.0.1:{self.port}/link/?ticket={ticket}&app_id=A1"}

    def _require_channel(self, channel: str) -> dict[str, Any]:
        if channel not in self.channels:
            raise Refusal("channel_not_found")
        if channel in self.archived:
            raise Refusal("is_archived")
        if channel in self.outside:
            raise Refusal("not_in_channel")
        return self.channels[channel]

    def _readable(self, fields: Mapping[str, Any]) -> tuple[str, bool]:
        """Return the text of a message as people read it, and whether it is Markdown."""
        text, markdown = fields.get("text"), fields.get("markdown_text")
        if text and markdown:
            raise Refusal("markdown_text_conflict")
        if markdown and self.has_markdown:
            if len(markdown) > 12_000:
                raise Refusal("markdown_text_too_long")
            self.pings += _PING.findall(markdown)
            return markdown, True
        if not text:
            raise Refusal("no_text")
        self.pings += _PING.findall(text)
        if "mrkdwn" not in fields or fields["mrkdwn"]:
            self.violations.append("a plain text with formatting")
        return unescape(text), False

    def _send(self, fields: Mapping[str, Any], workspace: Workspace) -> dict[str, Any]:
        channel = fields["channel"]
        self._require_channel(channel)
        thread = fields.get("thread_ts")
        if thread is not None and (channel, thread) not in self.messages:
            raise Refusal("thread_not_found")
        text, is_markdown = self._readable(fields)
        if len(fields.get("text") or "") > 40_000:
            raise Refusal("msg_too_long")
        check_blocks(fields.get("blocks"), text)
        message = self._post_own(channel, text, thread, workspace)
        message["blocks"] = fields.get("blocks")
        has_buttons = bool(self.buttons(channel, message["ts"]))
        with self.changed:
            self.sent.append(
                Sent(channel, thread, text, message["ts"], is_markdown, team=workspace.team,
                     has_buttons=has_buttons)
            )  # fmt: skip
        return {"channel": channel, "ts": message["ts"], "message": message}

    def _post_own(
        self, channel: str, text: str, thread: str | None, workspace: Workspace
    ) -> dict[str, Any]:
        message = self.message(channel, workspace.bot, escape(text), thread, workspace.team)
        message["bot_id"] = workspace.bot_id
        if self.returns_own:
            self.push(message, team=workspace.team)
        return message

    def _update(self, fields: Mapping[str, Any], workspace: Workspace) -> dict[str, Any]:
        self._require_channel(fields["channel"])
        message = self.messages.get((fields["channel"], fields["ts"]))
        if message is None or message["user"] != workspace.bot:
            raise Refusal("cant_update_message")
        if len(fields.get("text") or "") > 4_000:
            raise Refusal("msg_too_long")
        text, _ = self._readable(fields)
        check_blocks(fields.get("blocks"), text)
        with self.changed:
            # Without the field, the blocks of the message stay.
            message |= {"text": escape(text), "blocks": fields.get("blocks", message.get("blocks"))}
            self.edits.append((fields["channel"], fields["ts"], text))
        self._push_changed(dict(message), {**message, "text": escape(text)}, workspace.team)
        return {"channel": fields["channel"], "ts": fields["ts"], "text": text}

    def _push_changed(
        self, before: Mapping[str, Any], message: Mapping[str, Any], team: str
    ) -> None:
        self.push({
            "type": "message", "subtype": "message_changed", "channel": message["channel"],
            "ts": self._ts(), "message": dict(message), "previous_message": dict(before),
        }, team=team)  # fmt: skip

    # -- files

    def _upload(self, request: Request) -> Response:
        file_id = request.path.rpartition("-")[2]
        if "authorization" in request.headers:
            self.violations.append("an upload with the token")
        self.uploads[file_id] = (self.uploads[file_id][0], request.body)
        return Response(body=b"OK - %d" % len(request.body), content_type="text/html")

    def _complete(self, fields: Mapping[str, Any], workspace: Workspace) -> dict[str, Any]:
        channel, thread = fields["channel_id"], fields.get("thread_ts")
        self._require_channel(channel)
        files = fields["files"]
        files = json.loads(files) if isinstance(files, str) else files
        name, content = self.uploads[files[0]["id"]]
        if content is None:
            raise Refusal("file_not_found")
        text = unescape(fields.get("initial_comment", ""))
        self.pings += _PING.findall(fields.get("initial_comment", ""))
        message = self._post_own(channel, text, thread, workspace)
        with self.changed:
            self.sent.append(Sent(channel, thread, text, message["ts"], file=(name, content)))
        shares = {"public": {channel: [{"ts": message["ts"]}]}}
        return {"files": [{"id": files[0]["id"], "title": name, "shares": shares}]}

    def _download(self, request: Request, token: str) -> Response:
        file_id = request.path.split("/")[2]
        if token not in self.workspaces or file_id in self.expired:
            # Slack shows a page to sign in, with 200.
            return Response(body=b"<!DOCTYPE html><title>Slack</title>", content_type="text/html")
        if file_id not in self.files:
            return Response(404, b"not found", "text/plain")
        content = self.files[file_id]
        if content is not None:
            return Response(body=content, content_type=self.file_types[file_id])
        return Response(stream=_endless(), content_type="application/octet-stream")

    def _ts(self) -> str:
        return f"1700000000.{next(self._numbers):06d}"


def check_blocks(blocks: Any, text: str) -> None:
    """Raise `Refusal` for blocks that Slack would refuse; they must say what the text says."""
    pieces = []
    for block in blocks or ():
        if block["type"] == "section":
            pieces.append(block["text"]["text"])
            if block["text"]["type"] != "plain_text" or not 1 <= len(pieces[-1]) <= 3000:
                raise Refusal("invalid_blocks")
        elif block["type"] != "actions" or not 1 <= len(block["elements"]) <= 25:
            raise Refusal("invalid_blocks")
        for item in block.get("elements") or ():
            label, value = item["text"]["text"], item["value"]
            is_styled = item.get("style", "primary") in ("primary", "danger")
            if not (1 <= len(label) <= 75 and 1 <= len(value) <= 2000 and is_styled):
                raise Refusal("invalid_blocks")
        ids = [item["action_id"] for item in block.get("elements") or ()]
        if len(set(ids)) < len(ids):
            raise Refusal("invalid_blocks")
    if blocks and unescape("".join(pieces)) != text:
        raise Refusal("invalid_blocks")


def escape(text: str) -> str:
    """Return a text as Slack stores it; what looks like a mention of the app becomes one."""
    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"&lt;(@U[A-Z0-9]+)&gt;", r"<\1>", escaped)


def unescape(text: str) -> str:
    """Return a text as people read it."""
    return text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")


def refusal(error: str, *, times: int | None = 1) -> Fault:
    """Return a fault that is a refusal in the form of the Web API."""
    return Fault(200, json.dumps({"ok": False, "error": error}).encode(), times=times)


def rate_limit(seconds: float | None, times: int | None = 1) -> Fault:
    """Return a 429, with the pause that it asks for or without."""
    headers = {} if seconds is None else {"Retry-After": str(seconds)}
    body = json.dumps({"ok": False, "error": "ratelimited"}).encode()
    return Fault(429, body, headers=headers, times=times)


async def _endless() -> AsyncGenerator[bytes, None]:
    while True:
        yield b"x" * 65536

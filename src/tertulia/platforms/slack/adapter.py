"""The adapter of a Slack app in one workspace, by Socket Mode or by the Events API.

All nodes may listen at once: Slack sends an event to one connection, and a repeated one is
recognised by its chat and its `ts`. An app that is installed in several workspaces has one adapter
for each; an event that reaches the wrong one is handed to the adapter of its workspace.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import logging
import re
import time
import urllib.parse
from collections.abc import AsyncGenerator, Mapping
from typing import Any, Final
from weakref import WeakSet, WeakValueDictionary

from msgspec.structs import replace

from tertulia.core.backoff import JITTER, Backoff
from tertulia.core.media import Media
from tertulia.core.source import Source
from tertulia.errors import (
    AccessDenied,
    AccountProblem,
    PlatformError,
    PlatformUnavailable,
    RateLimited,
    Refused,
)
from tertulia.platforms.base import (
    MALFORMED,
    Adapter,
    HttpRequest,
    HttpResponse,
    Incoming,
    MenuEntry,
    Outgoing,
    Pressed,
    Receive,
    StreamUpdate,
    Update,
)
from tertulia.platforms.slack import block_kit, event_reader, mrkdwn
from tertulia.platforms.slack.names import Names
from tertulia.platforms.slack.socket_mode import SocketMode
from tertulia.platforms.slack.web_api import MarkdownRefused, WebApi
from tertulia.platforms.typing_tasks import TypingTasks

log = logging.getLogger("tertulia.platforms")

_RECONNECT = Backoff(first=1, longest=30)
_CHECK_SECONDS: Final = 60.0
_SHOW_SECONDS: Final = 5.0
# Turns that end sooner show no status.
_STATUS_DELAY_SECONDS: Final = 0.5
_STATUS: Final = "is thinking…"
# A request that is older may be a recorded one.
_MAX_AGE_SECONDS: Final = 300

# The adapters of each app in this process; the key is a hash of the app's secret.
_APPS: dict[bytes, WeakSet[SlackAdapter]] = {}


class SlackAdapter(Adapter):
    """The adapter of one workspace, by Socket Mode with an `app_token`, else by the Events API."""

    name = "slack"
    typing_seconds = 90.0  # Slack shows a status for two minutes

    def __init__(
        self,
        bot_token: str,
        *,
        account: str = "",
        app_token: str | None = None,
        signing_secret: str | None = None,
        connections: int = 2,
        base_url: str = "https://slack.com/api",
    ) -> None:
        self.account = account
        self.needs_http = app_token is None
        self._api = WebApi(bot_token, base_url)
        self._names = Names(self._api)
        self._app_token = app_token
        self._signing_secret = signing_secret
        self._connections = connections
        self.identity: event_reader.BotIdentity | None = None
        self.loop: asyncio.AbstractEventLoop | None = None  # in which it listens
        self._commands: tuple[str, ...] = ()
        self._receive: Receive | None = None
        self._needs_check = asyncio.Event()
        self._locks: WeakValueDictionary[object, asyncio.Lock] = WeakValueDictionary()
        self._statuses = TypingTasks()
        self._shown: set[str] = set()
        self._without_status: set[str] = set()
        self._quiet_until = 0.0
        self._has_markdown = True
        secret = app_token or signing_secret or bot_token
        app = hashlib.sha256(f"{base_url} {secret}".encode()).digest()
        self._siblings = _APPS.setdefault(app, WeakSet())
        self._siblings.add(self)

    # -- listen

    async def listen(self, receive: Receive) -> None:
        """Hand over every event until cancelled; raise `AccountProblem` for a refused token."""
        self._receive = receive
        self.loop = asyncio.get_running_loop()
        attempts = 0
        try:
            while True:
                try:
                    await self._identify()
                    attempts = 0
                    await self._listen()
                except AccountProblem:
                    raise
                except PlatformError as problem:
                    attempts += 1
                    self.mark_problem(problem.message)
                    seconds = _RECONNECT.delay(attempts, JITTER.random())
                    if isinstance(problem, RateLimited):
                        seconds = max(seconds, problem.retry_after)
                    log.warning("slack: %s Trying again in %.1f s.", problem.message, seconds)
                    await asyncio.sleep(seconds)
        finally:
            self._receive = None
            self.mark_problem(self.state.problem)

    async def _listen(self) -> None:
        """Listen until cancelled; raise a `PlatformError` if the account has to be asked anew."""
        loops = [asyncio.create_task(self._check_account())]
        if self._app_token is not None:
            sockets = SocketMode(
                self._api, self._app_token, connections=self._connections, accept=self._accept,
                state=self,
            )  # fmt: skip
            loops.append(asyncio.create_task(sockets.run()))
        else:
            self.mark_listening()
        try:
            await asyncio.wait(loops, return_when=asyncio.FIRST_COMPLETED)
            for loop in loops:
                if loop.done():
                    loop.result()
        finally:
            for loop in loops:
                loop.cancel()
            await asyncio.gather(*loops, return_exceptions=True)

    async def _check_account(self) -> None:
        """Ask from time to time, and when Slack says so, whether the token is still accepted."""
        while True:
            try:
                async with asyncio.timeout(_CHECK_SECONDS):
                    await self._needs_check.wait()
            except TimeoutError:
                pass
            self._needs_check.clear()
            try:
                await self._identify()
            except (PlatformUnavailable, RateLimited) as problem:
                log.warning("slack: the account could not be checked: %s", problem.message)
                if self._app_token is None:
                    self.mark_problem(problem.message)
            else:
                if self._app_token is None:
                    self.mark_listening()

    async def _identify(self) -> event_reader.BotIdentity:
        answer = await self._api.ask("auth.test")
        try:
            self.identity = event_reader.read_identity(answer)
        except KeyError:
            raise PlatformUnavailable(
                "Slack does not say whose token this is.", hint="Check base_url."
            ) from None
        return self.identity

    # -- events

    async def _accept(self, payload: Mapping[str, Any]) -> None:
        """Store an event or a press; raise an `Error` if it has to be sent again."""
        if block_kit.is_press(payload):
            payload = block_kit.with_installation(payload)
        loop = asyncio.get_running_loop()
        # Another gateway may run in this process, in a loop of its own.
        siblings = [item for item in self._siblings if item.loop in (None, loop)]
        adapters = [self, *(adapter for adapter in siblings if adapter is not self)]
        for adapter in adapters:
            if adapter.identity is not None and event_reader.is_for(payload, adapter.identity):
                await adapter.hand_over(payload, adapter.identity)
                return
        if any(adapter.identity is None for adapter in adapters):
            raise PlatformUnavailable("The workspace of an event is not connected yet.")
        log.warning("slack: an event of a workspace without an account is skipped")

    async def hand_over(
        self, payload: Mapping[str, Any], identity: event_reader.BotIdentity
    ) -> None:
        """Read an event of this workspace and store it; raise an `Error` otherwise."""
        receive = self._receive
        if receive is None:
            raise PlatformUnavailable("slack accepts no messages now.", hint="It is sent again.")
        kind = event_reader.kind_of(payload)
        if kind in event_reader.REVOKED:
            self._needs_check.set()
            return
        reader = event_reader.SlackEventReader(identity, self.account or "", self._commands)
        async with self._locks.setdefault(event_reader.chat_of(payload), asyncio.Lock()):
            try:
                update: Update | None = None
                if block_kit.is_press(payload):
                    update = block_kit.read_press(payload, self.account or "")
                else:
                    update = reader.read(payload)
            except MALFORMED as problem:
                log.warning(
                    "slack: an event was not understood and is skipped (%s in %s)",
                    type(problem).__name__, kind,
                )  # fmt: skip
                return
            if isinstance(update, Incoming | Pressed):
                update = replace(update, source=await self._names.complete(update.source))
            if update is not None:
                await receive(update)

    async def respond(self, request: HttpRequest) -> HttpResponse:
        """Accept an event that Slack posts; raise `AccessDenied` if Slack did not sign it."""
        if self._signing_secret is None:
            return await super().respond(request)
        self._check_signature(request, self._signing_secret)
        self.mark_heard()
        payload = _decode(request)
        if not isinstance(payload, dict):
            log.warning("slack: an event was not understood and is skipped")
        elif payload.get("type") == "url_verification":
            challenge = payload.get("challenge")
            body = challenge if isinstance(challenge, str) else ""
            return HttpResponse(body=body.encode("utf-8", "replace"))
        elif payload.get("type") == "event_callback" or block_kit.is_press(payload):
            await self._accept(payload)
        else:
            log.warning("slack: a request was not understood and is skipped")
        return HttpResponse()

    def _check_signature(self, request: HttpRequest, secret: str) -> None:
        sent_at = request.headers.get("x-slack-request-timestamp", "")
        signed = b"v0:" + sent_at.encode("utf-8", "replace") + b":" + request.body
        expected = f"v0={hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()}"
        signature = request.headers.get("x-slack-signature", "").encode("utf-8", "replace")
        # Python refuses to read a number of thousands of digits.
        seconds = int(sent_at) if re.fullmatch(r"[0-9]{1,15}", sent_at) else 0
        is_recent = abs(time.time() - seconds) <= _MAX_AGE_SECONDS
        if not hmac.compare_digest(signature, expected.encode()) or not is_recent:
            raise AccessDenied(
                "The signature of the request is wrong or old.",
                hint="Only Slack may call this address. Check signing_secret and the clock.",
            )

    # -- send

    async def send(self, message: Outgoing) -> str | None:
        """Send one message and return its `ts`; raise a `PlatformError` if it was not accepted."""
        channel = await self._channel(message.chat_id)
        if message.media is not None:
            return await self._send_file(message, message.media, channel)
        method, address = "chat.postMessage", {"channel": channel}
        if message.replaces is not None:
            method, address = "chat.update", {"channel": channel, "ts": message.replaces}
        elif message.thread_id is not None:
            address["thread_ts"] = message.thread_id
        plain: dict[str, Any] = {
            **address, "text": mrkdwn.plain_of(message.text, message.spans), "mrkdwn": False,
        }  # fmt: skip
        if message.buttons:
            blocks = block_kit.question_blocks(message.text, message.buttons)
            try:
                return _ts(await self._api.send(method, {**plain, "blocks": blocks}))
            except MarkdownRefused as problem:
                log.warning("slack: sent without buttons: %s", problem.message)
        is_long = len(plain["text"]) > mrkdwn.MAX_TEXT
        if self._has_markdown and (message.spans or is_long):
            markdown = mrkdwn.to_markdown(message.text, message.spans)
            try:
                return _ts(await self._api.send(method, {**address, "markdown_text": markdown}))
            except MarkdownRefused as problem:
                log.warning("slack: sent without formatting: %s", problem.message)
                # A server that misses the text does not know this form of it.
                self._has_markdown = "no_text" not in problem.message
        try:
            return _ts(await self._api.send(method, plain))
        except MarkdownRefused as problem:
            refusal = problem.message
        raise Refused(refusal, hint="Slack refuses this text in every form.")

    async def close_buttons(self, message: Outgoing) -> None:
        """Replace the text of a message; an empty list of blocks takes its buttons away."""
        parameters: dict[str, Any] = {
            "channel": await self._channel(message.chat_id), "ts": message.replaces,
            "text": mrkdwn.plain_of(message.text, message.spans), "mrkdwn": False, "blocks": [],
        }  # fmt: skip
        await self._api.ask("chat.update", parameters)

    async def _channel(self, chat_id: str | None) -> str:
        """Return the channel of a chat; that of a person is opened first."""
        if chat_id is None:
            raise Refused("The message has no chat.", hint="Name one: slack:CHANNEL.")
        if not chat_id.startswith(("U", "W")):
            return chat_id
        answer = await self._api.ask("conversations.open", {"users": chat_id})
        channel = answer.get("channel")
        channel_id = channel.get("id") if isinstance(channel, dict) else None
        if not isinstance(channel_id, str):
            raise Refused("Slack opened no chat with this person.", hint="Check the id.")
        return channel_id

    async def _send_file(self, message: Outgoing, media: Media, channel: str) -> str | None:
        """Upload a file and then share it; before it is shared nobody sees anything of it."""
        name = media.name or "file"
        file = {"filename": name, "length": str(len(message.content))}
        answer = await self._api.ask("files.getUploadURLExternal", file)
        url, file_id = answer.get("upload_url"), answer.get("file_id")
        if not isinstance(url, str) or not isinstance(file_id, str):
            raise PlatformUnavailable(
                "Slack gave no address for a file.", hint="It is tried again."
            )
        await self._api.upload(url, message.content)
        parameters: dict[str, Any] = {
            "files": [{"id": file_id, "title": name}], "channel_id": channel,
        }  # fmt: skip
        if message.thread_id is not None:
            parameters["thread_ts"] = message.thread_id
        if message.text:
            parameters["initial_comment"] = mrkdwn.plain_of(message.text, message.spans)
        try:
            return _shared_ts(await self._api.send("files.completeUploadExternal", parameters))
        except MarkdownRefused as problem:
            refusal = problem.message
        raise Refused(refusal, hint="Check that the app may share files in this channel.")

    # -- show

    async def show(self, source: Source, update: StreamUpdate) -> str | None:
        """Show in the thread that the app is at work; Slack has no "typing" for apps."""
        if update.kind in ("began", "typing", "tool"):
            self._statuses.start(update.turn, lambda: self._show_status(source, update))
        elif update.kind == "ended":
            self._statuses.stop(update.turn)
            if update.turn in self._shown:
                self._shown.discard(update.turn)
                await self._set_status(source, update, "")
        return None

    async def _show_status(self, source: Source, update: StreamUpdate) -> None:
        await asyncio.sleep(_STATUS_DELAY_SECONDS if update.kind == "began" else 0)
        # Noted before the request: one that is cancelled may have set the status all the same.
        self._shown.add(update.turn)
        await self._set_status(source, update, _STATUS)

    async def _set_status(self, source: Source, update: StreamUpdate, status: str) -> None:
        chat, thread = source.chat_id, source.thread_id or update.message_id
        is_quiet = self._api.is_busy or self._quiet_until > time.monotonic()
        if thread is None or chat in self._without_status or (is_quiet and status):
            return
        parameters = {"channel_id": chat, "thread_ts": thread, "status": status}
        try:
            await self._api.ask("assistant.threads.setStatus", parameters, seconds=_SHOW_SECONDS)
        except RateLimited as problem:
            self._quiet_until = time.monotonic() + problem.retry_after
        except PlatformUnavailable:
            pass  # it is shown again, or ends by itself
        except PlatformError as problem:
            log.info("slack: the status cannot be shown in this chat: %s", problem.message)
            self._without_status.add(chat)

    # -- the rest

    async def fetch(self, media: Media) -> AsyncGenerator[bytes, None]:
        """Yield the bytes of a file, by its address or by its id."""
        url: object = media.source or ""
        media_type = media.type
        if not str(url).startswith(("https://", "http://")):
            file = (await self._api.ask("files.info", {"file": url})).get("file")
            file = file if isinstance(file, dict) else {}
            url = file.get("url_private_download") or file.get("url_private")
        if not isinstance(url, str) or not url:
            raise Refused("Slack has no address of this file.", hint="It may be gone.")
        async for piece in self._api.download(url, media_type):
            yield piece

    async def identify(self) -> str:
        """Ask Slack who the app is, and whether it accepts both tokens."""
        identity = await self._identify()
        if self._app_token is not None:
            await self._api.ask("apps.connections.open", token=self._app_token)
        return f"@{identity.name} in {identity.team or identity.team_id}"

    async def fill_menu(self, entries: tuple[MenuEntry, ...]) -> None:
        """Remember the commands, which people write with "!": Slack has no menu to fill."""
        self._commands = tuple(entry.name for entry in entries)

    async def close(self) -> None:
        """Close the connections."""
        self._siblings.discard(self)
        await self._statuses.close()
        await self._names.close()
        await self._api.close()


def _decode(request: HttpRequest) -> Any:
    """Return the JSON of a request; presses come as a form with one field. None if it is none."""
    text = request.body.decode("utf-8", "replace")
    if request.headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
        text = dict(urllib.parse.parse_qsl(text)).get("payload", "")
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _ts(answer: Mapping[str, Any]) -> str | None:
    ts = answer.get("ts")
    return ts if isinstance(ts, str) else None


def _shared_ts(answer: Mapping[str, Any]) -> str | None:
    """Return the `ts` of the message with a shared file, if Slack tells it."""
    try:
        shares = answer["files"][0]["shares"]
        channels = [channel for kind in shares.values() for channel in kind.values()]
        return str(channels[0][0]["ts"])
    except (KeyError, IndexError, TypeError, AttributeError):
        return None

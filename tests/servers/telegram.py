"""A Telegram Bot API server on loopback, driven by a script.

It keeps the promises of the real one that an adapter depends on: `getUpdates` forgets what is below
its offset and gives the rest again, a second poll ends the first with 409, a webhook is called
until it answers 2xx, messages are checked (chat, topic, length, entities, reply), a group may have
moved. `tests/servers/test_telegram.py` holds it against another project's client.

    with TelegramServer() as server:
        server.write(42, "hello")
        server.wait_sent(1)
"""

from __future__ import annotations

import asyncio
import json
import re
import urllib.parse
from collections import defaultdict
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import httpx2

from tests.servers.scripted_http import Fault, Request, Response, ScriptedServer

TOKEN = "123456789:AAfake-token_that-nobody-may-ever-see"
BOT = {"id": 123456789, "is_bot": True, "first_name": "Tertulia", "username": "tertulia_bot"}
ANA = {"id": 42, "is_bot": False, "first_name": "Ana", "last_name": "Díaz", "username": "ana"}
MAX_DOWNLOAD = 20_000_000
MAX_UPLOAD = 50_000_000

_SEND = {"chat_id", "message_thread_id", "reply_parameters", "disable_notification"}
_CAPTION = {"caption", "caption_entities"}
# The parameters of each method; anything else is noted as a violation.
METHODS: dict[str, set[str]] = {
    "getMe": set(),
    "getUpdates": {"offset", "limit", "timeout", "allowed_updates"},
    "setWebhook": {"url", "secret_token", "allowed_updates", "max_connections"},
    "deleteWebhook": {"drop_pending_updates"},
    "getWebhookInfo": set(),
    "setMyCommands": {"commands", "scope", "language_code"},
    "sendMessage": _SEND | {"text", "entities", "link_preview_options", "reply_markup"},
    "sendPhoto": _SEND | _CAPTION | {"photo"},
    "sendDocument": _SEND | _CAPTION | {"document"},
    "sendVoice": _SEND | _CAPTION | {"voice"},
    "sendAudio": _SEND | _CAPTION | {"audio"},
    "sendVideo": _SEND | _CAPTION | {"video"},
    "editMessageText": {"chat_id", "message_id", "text", "entities", "link_preview_options",
                        "reply_markup"},
    "answerCallbackQuery": {"callback_query_id", "text", "show_alert", "url", "cache_time"},
    "sendChatAction": {"chat_id", "message_thread_id", "action"},
    "sendMessageDraft": {"chat_id", "message_thread_id", "draft_id", "text", "entities",
                         "can_stop", "keep_on_stop"},
    "getFile": {"file_id"},
}  # fmt: skip
# The method of each kind of file, and the field of the file in a message.
FILES = {"sendPhoto": "photo", "sendDocument": "document", "sendVoice": "voice",
         "sendAudio": "audio", "sendVideo": "video"}  # fmt: skip
ENTITIES = {"bold", "italic", "underline", "strikethrough", "spoiler", "code", "pre", "text_link",
            "blockquote"}  # fmt: skip
_NAME = re.compile(r"(?<!\w)@(\w{4,32})")


class Sent(NamedTuple):
    """A message that the bot sent."""

    method: str
    chat_id: int
    thread_id: int | None
    text: str
    entities: tuple[dict[str, Any], ...]
    message_id: int
    reply_to: int | None = None
    file: tuple[str, bytes] | None = None
    buttons: tuple[str, ...] = ()


class Refusal(Exception):
    """A refusal of the Bot API: its code, description and parameters."""

    def __init__(self, code: int, description: str, **parameters: Any) -> None:
        super().__init__(description)
        self.code = code
        self.parameters = parameters


class TelegramServer(ScriptedServer):
    """The state of one bot, the chats it is in, and what was sent."""

    def __init__(self) -> None:
        super().__init__()
        self.chats: dict[int, dict[str, Any]] = {}
        self.topics: dict[int, set[int]] = defaultdict(set)
        self.closed_topics: set[tuple[int, int]] = set()
        self.blocked: set[int] = set()
        self.migrated: dict[int, int] = {}
        self.messages: dict[tuple[int, int], dict[str, Any]] = {}
        self.sent: list[Sent] = []
        self.actions: list[tuple[int, int | None, str]] = []
        self.drafts: list[tuple[int, int, str]] = []
        self.commands: list[dict[str, str]] = []
        self.pings: list[str] = []
        self.violations: list[str] = []
        self.conflicts = 0
        self.polls = 0
        self.given: defaultdict[int, list[int]] = defaultdict(list)  # polls, by update
        self.forgotten: dict[int, int] = {}  # the poll that acknowledged each update
        self.files: dict[str, bytes | None] = {}
        self.file_types: dict[str, str] = {}
        self.expired: set[str] = set()
        self.pending: list[tuple[int, bytes]] = []
        self.allowed: set[str] | None = None
        self.webhook: dict[str, Any] | None = None
        self.webhook_target: str | None = None  # where calls really go: no name is looked up
        self.webhook_failed_at: int | None = None
        self.token: str = TOKEN
        self.presses: dict[str, bool] = {}  # each press by its id, and whether it was answered
        self.pressed: list[dict[str, Any]] = []  # the updates of presses
        self.is_silent = False
        self.next_update = 1000
        self._next_message: dict[int, int] = defaultdict(int)
        self._poll: asyncio.Future[None] | None = None
        self._has_update = asyncio.Event()
        self._retry_seconds = 0.02

    # -- people

    def write(
        self,
        chat_id: int,
        text: str | None = None,
        *,
        user: Mapping[str, Any] = ANA,
        thread: int | None = None,
        reply_to: int | None = None,
        mentions: Iterable[str] = (),
        **fields: Any,
    ) -> dict[str, Any]:
        """Write a message as a person and return it; `fields` are added to it."""
        with self.lock:
            message = self._message(chat_id, user, thread)
            if text is not None:
                message["text"] = text
                entities = [_mention(text, name) for name in mentions]
                if text.startswith("/"):
                    size = len(text.split(maxsplit=1)[0])
                    entities.append({"type": "bot_command", "offset": 0, "length": size})
                if entities:
                    message["entities"] = entities
            if reply_to is not None:
                message["reply_to_message"] = self.messages[chat_id, reply_to]
            message.update(fields)
            self.push({"message": message})
            return message

    def edit(self, message: Mapping[str, Any], text: str) -> None:
        """Edit a message as the person who wrote it."""
        edited = {**message, "text": text, "edit_date": 1700000001}
        self.messages[message["chat"]["id"], message["message_id"]] = edited
        self.push({"edited_message": edited})

    def press(
        self,
        message: tuple[int, int],
        label: str | None = None,
        *,
        user: Mapping[str, Any] = ANA,
        data: str | None = None,
        is_inaccessible: bool = False,
    ) -> str:
        """Press a button of a message (chat, id), or forge its data; return the id of the press.

        Of a message that is `is_inaccessible` Telegram tells only the chat and the id.
        """
        with self.lock:
            stored = self.messages[message]
            press_id = str(4382 * 10**12 + len(self.presses))
            self.presses[press_id] = False
            if is_inaccessible:
                stored = {"chat": stored["chat"], "message_id": message[1], "date": 0}
            query = {
                "id": press_id,
                "from": dict(user),
                "message": stored,
                "chat_instance": "8428209589180549439",
                "data": data or dict(self.buttons(message))[label or ""],
            }
            self.pressed.append({"callback_query": query})
            self.push(self.pressed[-1])
            return press_id

    def buttons(self, message: tuple[int, int]) -> list[tuple[str, str]]:
        """Return the buttons that a message (chat, id) has now, each with its data."""
        rows = self.messages[message].get("reply_markup", {}).get("inline_keyboard", [])
        return [(button["text"], button["callback_data"]) for row in rows for button in row]

    def push(self, update: Mapping[str, Any], *, update_id: int | None = None) -> int:
        """Put an update into the queue of the bot, and return its id."""
        with self.lock:
            number = self.next_update if update_id is None else update_id
            self.next_update = max(self.next_update, number + 1)
            kind = next(iter(update), "")
            if self.allowed is None or kind in self.allowed:
                self.push_raw(json.dumps({"update_id": number, **update}).encode(), number)
            return number

    def push_raw(self, update: bytes, number: int) -> None:
        """Put an update into the queue as it is, in JSON or not."""
        with self.lock:
            self.pending.append((number, update))
        self._wake()

    def silence(self) -> None:
        """Answer no poll from now on, with the connections open."""
        self.is_silent = True

    def speak(self) -> None:
        """Answer polls again."""
        self.is_silent = False
        self._wake()

    def revoke(self, token: str | None = None) -> None:
        """Replace the token: everything under the old one is unauthorized."""
        self.token = token or "123456789:AAanother-token"
        self._wake()

    def forum(self, chat_id: int, *topics: int) -> None:
        """Make a supergroup with topics."""
        chat = {"id": chat_id, "type": "supergroup", "title": "Forum", "is_forum": True}
        self.chats[chat_id] = chat
        self.topics[chat_id] |= set(topics)

    def add_file(self, content: bytes | None, file_type: str = "application/octet-stream") -> str:
        """Store a file that people sent, and return its id; None is a file without end."""
        file_id = f"file{len(self.files)}"
        self.files[file_id] = content
        self.file_types[file_id] = file_type
        return file_id

    def wait_acknowledged(self, update_id: int, times: int) -> bool:
        """Return whether an update was acknowledged after it was given so many times.

        Wait for the next poll. Whoever asks may be late: the update may have been given again.
        """
        polls = self.given[update_id]
        self.wait(lambda: update_id in self.forgotten or len(polls) >= times)
        if len(polls) < times:
            return True  # it was acknowledged before, and is not given again
        self.wait(lambda: self.polls > polls[times - 1])
        return self.forgotten.get(update_id) == polls[times - 1] + 1

    def wait_sent(self, count: int) -> list[Sent]:
        """Wait until the bot has sent so many messages, and return them."""
        self.wait(lambda: len(self.sent) >= count)
        return list(self.sent)

    @property
    def texts(self) -> list[str]:
        return [message.text for message in self.sent]

    def message(self, chat_id: int, text: str, user: Mapping[str, Any] = ANA) -> dict[str, Any]:
        """Return a new message of a person, without any update of it."""
        with self.lock:
            return self._message(chat_id, user, None) | {"text": text}

    def _message(self, chat_id: int, user: Mapping[str, Any], thread: int | None) -> dict[str, Any]:
        if chat_id not in self.chats:
            private = {"id": chat_id, "type": "private", "first_name": user.get("first_name", "")}
            group = {"id": chat_id, "type": "supergroup", "title": "Garden"}
            self.chats[chat_id] = private if chat_id > 0 else group
        self._next_message[chat_id] += 1
        message: dict[str, Any] = {
            "message_id": self._next_message[chat_id],
            "date": 1700000000,
            "chat": self.chats[chat_id],
            "from": dict(user),
        }
        if thread is not None:
            message |= {"message_thread_id": thread, "is_topic_message": True}
        self.messages[chat_id, message["message_id"]] = message
        return message

    # -- requests

    def operation_of(self, request: Request) -> str:
        path = request.path.partition("?")[0]
        if path.startswith("/file/"):
            return "file"
        return path.rpartition("/")[2]

    async def respond(self, request: Request) -> Response:
        path = urllib.parse.unquote(request.path.partition("?")[0])
        token = re.match(r"(?:/file)?/bot([^/]+)/", path)
        if token is None or ":" not in token[1]:
            return _refusal(Refusal(404, "Not Found"))
        if token[1] != self.token:
            return _refusal(Refusal(401, "Unauthorized"))
        if request.operation == "file":
            return self._download(path.rpartition("/")[2])
        try:
            fields = {name: _value(value) for name, value in request.fields().items()}
            self._check(request, fields)
            result = await self._call(request.operation, fields)
        except Refusal as refusal:
            return _refusal(refusal)
        self.notify()
        return Response(body=result if isinstance(result, bytes) else _ok(result))

    def _check(self, request: Request, fields: Mapping[str, Any]) -> None:
        method = request.operation
        if method not in METHODS:
            raise Refusal(404, "Not Found: method not found")
        if request.method != "POST":
            self.violations.append(f"{method} called with {request.method}")
        unknown = {name for name in fields if not name.startswith("_")} - METHODS[method]
        if unknown:
            self.violations.append(f"{method} with {sorted(unknown)}")

    async def _call(self, method: str, fields: dict[str, Any]) -> Any:
        match method:
            case "getMe":
                return {**BOT, "can_join_groups": True, "can_read_all_group_messages": False}
            case "getUpdates":
                return await self._get_updates(fields)
            case "setWebhook":
                return self._set_webhook(fields)
            case "deleteWebhook":
                if fields.get("drop_pending_updates"):
                    self.violations.append("pending updates were dropped")
                    self.pending.clear()
                self.webhook = None
                return True
            case "getWebhookInfo":
                url = (self.webhook or {}).get("url", "")
                count = len(self.pending)
                info = {"url": url, "has_custom_certificate": False, "pending_update_count": count}
                if self.webhook_failed_at is not None:
                    info |= {"last_error_date": self.webhook_failed_at}
                    info |= {"last_error_message": "Wrong response from the webhook: 404 Not Found"}
                return info
            case "setMyCommands":
                self.commands = fields["commands"]
                return True
            case "sendChatAction":
                chat = self._require_chat(fields)
                self.actions.append((chat, fields.get("message_thread_id"), fields["action"]))
                return True
            case "sendMessageDraft":
                return self._draft(fields)
            case "editMessageText":
                return self._edit(fields)
            case "answerCallbackQuery":
                return self._answer_press(fields)
            case "getFile":
                return self._get_file(fields["file_id"])
        return self._send(method, fields)

    # -- updates

    async def _get_updates(self, fields: Mapping[str, Any]) -> bytes:
        if self.webhook is not None:
            self.conflicts += 1
            raise Refusal(
                409, "Conflict: can't use getUpdates method while webhook is active; use"
                " deleteWebhook to delete the webhook first",
            )  # fmt: skip
        offset = fields.get("offset", 0)
        if offset < 0:
            self.violations.append("negative offset")
        if "allowed_updates" in fields:
            self.allowed = set(fields["allowed_updates"])
        else:
            self.violations.append("getUpdates without allowed_updates")
        if self._poll is not None and not self._poll.done():
            self._poll.set_result(None)
        poll = self._poll = asyncio.get_running_loop().create_future()
        with self.changed:
            self.polls += 1
            for number, _ in self.pending:
                if number < offset:
                    self.forgotten[number] = self.polls
            self.pending = [update for update in self.pending if update[0] >= offset]
            self.changed.notify_all()
        deadline = asyncio.get_running_loop().time() + fields.get("timeout", 0)
        while True:
            self._has_update.clear()
            with self.lock:
                batch = [body for _, body in self.pending[: fields.get("limit", 100)]]
                if not self.is_silent:
                    for number, _ in self.pending:
                        self.given[number].append(self.polls)
            left = deadline - asyncio.get_running_loop().time()
            if (batch or left <= 0) and not self.is_silent:
                return b'{"ok":true,"result":[' + b",".join(batch) + b"]}"
            wake = asyncio.ensure_future(self._has_update.wait())
            limit = None if self.is_silent else left
            await asyncio.wait([wake, poll], timeout=limit, return_when=asyncio.FIRST_COMPLETED)
            wake.cancel()
            if poll.done():
                self.conflicts += 1
                raise Refusal(
                    409, "Conflict: terminated by other getUpdates request; make sure that only"
                    " one bot instance is running",
                )  # fmt: skip

    def _wake(self) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._has_update.set)

    def _set_webhook(self, fields: Mapping[str, Any]) -> bool:
        if "allowed_updates" in fields:
            self.allowed = set(fields["allowed_updates"])
        self.webhook = dict(fields) if fields["url"] else None
        if self.webhook is not None and self.webhook_target is not None:
            self._hook = asyncio.ensure_future(self._call_webhook())
        return True

    async def _call_webhook(self) -> None:
        """Post updates to the webhook, in order, each until it is answered with 2xx."""
        async with httpx2.AsyncClient(timeout=10) as client:
            while (webhook := self.webhook) is not None:
                if not self.pending:
                    self._has_update.clear()
                    await self._has_update.wait()
                    continue
                number, body = self.pending[0]
                headers = {"content-type": "application/json"}
                if "secret_token" in webhook:
                    headers["X-Telegram-Bot-Api-Secret-Token"] = webhook["secret_token"]
                try:
                    target = self.webhook_target or ""
                    answer = await client.post(target, content=body, headers=headers)
                    is_taken = answer.is_success
                except httpx2.HTTPError:
                    is_taken = False
                if is_taken:
                    with self.lock:
                        self.pending = [item for item in self.pending if item[0] != number]
                    self.notify()
                else:
                    await asyncio.sleep(self._retry_seconds)

    # -- sending

    def _require_chat(self, fields: Mapping[str, Any]) -> int:
        chat_id = int(fields["chat_id"])
        if chat_id in self.migrated:
            raise Refusal(
                400, "Bad Request: group chat was upgraded to a supergroup chat",
                migrate_to_chat_id=self.migrated[chat_id],
            )  # fmt: skip
        if chat_id not in self.chats:
            raise Refusal(400, "Bad Request: chat not found")
        if chat_id in self.blocked:
            raise Refusal(403, "Forbidden: bot was blocked by the user")
        thread = fields.get("message_thread_id")
        if thread is not None and (thread == 1 or thread not in self.topics[chat_id]):
            raise Refusal(400, "Bad Request: message thread not found")
        if (chat_id, thread) in self.closed_topics:
            raise Refusal(400, "Bad Request: TOPIC_CLOSED")
        return chat_id

    def _send(self, method: str, fields: dict[str, Any]) -> dict[str, Any]:
        chat_id = self._require_chat(fields)
        kind = FILES.get(method)
        text = fields.get("caption" if kind else "text", "").strip()
        entities = fields.get("caption_entities" if kind else "entities") or []
        limit = 1024 if kind else 4096
        if not text and kind is None:
            raise Refusal(400, "Bad Request: message text is empty")
        if _units(text) > limit:
            raise Refusal(400, f"Bad Request: message {'caption ' if kind else ''}is too long")
        self.violations += check_entities(text, entities)
        reply = fields.get("reply_parameters")
        is_lost = reply is not None and (chat_id, reply["message_id"]) not in self.messages
        if reply is not None and is_lost and not reply.get("allow_sending_without_reply"):
            raise Refusal(400, "Bad Request: message to be replied not found")
        file = fields[kind] if kind else None
        if file is not None and len(file[1]) > (10_000_000 if kind == "photo" else MAX_UPLOAD):
            raise Refusal(413, "Request Entity Too Large")
        self.pings += pinged_names(text, entities)
        thread = fields.get("message_thread_id")
        message = self._message(chat_id, BOT, thread)
        if kind is None:
            message |= {"text": text, "entities": entities, **_markup(fields)}
        else:
            message |= {"caption": text, kind: _file_object(kind)}
        reply_to = None if reply is None or is_lost else reply["message_id"]
        labels = tuple(label for label, _ in self.buttons((chat_id, message["message_id"])))
        with self.changed:
            self.sent.append(
                Sent(method, chat_id, thread, text, tuple(entities), message["message_id"],
                     reply_to, file, labels)
            )  # fmt: skip
            self.drafts = [draft for draft in self.drafts if draft[0] != chat_id]
        return message

    def _edit(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        chat_id = self._require_chat(fields)
        message = self.messages.get((chat_id, int(fields["message_id"])))
        if message is None or message["from"] != BOT:
            raise Refusal(400, "Bad Request: message to edit not found")
        is_same_markup = message.get("reply_markup") == fields.get("reply_markup")
        if message["text"] == fields["text"] and is_same_markup:
            raise Refusal(
                400, "Bad Request: message is not modified: specified new message content and reply"
                " markup are exactly the same as a current content",
            )  # fmt: skip
        with self.changed:
            message.pop("reply_markup", None)  # an edit without buttons takes them away
            message |= {"text": fields["text"], **_markup(fields)}
            self.changed.notify_all()
        return message

    def _answer_press(self, fields: Mapping[str, Any]) -> bool:
        press_id = str(fields["callback_query_id"])
        if self.presses.get(press_id, True):
            raise Refusal(
                400, "Bad Request: query is too old and response timeout expired or query ID is"
                " invalid",
            )  # fmt: skip
        with self.changed:
            self.presses[press_id] = True
            self.changed.notify_all()
        return True

    def _draft(self, fields: Mapping[str, Any]) -> bool:
        chat_id = self._require_chat(fields)
        if chat_id < 0 or not fields["draft_id"]:
            raise Refusal(400, "Bad Request: TEXTDRAFT_PEER_INVALID")
        self.violations += check_entities(fields.get("text", ""), fields.get("entities") or [])
        self.drafts.append((chat_id, fields["draft_id"], fields.get("text", "")))
        return True

    # -- files

    def _get_file(self, file_id: str) -> dict[str, Any]:
        if file_id not in self.files:
            raise Refusal(400, "Bad Request: wrong file_id or the file is temporarily unavailable")
        content = self.files[file_id]
        if content is not None and len(content) > MAX_DOWNLOAD:
            raise Refusal(400, "Bad Request: file is too big")
        size = {} if content is None else {"file_size": len(content)}
        path = f"documents/{file_id}"
        return {"file_id": file_id, "file_unique_id": f"u{file_id}", "file_path": path, **size}

    def _download(self, file_id: str) -> Response:
        if file_id not in self.files or file_id in self.expired:
            return _refusal(Refusal(404, "Not Found"))
        content = self.files[file_id]
        if content is not None:
            return Response(body=content, content_type=self.file_types[file_id])
        return Response(stream=_endless(), content_type="application/octet-stream")


def _markup(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the inline keyboard of a message; raise `Refusal` if Telegram would refuse it."""
    markup = fields.get("reply_markup")
    if markup is None:
        return {}
    for button in (button for row in markup["inline_keyboard"] for button in row):
        size = len(button["callback_data"].encode())
        if not button["text"] or not 1 <= size <= 64:
            raise Refusal(400, "Bad Request: BUTTON_DATA_INVALID")
    return {"reply_markup": markup}


def check_entities(text: str, entities: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return what is wrong with entities; raise `Refusal` if Telegram would refuse them."""
    violations: list[str] = []
    encoded = text.encode("utf-16-le", "surrogatepass")
    for entity in entities:
        start, end = entity["offset"], entity["offset"] + entity["length"]
        is_inside = 0 <= start < end <= len(encoded) // 2
        if entity["type"] not in ENTITIES or not is_inside:
            raise Refusal(400, "Bad Request: can't parse entities")
        try:
            encoded[2 * start : 2 * end].decode("utf-16-le")
        except UnicodeDecodeError:
            violations.append("an entity divides a character")
        if entity["type"] in ("code", "pre"):
            # Code has no other formatting, except that it may be in a quote.
            violations += [
                f"{other['type']} and code overlap"
                for other in entities
                if other is not entity
                and other["type"] != "blockquote"
                and other["offset"] < end
                and other["offset"] + other["length"] > start
            ]
    return violations


def pinged_names(text: str, entities: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the people whom a message notifies, by their names or by links to them."""
    code = [entity for entity in entities if entity["type"] in ("code", "pre")]
    names = []
    for match in _NAME.finditer(text):
        offset = _units(text[: match.start()])
        if not any(e["offset"] <= offset < e["offset"] + e["length"] for e in code):
            names.append(match[1])
    return names + [e["url"] for e in entities if str(e.get("url", "")).startswith("tg:")]


async def _endless() -> AsyncGenerator[bytes, None]:
    while True:
        yield b"x" * 65536


def rate_limit(seconds: float | None, times: int | None = 1) -> Fault:
    """Return a 429, with the pause that it asks for or without."""
    parameters = {} if seconds is None else {"parameters": {"retry_after": seconds}}
    return refusal(429, "Too Many Requests: retry later", times=times, **parameters)


def refusal(code: int, description: str, *, times: int | None = 1, **more: Any) -> Fault:
    """Return a fault that is a refusal in the form of the Bot API."""
    body = {"ok": False, "error_code": code, "description": description, **more}
    return Fault(code, json.dumps(body).encode(), times=times)


def _refusal(problem: Refusal) -> Response:
    body: dict[str, Any] = {
        "ok": False, "error_code": problem.code, "description": str(problem),
    }  # fmt: skip
    if problem.parameters:
        body["parameters"] = problem.parameters
    return Response(problem.code, json.dumps(body).encode())


def _ok(result: Any) -> bytes:
    return json.dumps({"ok": True, "result": result}).encode()


def _value(value: Any) -> Any:
    """Return a parameter that came in a form as what it is in JSON."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value) if value[:1] in "-0123456789[{tf" else value
    except ValueError:
        return value


def _file_object(kind: str) -> Any:
    file: dict[str, Any] = {"file_id": "sent", "file_unique_id": "usent"}
    if kind == "photo":
        return [{**file, "width": 1, "height": 1}]
    more = {"video": {"width": 1, "height": 1, "duration": 1}, "document": {}}
    return file | more.get(kind, {"duration": 1})


def _mention(text: str, name: str) -> dict[str, Any]:
    offset = _units(text[: text.index(name)])
    return {"type": "mention", "offset": offset, "length": _units(name)}


def _units(text: str) -> int:
    return len(text.encode("utf-16-le", "surrogatepass")) // 2

"""A homeserver on loopback that can send what no real one sends: malformed answers and events.

It knows one account, one room and what the adapter asks for. Everything that a real homeserver can
play runs against a real one (`tests/matrix`).
"""

from __future__ import annotations

import asyncio
import itertools
import json
import re
from collections.abc import AsyncGenerator, Sequence
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from tests.servers.scripted_http import Request, Response, ScriptedServer

TOKEN = "syt_a-token-of-the-agent"
AGENT = "@agent:example.org"
ANA = "@ana:example.org"
ROOM = "!room:example.org"
_SYNC_SECONDS = 0.3
_OPERATIONS = {
    "whoami": r"/account/whoami$",
    "profile": r"/profile/",
    "sync": r"/sync$",
    "send": r"/send/m\.room\.message/",
    "typing": r"/typing/",
    "receipt": r"/receipt/",
    "download": r"/media/download/",
    "encryption": r"/state/m\.room\.encryption/",
}


class MatrixServer(ScriptedServer):
    """A homeserver with one room, in which Ana and the agent are."""

    def __init__(self) -> None:
        super().__init__()
        self.token = TOKEN
        self.violations: list[str] = []
        self.is_silent = False
        self.files: dict[str, tuple[bytes | None, str]] = {}
        self._batches: list[tuple[str, list[Any]]] = []
        self._raw: list[bytes] = []
        self._sent: dict[str, str] = {}  # texts by transaction
        self._numbers = itertools.count(1)

    # -- the script

    def event(self, text: str, **content: Any) -> dict[str, Any]:
        """Return a message of Ana that was not sent yet."""
        return {
            "type": "m.room.message",
            "event_id": f"$event{next(self._numbers)}",
            "sender": ANA,
            "origin_server_ts": 1_763_000_000_000,
            "content": {"msgtype": "m.text", "body": text, **content},
        }

    def push(self, events: Sequence[Any], room_id: str = ROOM) -> None:
        """Send events in one answer, again and again until the next one is asked for."""
        with self.lock:
            self._batches.append((room_id, list(events)))

    def push_raw(self, body: bytes) -> None:
        """Answer the next sync with these bytes."""
        with self.lock:
            self._raw.append(body)

    def answer(self) -> dict[str, Any]:
        """Return an answer without news."""
        with self.lock:
            return self._sync_answer(len(self._batches), [])

    def add_file(self, content: bytes | None, media_type: str) -> str:
        """Keep a file, None: one without end; return its address."""
        name = f"file{next(self._numbers)}"
        self.files[name] = content, media_type
        return f"mxc://example.org/{name}"

    @property
    def texts(self) -> list[str]:
        with self.lock:
            return [*self._sent.values()]

    # -- the homeserver

    def operation_of(self, request: Request) -> str:
        path = request.path.partition("?")[0]
        return next((name for name, form in _OPERATIONS.items() if re.search(form, path)), path)

    async def respond(self, request: Request) -> Response:
        if request.headers.get("authorization") != f"Bearer {self.token}":
            return _refusal(401, "M_UNKNOWN_TOKEN")
        match request.operation:
            case "whoami":
                return _json({"user_id": AGENT})
            case "profile":
                return _json({"displayname": "Agent"})
            case "sync":
                return await self._sync(request)
            case "send":
                return self._send(request)
            case "typing" | "receipt":
                return _json({})
            case "download":
                return self._download(request)
            case "encryption":
                return _refusal(404, "M_NOT_FOUND")
        self.violations.append(f"{request.method} {request.path}")
        return _refusal(404, "M_UNRECOGNIZED")

    async def _sync(self, request: Request) -> Response:
        since = parse_qs(urlsplit(request.path).query).get("since", [None])[0]
        if since is None:
            return _json(self._sync_answer(len(self._batches), []))
        if not re.fullmatch(r"s\d+", since) or int(since[1:]) > len(self._batches):
            self.violations.append(f"since {since}")
            return _refusal(400, "M_UNKNOWN")
        ends_at = asyncio.get_running_loop().time() + _SYNC_SECONDS
        position = int(since[1:])
        while self.is_silent or asyncio.get_running_loop().time() < ends_at:
            with self.lock:
                if not self.is_silent and self._raw:
                    return Response(200, self._raw.pop(0))
                if not self.is_silent and position < len(self._batches):
                    room_id, events = self._batches[position]
                    return _json(self._sync_answer(position + 1, events, room_id))
            await asyncio.sleep(0.005)  # the script runs in another thread
        return _json(self._sync_answer(position, []))

    def _sync_answer(self, position: int, events: list[Any], room_id: str = ROOM) -> dict[str, Any]:
        member = {
            "type": "m.room.member", "state_key": ANA, "sender": ANA, "event_id": "$member",
            "content": {"membership": "join", "displayname": "Ana"},
        }  # fmt: skip
        part = {
            "summary": {"m.joined_member_count": 2, "m.invited_member_count": 0},
            "state": {"events": [member]},
            "timeline": {"events": events, "limited": False, "prev_batch": "s0"},
        }
        return {"next_batch": f"s{position}", "rooms": {"join": {room_id: part}}}

    def _send(self, request: Request) -> Response:
        room, transaction = re.findall(r"/rooms/([^/]+)/send/m\.room\.message/(.+)$", request.path)[
            0
        ]
        if unquote(room) != ROOM:
            self.violations.append(f"a message to {unquote(room)}")
        with self.lock:
            self._sent.setdefault(transaction, str(json.loads(request.body)["body"]))
        return _json({"event_id": f"$own{transaction}"})

    def _download(self, request: Request) -> Response:
        content, media_type = self.files.get(request.path.rpartition("/")[2], (b"", ""))
        if not media_type:
            return _refusal(404, "M_NOT_FOUND")
        if content is None:
            return Response(200, content_type=media_type, stream=_endless())
        return Response(200, content, media_type)


def _json(value: Any) -> Response:
    return Response(200, json.dumps(value).encode())


def _refusal(status: int, code: str) -> Response:
    return Response(status, json.dumps({"errcode": code, "error": "a text of the server"}).encode())


async def _endless() -> AsyncGenerator[bytes, None]:
    while True:
        yield b"x" * 65536
        await asyncio.sleep(0)

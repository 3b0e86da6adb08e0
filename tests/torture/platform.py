"""A fake chat platform on loopback that records every update it sent and every message it received.

It sends an update to any node that asks, sends it again until it is acknowledged, and repeats some
after that too. In one chat the next message comes after the previous one was acknowledged. A
repeated delivery is dropped, as platforms with idempotency keys do.
"""

from __future__ import annotations

import http.client
import json
import random
import threading
import time
from collections import defaultdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

_REPEAT_AFTER = 1.0  # seconds until an update without an acknowledgement is sent again
_REPEATED = 0.1  # share of acknowledged updates that are repeated


class Claim(NamedTuple):
    message: str
    node: str
    at: float


class Platform:
    """The state of the fake platform."""

    def __init__(self, chats: int, seed: int, pause: float) -> None:
        self._random = random.Random(seed)
        self._lock = threading.Lock()
        self._pause = pause
        self._chats = [str(1000 + number) for number in range(chats)]
        self._due = {
            chat: time.monotonic() + self._random.uniform(0, pause) for chat in self._chats
        }
        self._offered: dict[str, tuple[dict[str, str], float]] = {}
        self._repeated: list[dict[str, str]] = []
        self._is_open = True
        self.questions: dict[str, list[str]] = {chat: [] for chat in self._chats}
        self.answers: dict[str, list[str]] = defaultdict(list)
        self.deliveries: set[str] = set()
        self.claims: list[Claim] = []
        self.finished: dict[str, float] = {}
        self.repeats = self.dropped = 0

    def stop_questions(self) -> None:
        """Send no new questions from now on."""
        with self._lock:
            self._is_open = False

    def total(self) -> int:
        return sum(map(len, self.questions.values()))

    def is_answered(self) -> bool:
        with self._lock:
            answered = sum(map(len, self.answers.values()))
            return not self._offered and answered >= self.total()

    def claimed_by(self, node: str) -> list[str]:
        """Return the unfinished messages whose newest claim is by a node."""
        with self._lock:
            newest = {claim.message: claim.node for claim in self.claims}
            return [
                message
                for message, claimant in newest.items()
                if claimant == node and message not in self.finished
            ]

    # -- calls by nodes

    def updates(self, limit: int = 20) -> list[dict[str, str]]:
        now = time.monotonic()
        with self._lock:
            updates, self._repeated = self._repeated[:limit], self._repeated[limit:]
            self.repeats += len(updates)
            for chat, (update, until) in self._offered.items():
                if until < now and len(updates) < limit:
                    updates.append(update)
                    self.repeats += 1
                    self._offered[chat] = update, now + _REPEAT_AFTER
            for chat, at in self._due.items():
                if (
                    self._is_open
                    and at < now
                    and chat not in self._offered
                    and len(updates) < limit
                ):
                    updates.append(self._new_question(chat, now))
            return updates

    def ack(self, update: dict[str, str]) -> None:
        with self._lock:
            offered = self._offered.get(update["chat"])
            if offered is None or offered[0]["id"] != update["id"]:
                return
            del self._offered[update["chat"]]
            self._due[update["chat"]] = time.monotonic() + self._random.uniform(0, self._pause)
            if self._random.random() < _REPEATED:
                self._repeated.append(update)

    def send(self, delivery: str, chat: str, text: str) -> None:
        with self._lock:
            if delivery in self.deliveries:
                self.dropped += 1
                return
            self.deliveries.add(delivery)
            self.answers[chat].append(text)

    def claimed(self, message: str, node: str) -> None:
        with self._lock:
            self.claims.append(Claim(message, node, time.monotonic()))

    def done(self, message: str) -> None:
        with self._lock:
            self.finished.setdefault(message, time.monotonic())

    def _new_question(self, chat: str, now: float) -> dict[str, str]:
        number = len(self.questions[chat]) + 1
        update = {"chat": chat, "id": f"{chat}-{number}", "text": f"question {chat}-{number}"}
        self.questions[chat].append(update["id"])
        self._offered[chat] = update, now + _REPEAT_AFTER
        return update


class Server(ThreadingHTTPServer):
    """The HTTP server of the platform, with JSON bodies."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, platform: Platform) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.platform = platform
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a node that was killed in the middle of a request."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def do_POST(self) -> None:
        arguments = json.loads(self.rfile.read(int(self.headers["content-length"])))
        call = getattr(self.server.platform, self.path.removeprefix("/"))
        response = json.dumps(call(**arguments)).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(response)))
        self.end_headers()
        self.wfile.write(response)

    def log_message(self, format: str, *args: Any) -> None:
        pass


class Client:
    """A node's client of the platform; one for each thread."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._connection: http.client.HTTPConnection | None = None

    def call(self, name: str, **arguments: Any) -> Any:
        if self._connection is None:
            self._connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
        self._connection.request("POST", f"/{name}", json.dumps(arguments))
        return json.loads(self._connection.getresponse().read())

"""A Bot API server with users, for the row `telegram`: a process of its own, as little as possible.

Each user writes, waits for the answer, and writes again. It keeps the one promise that the adapter
depends on: a poll with an offset forgets what is below it, and gives the rest. The faults are left
to the tests. It prints its port, and, when all users have their answers, what it has seen.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import Counter
from typing import Any

TOKEN = "1:benchmark"
_BOT = {"id": 1, "is_bot": True, "first_name": "Bot", "username": "benchmark_bot"}
_BATCH = 100
_FIRST_USER = 1000  # not the bot itself


class Users:
    """The users of the bot, the updates that wait, and the answers that came."""

    def __init__(self, people: int, messages: int) -> None:
        self.people = people
        self.messages = messages
        self.written: Counter[int] = Counter()
        self.answers: Counter[str] = Counter()
        self.pending: list[tuple[int, bytes]] = []
        self.has_update = asyncio.Event()
        self.ended = asyncio.Event()
        self.began = 0.0
        self.sends = 0
        self._next_update = 1

    def write(self, chat: int) -> None:
        """Let a user write the next message."""
        number = self.written[chat] = self.written[chat] + 1
        text = f"question {number}: what about the harbour, and who told you so?"
        person = {"id": chat, "is_bot": False, "first_name": "Ana"}
        message = {
            "message_id": number, "date": 1700000000, "text": text, "from": person,
            "chat": {"id": chat, "type": "private", "first_name": "Ana"},
        }  # fmt: skip
        update = {"update_id": self._next_update, "message": message}
        self.pending.append((self._next_update, json.dumps(update).encode()))
        self._next_update += 1
        self.has_update.set()

    def answer(self, chat: int, text: str) -> None:
        """Count an answer; it lets its user write again."""
        self.sends += 1
        self.answers[f"{chat} {text}"] += 1
        if self.written[chat] < self.messages:
            self.write(chat)
        elif self.sends >= self.people * self.messages:
            self.ended.set()

    async def poll(self, offset: int, seconds: float) -> bytes:
        """Return the updates from an offset on; what is below it is forgotten."""
        if not self.began:
            self.began = time.perf_counter()
            for number in range(self.people):
                self.write(_FIRST_USER + number)
        if offset:
            self.pending = [update for update in self.pending if update[0] >= offset]
        if not self.pending and seconds:
            self.has_update.clear()
            try:
                async with asyncio.timeout(seconds):
                    await self.has_update.wait()
            except TimeoutError:
                pass
        return b",".join(body for _, body in self.pending[:_BATCH])


async def _serve(users: Users, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Serve one connection, request after request."""
    try:
        while head := await reader.readuntil(b"\r\n\r\n"):
            lines = head.decode("latin-1").split("\r\n")
            method = lines[0].split(" ")[1].rpartition("/")[2]
            headers = dict(line.lower().split(": ", 1) for line in lines[1:] if ": " in line)
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            result = await _call(users, method, json.loads(body or b"{}"))
            answer = b'{"ok":true,"result":' + result + b"}"
            writer.write(
                b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: "
                + str(len(answer)).encode() + b"\r\n\r\n" + answer
            )  # fmt: skip
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


async def _call(users: Users, method: str, fields: dict[str, Any]) -> bytes:
    match method:
        case "getUpdates":
            updates = await users.poll(fields.get("offset", 0), fields.get("timeout", 0))
            return b"[" + updates + b"]"
        case "sendMessage":
            users.answer(int(fields["chat_id"]), fields["text"])
            return json.dumps({"message_id": 100_000 + users.sends}).encode()
        case "getMe":
            return json.dumps(_BOT).encode()
    return b"true"


async def _run(people: int, messages: int) -> None:
    users = Users(people, messages)
    server = await asyncio.start_server(
        lambda reader, writer: _serve(users, reader, writer), "127.0.0.1", 0, backlog=1000
    )
    print(server.sockets[0].getsockname()[1], flush=True)
    await users.ended.wait()
    seconds = time.perf_counter() - users.began
    doubled = sum(count - 1 for count in users.answers.values())
    lost = people * messages - len(users.answers)
    print(json.dumps({"seconds": seconds, "lost": lost, "doubled": doubled}), flush=True)
    # Until its parent ends it: the gateway polls on while it stops.
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_run(int(sys.argv[1]), int(sys.argv[2])))

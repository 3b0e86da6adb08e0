"""People on a homeserver: what a test does with a Matrix client."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote

import httpx2

from tests.servers.synapse import Account, Synapse

# Long enough for any machine; a test that waits longer has failed.
PATIENCE = 120.0
_numbers = itertools.count(1)

Json = dict[str, Any]


class MatrixFault(Exception):
    """The homeserver refused a request of a test."""


def new_account(server: Synapse, name: str) -> Account:
    """Create an account; its id begins with the name, and no other test has it."""
    return server.register(f"{name}-{os.getpid()}-{next(_numbers)}")


class Person:
    """An account and its client."""

    def __init__(self, server: Synapse, account: Account) -> None:
        self.server = server
        self.id = account.user_id
        self.token = account.token
        headers = {"Authorization": f"Bearer {account.token}"}
        self._client = httpx2.AsyncClient(
            base_url=server.base_url, headers=headers, timeout=PATIENCE
        )
        self._batch: str | None = None

    async def close(self) -> None:
        await self._client.aclose()

    async def call(self, method: str, path: str, body: Any = None, **params: str) -> Json:
        content = None if body is None else json.dumps(body).encode()
        url = f"/_matrix/client/v3{path}"
        response = await self._client.request(method, url, content=content, params=params)
        if response.is_error:
            raise MatrixFault(f"{method} {path}: {response.status_code} {response.text}")
        answer: Json = response.json()
        return answer

    # -- rooms

    async def create_room(self, *invited: Person | str, **options: Any) -> str:
        """Create a room and return its id; a direct chat if one is invited."""
        ids = [person if isinstance(person, str) else person.id for person in invited]
        body = {"invite": ids, "preset": "private_chat", "is_direct": len(ids) == 1, **options}
        answer = await self.call("POST", "/createRoom", body)
        return str(answer["room_id"])

    async def join(self, room_id: str) -> None:
        await self.call("POST", f"/join/{quote(room_id, safe='')}", {})

    async def members(self, room_id: str) -> set[str]:
        path = f"/rooms/{quote(room_id, safe='')}/joined_members"
        return {*(await self.call("GET", path))["joined"]}

    async def wait_for_member(self, room_id: str, user_id: str) -> None:
        """Wait until somebody has joined a room."""

        async def has_joined() -> bool:
            return user_id in await self.members(room_id)

        await wait_for(has_joined, f"{user_id} has joined")

    async def set_state(self, room_id: str, kind: str, content: Json, key: str = "") -> None:
        await self.call("PUT", f"/rooms/{quote(room_id, safe='')}/state/{kind}/{key}", content)

    # -- messages

    async def send(
        self,
        room_id: str,
        content: str | Json,
        *,
        kind: str = "m.room.message",
        transaction: str | None = None,
    ) -> str:
        """Send a text or a content, and return the id of the event."""
        if isinstance(content, str):
            content = {"msgtype": "m.text", "body": content}
        transaction = transaction or f"{os.getpid()}-{next(_numbers)}"
        path = f"/rooms/{quote(room_id, safe='')}/send/{kind}/{transaction}"
        return str((await self.call("PUT", path, content))["event_id"])

    async def send_in_thread(self, room_id: str, root: str, text: str, **content: Any) -> str:
        thread = {
            "rel_type": "m.thread", "event_id": root, "is_falling_back": True,
            "m.in_reply_to": {"event_id": root},
        }  # fmt: skip
        body = {"msgtype": "m.text", "body": text, "m.relates_to": thread, **content}
        return await self.send(room_id, body)

    async def edit(self, room_id: str, event_id: str, text: str) -> str:
        new = {"msgtype": "m.text", "body": text}
        replaces = {"rel_type": "m.replace", "event_id": event_id}
        body = {**new, "body": f"* {text}", "m.new_content": new, "m.relates_to": replaces}
        return await self.send(room_id, body)

    async def redact(self, room_id: str, event_id: str) -> None:
        room, event = quote(room_id, safe=""), quote(event_id, safe="")
        await self.call("PUT", f"/rooms/{room}/redact/{event}/{next(_numbers)}", {})

    async def upload(self, content: bytes, kind: str) -> str:
        response = await self._client.post(
            "/_matrix/media/v3/upload", content=content, headers={"Content-Type": kind}
        )
        assert response.is_success, response.text
        return str(response.json()["content_uri"])

    async def download(self, uri: str) -> bytes:
        response = await self._client.get(
            f"/_matrix/client/v1/media/download/{uri.removeprefix('mxc://')}"
        )
        assert response.is_success, response.text
        return response.content

    # -- reading

    async def events(self, room_id: str, limit: int = 1000) -> list[Json]:
        """Return the events of a room, oldest first."""
        path = f"/rooms/{quote(room_id, safe='')}/messages"
        events: list[Json] = []
        start: dict[str, str] = {}
        while len(events) < limit:
            page = await self.call("GET", path, dir="b", limit="100", **start)
            events += page["chunk"]
            if not page["chunk"] or "end" not in page:
                break
            start = {"from": page["end"]}
        return events[::-1]

    async def messages(self, room_id: str, sender: str | None = None) -> list[Json]:
        """Return the messages of a room as a client shows them: edited, without what is deleted."""
        events = [
            event
            for event in await self.events(room_id)
            if event["type"] == "m.room.message" and event["content"]
        ]
        contents = {event["event_id"]: dict(event["content"]) for event in events}
        senders = {event["event_id"]: event["sender"] for event in events}
        for event in events:
            related = event["content"].get("m.relates_to", {})
            if related.get("rel_type") != "m.replace":
                continue
            target = related["event_id"]
            if senders.get(target) == event["sender"]:
                relation = contents[target].get("m.relates_to")
                contents[target] = {**event["content"]["m.new_content"]}
                if relation is not None:
                    contents[target]["m.relates_to"] = relation
            del contents[event["event_id"]]
        return [
            {"event_id": id_, "sender": senders[id_], **content}
            for id_, content in contents.items()
            if sender in (None, senders[id_])
        ]

    async def texts(self, room_id: str, sender: str) -> list[str]:
        return [message["body"] for message in await self.messages(room_id, sender)]

    async def wait_for_texts(self, room_id: str, sender: str, count: int) -> list[str]:
        """Wait until somebody has written so many messages, and return their texts."""

        async def has_all() -> bool:
            return len(await self.texts(room_id, sender)) >= count

        await wait_for(has_all, f"{count} messages of {sender}")
        return await self.texts(room_id, sender)


@asynccontextmanager
async def people(server: Synapse, *names: str) -> AsyncIterator[list[Person]]:
    """Yield a person for each name."""
    persons = [Person(server, new_account(server, name)) for name in names]
    try:
        yield persons
    finally:
        for person in persons:
            await person.close()


async def wait_for(condition: Callable[[], Awaitable[bool] | bool], what: str) -> None:
    """Wait for something that is bound to happen."""
    deadline = time.monotonic() + PATIENCE
    while True:
        result = condition()
        if not isinstance(result, bool):
            result = await result
        if result:
            return
        assert time.monotonic() < deadline, f"waited in vain: {what}"
        await asyncio.sleep(0.05)


def bodies(messages: Iterable[Json]) -> list[str]:
    return [message["body"] for message in messages]

"""The promises of an adapter, kept by the one of Matrix with a real homeserver."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tertulia.platforms.matrix import MatrixSettings
from tertulia.platforms.matrix.adapter import MatrixAdapter
from tertulia.testing.adapter_contract import AdapterContract, AdapterFixture, SendFailure
from tests.matrix.people import Person, people, wait_for
from tests.servers.http_proxy import Fault, HttpProxy
from tests.servers.synapse import Synapse

pytestmark = pytest.mark.check

_FAULTS: dict[SendFailure, Fault] = {
    "rate_limited": Fault(status=429, body=b'{"errcode":"M_LIMIT_EXCEEDED","retry_after_ms":700}'),
    "refused": Fault(status=403, body=b'{"errcode":"M_FORBIDDEN"}'),
    "too_large": Fault(status=413, body=b'{"errcode":"M_TOO_LARGE"}'),
    "unknown": Fault("cut_after"),
}


class MatrixScene(AdapterFixture):
    """Ana and the agent in a room; a proxy stands between the agent and the homeserver."""

    mishaps = ("unavailable", "rate_limited", "refused", "too_large", "unknown")

    def __init__(self, proxy: HttpProxy, ana: Person, agent: Person, room_id: str) -> None:
        settings = MatrixSettings(base_url=proxy.base_url, token=agent.token)
        self.adapter = MatrixAdapter(settings, agent.token)
        self.chat = room_id  # type: ignore[misc]
        self._proxy = proxy
        self._ana = ana
        self._agent = agent
        self._sends_before = 0
        self._reported: Counter[str] = Counter()
        self._events: dict[str, str] = {}
        self.secrets = (agent.token,)  # type: ignore[misc]

    async def write(self, text: str, message_id: str) -> bool:
        await wait_for(lambda: self.adapter.state.listening, "it listens")
        # The homeserver knows a message by its transaction: written twice, it is the same one.
        event_id = await self._ana.send(self.chat, text, transaction=f"w{message_id}")
        self._events[message_id] = event_id
        await wait_for(lambda: self._was_acknowledged(event_id) is not None, "it was polled again")
        is_acknowledged = self._was_acknowledged(event_id)
        self._reported[event_id] += 1
        return is_acknowledged is True

    def _was_acknowledged(self, event_id: str) -> bool | None:
        """Return whether the poll after the one that brought an event asked for what comes next."""
        polls = [request for request in self._proxy.requests if request.path.endswith("/sync")]
        brought = [
            exchange
            for exchange in self._proxy.exchanges
            if "since" in exchange.request.query and event_id.encode() in exchange.body
        ][self._reported[event_id] :]
        if not brought:
            return None
        position = next(n for n, poll in enumerate(polls) if poll is brought[0].request)
        if position + 1 == len(polls):
            return None
        return bool(polls[position + 1].query.get("since") == brought[0].json()["next_batch"])

    async def arrived(self, count: int) -> list[str]:
        return await self._ana.wait_for_texts(self.chat, self._agent.id, count)

    def spoil(self, mishap: SendFailure) -> None:
        self._sends_before = len(self._proxy.sent("/send/m.room.message/"))
        if mishap == "unavailable":
            self._proxy.refuse()
        else:
            self._proxy.spoil("/send/m.room.message/", _FAULTS[mishap])

    def tries(self) -> int:
        return len(self._proxy.sent("/send/m.room.message/")) - self._sends_before

    def another_adapter(self) -> MatrixAdapter:
        settings = MatrixSettings(base_url=self._proxy.base_url, token=self._agent.token)
        return MatrixAdapter(settings, self._agent.token)

    async def revoke(self) -> None:
        await self._agent.call("POST", "/logout", {})

    async def disconnect(self) -> None:
        self._proxy.refuse()

    async def reconnect(self) -> None:
        await self._proxy.open()

    async def attach(self, content: bytes) -> None:
        uri = await self._ana.upload(content, "application/octet-stream")
        await self._ana.send(self.chat, {"msgtype": "m.file", "body": "a.bin", "url": uri})

    async def write_as_agent(self, text: str) -> None:
        await self._agent.send(self.chat, text)

    async def write_as_program(self, text: str) -> None:
        await self._ana.send(self.chat, {"msgtype": "m.notice", "body": text})

    async def write_nonsense(self) -> None:
        await self._ana.send(self.chat, {"body": ["nonsense"]}, kind="m.reaction")
        await self._ana.send(self.chat, {"body": 1}, kind="org.example.next_year")

    async def edit(self, message_id: str, text: str) -> None:
        await self._ana.edit(self.chat, self._events[message_id], text)


class TestMatrixAdapter(AdapterContract):
    @pytest.fixture(autouse=True)
    def _use(self, synapse: Synapse) -> None:
        self._synapse = synapse

    @asynccontextmanager
    async def scene(self) -> AsyncIterator[AdapterFixture]:
        async with (
            people(self._synapse, "ana", "agent") as (ana, agent),
            HttpProxy(self._synapse.base_url) as proxy,
        ):
            room_id = await ana.create_room(agent)
            await agent.join(room_id)
            yield MatrixScene(proxy, ana, agent, room_id)

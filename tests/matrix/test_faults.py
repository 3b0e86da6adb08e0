"""Faults of the homeserver and of the network, through a proxy in front of a real homeserver."""

from __future__ import annotations

import asyncio
import json
import logging
import traceback
from pathlib import Path
from typing import Any

import pytest

from tertulia.core.backoff import Backoff
from tertulia.core.media import Media
from tertulia.core.source import Source
from tertulia.errors import (
    AccountProblem,
    Error,
    OutcomeUnknown,
    PlatformError,
    PlatformUnavailable,
    RateLimited,
)
from tertulia.platforms.base import Incoming, Outgoing, Passed, StreamUpdate, Update
from tertulia.platforms.matrix import MatrixSettings, event_content
from tertulia.platforms.matrix import adapter as matrix
from tertulia.platforms.matrix.adapter import MatrixAdapter
from tests.matrix.matrix_gateway import matrix_gateway
from tests.matrix.people import Person, people, wait_for
from tests.servers.http_proxy import Fault, HttpProxy
from tests.servers.synapse import Account, Synapse

pytestmark = pytest.mark.check

HTML = Fault(body=b"<html>Please log in</html>", content_type="text/html")
SEND = "/send/m.room.message/"


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reconnect at once: a test must not wait for the pauses of production."""
    monkeypatch.setattr(matrix, "_RECONNECT", Backoff(first=0.05, longest=0.1))
    backoff = Backoff(first=0.1, longest=0.2)
    monkeypatch.setattr("tertulia.gateway.retries.SEND_BACKOFF", backoff)


def adapter_of(base_url: str, agent: Person, **options: Any) -> MatrixAdapter:
    settings = MatrixSettings(base_url=base_url, token=agent.token, **options)
    return MatrixAdapter(settings, agent.token)


def test_listening_survives_every_fault_and_loses_nothing(
    synapse: Synapse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matrix, "_SILENCE_SECONDS", 1.0)
    monkeypatch.setattr(matrix, "_POLL_SECONDS", 0.3)
    faults = [
        HTML,
        Fault(body=b""),
        Fault(body=b"[1]"),
        Fault(body=b'{"rooms":{}}'),
        Fault(status=502, body=b"<html>", content_type="text/html"),
        Fault(status=500, body=b'{"errcode":"M_UNKNOWN"}'),
        Fault(status=429, body=b'{"errcode":"M_LIMIT_EXCEEDED","retry_after_ms":50}'),
        Fault("half"),
        Fault("cut_before"),
        Fault("cut_after"),
        Fault("hang"),
    ]
    received: list[str | None] = []
    cursors: list[str] = []

    async def receive(update: Update) -> None:
        if isinstance(update, Incoming):
            received.append(update.text)
        elif isinstance(update, Passed):
            cursors.append(update.cursor)

    async def run() -> None:
        async with (
            people(synapse, "ana", "agent") as (ana, agent),
            HttpProxy(synapse.base_url) as proxy,
        ):
            room = await ana.create_room(agent)
            await agent.join(room)
            adapter = adapter_of(proxy.base_url, agent)
            listening = asyncio.create_task(adapter.listen(receive))
            await wait_for(lambda: adapter.state.listening, "it listens")
            for number, fault in enumerate(faults):
                proxy.spoil("/sync$", fault, times=1)
                await wait_for(lambda: proxy.has_struck, f"{fault} meets a poll")
                await ana.send(room, str(number))
                await wait_for(lambda n=number: len(received) > n, f"message after {fault}")  # type: ignore[misc]
                proxy.mend()
            # Two failures in a row are a problem that is shown, and it goes away.
            proxy.refuse()
            await wait_for(
                lambda: bool(adapter.state.problem) and not adapter.state.listening,
                "it shows its problem",
            )
            await ana.send(room, "last")
            await proxy.open()
            await wait_for(lambda: received[-1] == "last", "it listens again")
            assert adapter.state.listening
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)
            await adapter.close()

    asyncio.run(run())
    assert received == [*map(str, range(len(faults))), "last"]
    assert len(cursors) == len(set(cursors))


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (HTML, OutcomeUnknown),
        (Fault("answer_after", body=b""), OutcomeUnknown),
        (Fault("answer_after", body=b"{}"), OutcomeUnknown),
        (Fault("half"), OutcomeUnknown),
        (Fault("cut_before"), OutcomeUnknown),
        (Fault("cut_after"), OutcomeUnknown),
        (Fault("answer_after", status=502, body=b"<html>"), OutcomeUnknown),
        (Fault(status=404, body=b"<html>"), PlatformUnavailable),
        (Fault(status=401, body=b'{"errcode":"M_UNKNOWN_TOKEN"}'), AccountProblem),
        (Fault(status=429, body=b"slow down"), RateLimited),
    ],
)
def test_failed_send_is_reported_and_arrives_once_when_repeated(
    synapse: Synapse, fault: Fault, error: type[PlatformError]
) -> None:
    async def run() -> None:
        async with (
            people(synapse, "ana", "agent") as (ana, agent),
            HttpProxy(synapse.base_url) as proxy,
        ):
            room = await ana.create_room(agent)
            await agent.join(room)
            adapter = adapter_of(proxy.base_url, agent)
            message = Outgoing(delivery="d1", chat_id=room, text="once")
            proxy.spoil(SEND, fault)
            with pytest.raises(PlatformError) as caught:
                await adapter.send(message)
            assert type(caught.value) is error
            assert caught.value.hint
            assert len(proxy.sent(SEND)) == 1
            proxy.mend()
            await adapter.close()
            # Another process repeats it, under the same key.
            second = adapter_of(synapse.base_url, agent)
            event_id = await second.send(message)
            await second.close()
            assert [m["event_id"] for m in await ana.messages(room, agent.id)] == [event_id]

    asyncio.run(run())


def test_refused_formatting_is_sent_as_plain_text_to_the_same_room(synapse: Synapse) -> None:
    async def run() -> None:
        async with (
            people(synapse, "ana", "agent") as (ana, agent),
            HttpProxy(synapse.base_url) as proxy,
        ):
            room = await ana.create_room(agent)
            await agent.join(room)
            adapter = adapter_of(proxy.base_url, agent)
            proxy.spoil(SEND, Fault(status=400, body=b'{"errcode":"M_BAD_JSON"}'), times=1)
            (text,) = event_content.format_text("**bold**")
            await adapter.send(
                Outgoing(delivery="d1", chat_id=room, text=text.text, spans=text.spans)
            )
            await adapter.close()
            (message,) = await ana.messages(room, agent.id)
            assert message["body"] == "bold"
            assert "formatted_body" not in message

    asyncio.run(run())


def test_rate_limit_of_the_homeserver_delays_answers_and_drops_none(
    synapse: Synapse, tmp_path: Path
) -> None:
    async def run() -> None:
        async with people(synapse, "ana", "agent") as (ana, agent):
            account = Account(agent.id, agent.token)
            async with matrix_gateway(str(tmp_path / "talk.db"), synapse.base_url, agent) as node:
                room = await ana.create_room(agent)
                await ana.wait_for_member(room, agent.id)
                await asyncio.to_thread(synapse.limit_messages, account, 2, 1)
                for number in range(5):
                    await ana.send(room, str(number))
                texts = await ana.wait_for_texts(room, agent.id, 5)
                assert texts == [f"re {number}" for number in range(5)]
                await node.wait_until_quiet()
                deliveries = (await node.store.outbox.find(limit=100)).items
                assert {delivery.state for delivery in deliveries} == {"sent"}
                assert max(delivery.attempts for delivery in deliveries) > 1, "no limit was met"

    asyncio.run(run())


def test_room_that_forbids_sending_is_refused_for_good(synapse: Synapse, tmp_path: Path) -> None:
    async def run() -> None:
        async with (
            people(synapse, "ana", "agent") as (ana, agent),
            matrix_gateway(str(tmp_path / "talk.db"), synapse.base_url, agent) as node,
        ):
            levels = {"events_default": 50, "users": {}}
            closed = await ana.create_room(agent, power_level_content_override=levels)
            other = await ana.create_room(agent)
            for room in (closed, other):
                await ana.wait_for_member(room, agent.id)
                await ana.send(room, "hello")
            assert await ana.wait_for_texts(other, agent.id, 1) == ["re hello"]
            await node.wait_until_quiet()
            states = {
                delivery.chat_id: (delivery.state, delivery.attempts)
                for delivery in (await node.store.outbox.find()).items
            }
            assert states == {closed: ("dead", 1), other: ("sent", 1)}

    asyncio.run(run())


def test_revoked_token_pauses_the_account_and_keeps_its_deliveries(
    synapse: Synapse, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    revoked = Fault(status=401, body=b'{"errcode":"M_UNKNOWN_TOKEN","soft_logout":false}')

    async def run() -> None:
        async with (
            people(synapse, "ana", "agent") as (ana, agent),
            HttpProxy(synapse.base_url) as proxy,
            matrix_gateway(str(tmp_path / "talk.db"), proxy.base_url, agent) as node,
        ):
            room = await ana.create_room(agent)
            await ana.wait_for_member(room, agent.id)
            await ana.send(room, "one")
            await ana.wait_for_texts(room, agent.id, 1)
            proxy.spoil("/_matrix/", revoked)
            await ana.send(room, "two")
            await node.store.outbox.put("news", f"matrix:{room}")
            await wait_for(lambda: not node.adapter.state.listening, "it stops listening")

            async def is_kept() -> bool:
                (delivery, *_) = (await node.store.outbox.find(state="waiting")).items or [None]
                return delivery is not None and delivery.attempts > 0 and delivery.tries == 0

            await wait_for(is_kept, "the delivery waits, and no try is used up")
            assert "M_UNKNOWN_TOKEN" in (node.adapter.state.problem or "")
            proxy.mend()
            texts = await ana.wait_for_texts(room, agent.id, 3)
            assert sorted(texts) == ["news", "re one", "re two"]
            secret = agent.token
            assert secret not in caplog.text

    asyncio.run(run())


def test_really_revoked_token_is_an_account_problem(synapse: Synapse) -> None:
    async def nothing(update: Update) -> None: ...

    async def run() -> None:
        async with people(synapse, "ana", "agent") as (ana, agent):
            room = await ana.create_room(agent)
            await agent.join(room)
            adapter = adapter_of(synapse.base_url, agent, user_id=agent.id)
            assert (await adapter.identify()).startswith(agent.id)
            listening = asyncio.create_task(adapter.listen(nothing))
            await wait_for(lambda: adapter.state.listening, "it listens")
            await agent.call("POST", "/logout", {})
            with pytest.raises(AccountProblem):
                await adapter.send(Outgoing(delivery="d1", chat_id=room, text="x"))
            with pytest.raises(AccountProblem):
                await asyncio.wait_for(listening, 60)
            assert not adapter.state.listening
            await adapter.close()
            other = adapter_of(synapse.base_url, ana, user_id=agent.id)
            with pytest.raises(AccountProblem, match="belongs to"):
                await other.identify()
            await other.close()

    asyncio.run(run())


def test_odd_events_do_not_stop_those_after_them(synapse: Synapse) -> None:
    received: list[Incoming] = []

    async def receive(update: Update) -> None:
        if isinstance(update, Incoming):
            received.append(update)

    def spoil(body: bytes) -> bytes:
        if b'"good"' not in body:
            return body
        answer = json.loads(body)
        for part in answer["rooms"]["join"].values():
            odd: list[Any] = [None, 7, {}, {"type": 5}, {"event_id": [], "sender": {}},
                   {"type": "m.room.message", "event_id": "$a", "sender": "@x:y", "content": []},
                   {"type": "m.room.message", "event_id": "$b", "sender": "@x:y",
                    "content": {"msgtype": "m.text", "body": "lone \ud800"}}]  # fmt: skip
            part["timeline"]["events"] = odd + part["timeline"]["events"] * 2
        return json.dumps(answer).encode()

    async def run() -> None:
        async with (
            people(synapse, "ana", "agent") as (ana, agent),
            HttpProxy(synapse.base_url) as proxy,
        ):
            room = await ana.create_room(agent)
            await agent.join(room)
            adapter = adapter_of(proxy.base_url, agent)
            listening = asyncio.create_task(adapter.listen(receive))
            await wait_for(lambda: adapter.state.listening, "it listens")
            proxy.spoil("/sync$", Fault("change", change=spoil))
            # The poll that is under way is not spoiled any more, the next one is.
            await ana.send(room, "first")
            await wait_for(lambda: len(received) == 1, "the first message came")
            await ana.send(room, "good")
            await wait_for(lambda: len(received) >= 4, "the good message came")
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)
            await adapter.close()

    asyncio.run(run())
    texts = [message.text for message in received]
    assert texts == ["first", "lone \ud800", "good", "good"]
    assert received[2].message_id == received[3].message_id


def test_cursor_that_the_homeserver_forgot_begins_anew(synapse: Synapse) -> None:
    received: list[str | None] = []

    async def receive(update: Update) -> None:
        if isinstance(update, Incoming):
            received.append(update.text)

    async def run() -> None:
        async with people(synapse, "ana", "agent") as (ana, agent):
            room = await ana.create_room(agent)
            await agent.join(room)
            await ana.send(room, "old")
            for cursor in (f"{agent.id} s1_garbage", "@other:x s1_1", "broken"):
                adapter = adapter_of(synapse.base_url, agent)
                adapter.cursor = cursor
                listening = asyncio.create_task(adapter.listen(receive))
                await wait_for(lambda adapter=adapter: adapter.state.listening, "it listens")  # type: ignore[misc]
                await ana.send(room, cursor)
                await wait_for(lambda: bool(received), "the new message came")
                assert received.pop() == cursor
                assert received == []
                listening.cancel()
                await asyncio.gather(listening, return_exceptions=True)
                await adapter.close()

    asyncio.run(run())


def test_no_secret_stands_in_errors_or_logs(
    synapse: Synapse, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    texts: list[str] = []
    faults = [HTML, Fault("half"), Fault("cut_after"), Fault(status=401, body=b'{"errcode":"M_X"}'),
              Fault(status=500), Fault(status=403, body=b'{"errcode":"M_FORBIDDEN"}'),
              Fault(status=429), Fault(status=413), Fault(status=308)]  # fmt: skip

    async def nothing(update: Update) -> None: ...

    async def run() -> str:
        async with (
            people(synapse, "ana", "agent") as (ana, agent),
            HttpProxy(synapse.base_url) as proxy,
        ):
            room = await ana.create_room(agent)
            await agent.join(room)
            adapter = adapter_of(proxy.base_url, agent)
            texts.append(repr(adapter) + repr(vars(adapter).keys()))

            async def use() -> None:
                for call in (
                    adapter.send(Outgoing(delivery="d", chat_id=room, text="x")),
                    adapter.identify(),
                    anext(adapter.fetch(Media(source="mxc://tertulia.test/x"))),
                    asyncio.wait_for(adapter.listen(nothing), 0.2),
                ):
                    try:
                        await call
                    except (Error, TimeoutError, StopAsyncIteration) as problem:
                        texts.extend(traceback.format_exception(problem))
                        texts.append(f"{problem!r} {vars(problem)}")

            for fault in faults:
                proxy.spoil("/_matrix/", fault)
                await use()
                proxy.mend()
            proxy.refuse()
            await use()
            await adapter.close()
            return agent.token

    token = asyncio.run(run())
    assert texts
    assert token not in "".join(texts)
    assert token not in caplog.text
    assert "Bearer" not in "".join(texts) + caplog.text


def test_draft_whose_outcome_is_unknown_is_not_left_behind(synapse: Synapse) -> None:
    async def run() -> None:
        async with (
            people(synapse, "ana", "agent") as (ana, agent),
            HttpProxy(synapse.base_url) as proxy,
        ):
            room = await ana.create_room(agent)
            await agent.join(room)
            adapter = adapter_of(proxy.base_url, agent)
            source = Source("matrix", room, user_id=ana.id)
            proxy.spoil(SEND, Fault("cut_after"), times=1)
            assert await adapter.show(source, progress("draft", "half")) is None
            assert await ana.texts(room, agent.id) == ["half"]
            assert await adapter.show(source, progress("ended")) is None
            assert await ana.texts(room, agent.id) == []
            await adapter.close()

    asyncio.run(run())


def test_next_process_finds_the_draft_of_a_dead_one(synapse: Synapse) -> None:
    async def run() -> None:
        async with people(synapse, "ana", "agent") as (ana, agent):
            room = await ana.create_room(agent)
            await agent.join(room)
            source = Source("matrix", room, user_id=ana.id)
            dead, living = (adapter_of(synapse.base_url, agent) for _ in range(2))
            draft_id = await dead.show(source, progress("draft", "half"))
            assert draft_id
            assert await living.show(source, progress("began", is_retry=True)) == draft_id
            assert await living.show(source, progress("draft", "more")) == draft_id
            final = Outgoing(delivery="d", chat_id=room, text="whole", replaces=draft_id)
            assert await living.send(final) == draft_id
            assert await living.send(final) == draft_id
            assert await ana.texts(room, agent.id) == ["whole"]
            # Another message has another draft, also in a new store that counts from one again.
            fresh = progress("began", is_retry=True, message_id="$other")
            assert await living.show(source, fresh) is None
            await dead.close()
            await living.close()

    asyncio.run(run())


def progress(kind: Any, text: str = "", *, message_id: str = "$m", **more: Any) -> StreamUpdate:
    return StreamUpdate(kind=kind, turn="1", text=text, message_id=message_id, **more)

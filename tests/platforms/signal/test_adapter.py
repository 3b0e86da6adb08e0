"""The Signal adapter against a daemon on loopback: every promise, and what happened to others."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
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
    Refused,
    StoreUnavailable,
    TooLarge,
)
from tertulia.platforms.base import (
    Changed,
    Incoming,
    Outgoing,
    Pressed,
    Receive,
    StreamUpdate,
    Update,
)
from tertulia.platforms.signal import adapter as adapter_module
from tertulia.platforms.signal import daemon_client
from tertulia.platforms.signal.adapter import SignalAdapter
from tertulia.platforms.signal.text_styles import format_text
from tertulia.testing.adapter_contract import AdapterContract, AdapterFixture, SendFailure
from tests.servers.scripted_http import Fault
from tests.servers.signal import (
    ANA_NUMBER,
    ANA_UUID,
    GROUP,
    NUMBER,
    OWN_UUID,
    SignalServer,
    error,
)

CHAT = Source("signal", ANA_UUID, user_id=ANA_NUMBER, user_id_alt=ANA_UUID)
MARK = "\ufffc"


@pytest.fixture
def server() -> Iterator[SignalServer]:
    with SignalServer() as running:
        yield running
    assert running.violations == []


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapter_module, "_RECONNECT", Backoff(first=0.02, longest=0.2))
    monkeypatch.setattr(adapter_module, "_STORE", Backoff(first=0.02, longest=0.2))


class WatchedAdapter(SignalAdapter):
    """Signal is told nothing: what the adapter has taken is what was stored."""

    def __init__(self, server: SignalServer) -> None:
        super().__init__(NUMBER, base_url=server.url)
        self._server = server
        self.stored: set[str] = set()
        self.rejected: list[str] = []

    async def listen(self, receive: Receive) -> None:
        async def watched(update: Update) -> None:
            message_id = str(update.message_id) if isinstance(update, Incoming) else ""
            try:
                await receive(update)
            except Error:
                self.rejected.append(message_id)
                self._server.notify()
                raise
            self.stored.add(message_id)
            self._server.notify()

        await super().listen(watched)


class SignalScene(AdapterFixture):
    chat = ANA_UUID
    mishaps = ("unavailable", "rate_limited", "refused", "unknown")

    def __init__(self, server: SignalServer) -> None:
        self.server = server
        self.adapter = self.watched = WatchedAdapter(server)
        self._ids: dict[str, str] = {}
        self._spoiled = 0

    async def write(self, text: str, message_id: str) -> bool:
        await asyncio.to_thread(self.server.wait_listening)
        rejected = len(self.watched.rejected)
        if message_id not in self._ids:
            envelope = self.server.write(text)
            self._ids[message_id] = f"{ANA_UUID}:{envelope['timestamp']}"
        number = self._ids[message_id]
        await asyncio.to_thread(
            self.server.wait,
            lambda: number in self.watched.stored or len(self.watched.rejected) > rejected,
        )
        # It may be stored by now: it is handed over again by itself.
        return len(self.watched.rejected) == rejected

    async def arrived(self, count: int) -> list[str]:
        sent = await asyncio.to_thread(self.server.wait_sent, count)
        return [message.text for message in sent]

    def spoil(self, mishap: SendFailure) -> None:
        self._spoiled = self.server.count("send")
        faults = {
            "rate_limited": error(-5, "RATE_LIMIT_FAILURE", retryAfterSeconds=7, times=None),
            "refused": error(-4, "IDENTITY_FAILURE", times=None),
            "unknown": Fault(takes=True, end="cut", times=None),
        }
        if mishap == "unavailable":
            self.server.refuse()
        else:
            self.server.spoil("send", faults[mishap])

    def tries(self) -> int:
        return self.server.count("send") - self._spoiled

    async def revoke(self) -> None:
        self.server.number = "+15550199"  # the daemon has another account now

    async def disconnect(self) -> None:
        self.server.refuse()

    async def reconnect(self) -> None:
        self.server.open()

    async def edit(self, message_id: str, text: str) -> None:
        stamp = int(self._ids[message_id].rpartition(":")[2])
        message = {"timestamp": stamp + 1, "message": text}
        edit = {"targetSentTimestamp": stamp, "dataMessage": message}
        self.server.push(self.server.envelope(editMessage=edit))

    async def attach(self, content: bytes) -> None:
        self.server.write(attachments=[self.server.attach(content)])

    async def write_as_agent(self, text: str) -> None:
        own = {"sourceUuid": OWN_UUID, "sourceNumber": NUMBER}
        message = {"timestamp": 5, "message": text}
        self.server.push(self.server.envelope(dataMessage=message) | own)

    async def write_nonsense(self) -> None:
        self.server.push({"dataMessage": {"message": "of nobody"}})


class TestSignalAdapter(AdapterContract):
    def play(
        self,
        act: Callable[[AdapterFixture], Awaitable[None]],
        receive: Callable[[Incoming], Awaitable[None]] | None = None,
        updates: list[Update] | None = None,
        press: Callable[[Pressed], Awaitable[None]] | None = None,
    ) -> None:
        """Begin when the adapter is connected.

        A connection that is cancelled while it is made is closed only by the garbage collector,
        with a warning.
        """

        async def connected(scene: AdapterFixture) -> None:
            assert isinstance(scene, SignalScene)
            await asyncio.to_thread(scene.server.wait_listening)
            await act(scene)

        super().play(connected, receive, updates, press)

    @asynccontextmanager
    async def scene(self) -> AsyncIterator[AdapterFixture]:
        with SignalServer() as server:
            yield SignalScene(server)
            assert server.violations == []


class Listener:
    """An adapter that listens, and what it handed over."""

    def __init__(self, server: SignalServer) -> None:
        self.server = server
        self.adapter = SignalAdapter(NUMBER, base_url=server.url)
        self.updates: list[Update] = []
        self.failures: list[Exception] = []
        self.listening: asyncio.Task[None] | None = None

    async def receive(self, update: Update) -> None:
        if self.failures:
            raise self.failures.pop()
        self.updates.append(update)
        self.server.notify()

    @property
    def messages(self) -> list[Incoming]:
        return [update for update in self.updates if isinstance(update, Incoming)]

    @property
    def texts(self) -> list[str | None]:
        return [message.text for message in self.messages]

    async def wait(self, condition: Callable[[], bool]) -> None:
        await asyncio.to_thread(self.server.wait, condition)

    async def wait_texts(self, *texts: str) -> None:
        await self.wait(lambda: len(self.messages) >= len(texts))
        assert self.texts == list(texts)

    async def wait_state(self, *, listening: bool) -> None:
        while self.adapter.state.listening is not listening:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def play(server: SignalServer, act: Callable[[Listener], Awaitable[None]]) -> Listener:
    """Run `act` while an adapter listens."""
    listener = Listener(server)

    async def run() -> None:
        async with asyncio.timeout(60):
            listener.listening = asyncio.create_task(listener.adapter.listen(listener.receive))
            try:
                await listener.wait(lambda: bool(server.listeners))
                await act(listener)
            finally:
                listener.listening.cancel()
                await asyncio.gather(listener.listening, return_exceptions=True)
                await listener.adapter.close()

    asyncio.run(run())
    return listener


def call(server: SignalServer, act: Callable[[SignalAdapter], Awaitable[Any]]) -> Any:
    """Run `act` with an adapter that does not listen."""

    async def run() -> Any:
        adapter = SignalAdapter(NUMBER, base_url=server.url)
        try:
            async with asyncio.timeout(60):
                return await act(adapter)
        finally:
            await adapter.close()

    return asyncio.run(run())


def outgoing(text: str = "hola", **fields: Any) -> Outgoing:
    return Outgoing(**{"delivery": "d1", "chat_id": ANA_UUID, "text": text, **fields})


# -- receiving


@pytest.mark.check
@pytest.mark.parametrize(
    "fault",
    [
        Fault(500, b""),
        Fault(502, b"<html>bad gateway</html>", "text/html"),
        Fault(200, b"<html>hotel wifi</html>", "text/html"),
        Fault(200, b"", "text/event-stream"),
        Fault(404, b""),
        Fault(end="cut"),
    ],
)
def test_no_fault_of_the_stream_ends_listening(server: SignalServer, fault: Fault) -> None:
    server.spoil("events", fault, fault)

    async def act(listener: Listener) -> None:
        server.write("hola")
        await listener.wait_texts("hola")
        assert listener.adapter.state.listening

    play(server, act)


def test_daemon_that_restarts_is_reached_again(server: SignalServer) -> None:
    async def act(listener: Listener) -> None:
        server.write("before")
        await listener.wait_texts("before")
        server.refuse()
        await listener.wait_state(listening=False)
        assert listener.adapter.state.problem
        server.open()
        await listener.wait(lambda: len(server.listeners) == 1)
        server.cut()
        await listener.wait(lambda: server.count("events") >= 3 and bool(server.listeners))
        server.write("after")
        await listener.wait_texts("before", "after")

    play(server, act)


def test_messages_wait_for_a_listener_and_each_listener_gets_all(server: SignalServer) -> None:
    """Received on connection: Signal keeps what comes while nobody listens."""
    server.write("while nobody listened")

    async def act(listener: Listener) -> None:
        await listener.wait_texts("while nobody listened")
        other = Listener(server)
        listening = asyncio.create_task(other.adapter.listen(other.receive))
        await asyncio.to_thread(server.wait_listening, 2)
        server.write("for both")
        await other.wait_texts("for both")
        await listener.wait(lambda: len(listener.messages) == 2)
        assert listener.messages[1].message_id == other.messages[0].message_id
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
        await other.adapter.close()

    play(server, act)


def test_silent_connection_is_dropped(
    server: SignalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Deaf for hours while the status said connected: the daemon sends a sign every 15 s."""
    monkeypatch.setattr(daemon_client, "SILENCE_SECONDS", 0.5)
    server.keepalive_seconds = 0.1

    async def act(listener: Listener) -> None:
        server.write("before")
        await listener.wait_texts("before")
        server.is_silent = True
        await listener.wait_state(listening=False)
        server.is_silent = False
        await listener.wait_state(listening=True)

        def is_heard() -> bool:
            # The connection may be dropped again, and the daemon keeps nothing for another one.
            server.write("after")
            return "after" in listener.texts

        await listener.wait(is_heard)

    play(server, act)


def test_headers_of_an_older_daemon_come_late(server: SignalServer) -> None:
    server.delays_headers = True
    server.keepalive_seconds = 0.3

    async def act(listener: Listener) -> None:
        server.write("hola")
        await listener.wait_texts("hola")

    play(server, act)


def test_message_that_cannot_be_stored_is_handed_over_again(server: SignalServer) -> None:
    async def act(listener: Listener) -> None:
        listener.failures = [StoreUnavailable("locked", hint="wait") for _ in range(3)]
        for number in range(5):
            server.write(f"m{number}")
        await listener.wait_texts(*(f"m{number}" for number in range(5)))

    play(server, act)
    assert server.count("events") == 1


def test_events_that_are_not_understood_are_skipped(
    server: SignalServer, caplog: pytest.LogCaptureFixture
) -> None:
    secret = "a text that nobody may read in a log"
    message = {"message": secret, "timestamp": 5}
    bad: list[Any] = [
        None, 5, [secret], {}, {"dataMessage": message}, {"sourceUuid": 5, "dataMessage": message},
        server.envelope(dataMessage={"message": 5}),
        server.envelope(dataMessage={**message, "timestamp": "x"}),
        server.envelope(dataMessage={**message, "groupInfo": {}}),
        server.envelope(dataMessage={**message, "mentions": [{}]}),
        server.envelope(dataMessage={**message, "quote": {"id": None}}),
        server.envelope(dataMessage={**message, "attachments": [{}]}),
        server.envelope(dataMessage={"reaction": {}}),
        server.envelope(editMessage={}),
    ]  # fmt: skip

    async def act(listener: Listener) -> None:
        for envelope in bad:
            server.push(envelope)
        server.push_raw(b"not json " + secret.encode())
        server.push_raw(b'{"exception": {"message": "x"}}')
        for kind in ("typingMessage", "receiptMessage", "syncMessage", "callMessage"):
            server.push(server.envelope() | {kind: {"message": secret}})
        server.write("\ud83d lone")
        server.write("after all of them")
        await listener.wait(lambda: "after all of them" in listener.texts)

    # At the logger itself: what other tests did to the loggers above it does not matter.
    logger = logging.getLogger("tertulia.platforms")
    logger.addHandler(caplog.handler)
    try:
        with caplog.at_level(logging.DEBUG, logger.name):
            listener = play(server, act)
    finally:
        logger.removeHandler(caplog.handler)
    assert "\ud83d lone" in listener.texts
    assert server.count("events") == 1
    assert "not understood" in caplog.text
    assert secret not in caplog.text


@pytest.mark.check
def test_huge_message_is_received(server: SignalServer) -> None:
    text = "x" * (16 * 2**20)

    async def act(listener: Listener) -> None:
        server.write(text)
        await listener.wait_texts(text)

    play(server, act)


def test_sources_addresses_and_mentions(server: SignalServer) -> None:
    own = {"name": "Tertulia", "number": None, "uuid": OWN_UUID, "start": 0, "length": 1}
    other = {"name": "Bo", "number": "+1555", "uuid": "x", "start": 3, "length": 1}
    quote = {"id": 7, "authorUuid": OWN_UUID, "text": "x"}

    async def act(listener: Listener) -> None:
        stamp = (await listener.adapter.send(outgoing()) or "").rpartition(":")[2]
        server.write("private")
        server.write("to nobody", group=GROUP)
        server.write(f"{MARK} hola", group=GROUP, mentions=[own])
        server.write(f"👋 {MARK}!", group=GROUP, mentions=[other])
        server.write("a reply", group=GROUP, quote=quote)
        server.write("a reply", group=GROUP, quote={"id": int(stamp), "author": "hidden"})
        server.write("to another", group=GROUP, quote={**quote, "authorUuid": "x"})
        server.write(f"{MARK} /new", group=GROUP, mentions=[own])
        hidden = server.envelope(dataMessage={"timestamp": 9, "message": "number is hidden"})
        server.push({**hidden, "source": ANA_UUID, "sourceNumber": None})
        server.push({**hidden, "sourceUuid": OWN_UUID, "sourceNumber": NUMBER})
        server.push(server.envelope(syncMessage={"sentMessage": {"message": "mine"}}))
        server.write(sticker={"packId": "1", "stickerId": 2, "emoji": "👋"})
        server.write("last")
        await listener.wait(lambda: "last" in listener.texts)

    messages = play(server, act).messages
    assert [(message.text, message.is_addressed) for message in messages] == [
        ("private", True),
        ("to nobody", False),
        ("@Tertulia hola", True),
        ("👋 @Bo!", False),
        ("a reply", True),
        ("a reply", True),
        ("to another", False),
        ("/new", True),
        ("number is hidden", True),
        ("(sticker: 👋)", True),
        ("last", True),
    ]
    sources = [message.source for message in messages]
    # One person, whatever form their ids have.
    assert {source.participant for source in sources} == {ANA_UUID}
    assert (sources[0].chat_type, sources[0].chat_id) == ("dm", ANA_UUID)
    assert (sources[1].chat_type, sources[1].chat_id, sources[1].chat_name) == (
        "group", GROUP, "Garden",
    )  # fmt: skip
    assert messages[4].reply_to == f"{OWN_UUID}:7"
    assert len({message.message_id for message in messages}) == len(messages)


def test_edits_deletions_and_reactions_are_changes(server: SignalServer) -> None:
    async def act(listener: Listener) -> None:
        stamp = server.write("before")["timestamp"]
        edited = {"timestamp": stamp + 50, "message": "after"}
        server.push(
            server.envelope(editMessage={"targetSentTimestamp": stamp, "dataMessage": edited})
        )
        server.write(remoteDelete={"timestamp": stamp})
        reaction = {"emoji": "👍", "targetAuthorUuid": ANA_UUID, "targetSentTimestamp": stamp}
        server.write(reaction=reaction)
        server.write("last")
        await listener.wait(lambda: "last" in listener.texts)

    listener = play(server, act)
    changes = [update for update in listener.updates if isinstance(update, Changed)]
    assert [(change.kind, change.text) for change in changes] == [
        ("edited", "after"),
        ("deleted", None),
        ("reacted", "👍"),
    ]
    assert {change.message_id for change in changes} == {listener.messages[0].message_id}


def test_unknown_account_is_the_accounts_problem(server: SignalServer) -> None:
    server.number = "+15550199"

    async def act(adapter: SignalAdapter) -> None:
        async def receive(update: Update) -> None:
            raise AssertionError(update)

        with pytest.raises(AccountProblem):
            await adapter.listen(receive)
        with pytest.raises(AccountProblem, match="has no account"):
            await adapter.send(outgoing())
        with pytest.raises(AccountProblem, match="has no account"):
            await adapter.identify()

    call(server, act)


# -- sending


@pytest.mark.check
@pytest.mark.parametrize(
    ("fault", "error_type"),
    [
        (error(-5, "RATE_LIMIT_FAILURE", retryAfterSeconds=240), RateLimited),
        (error(-5), RateLimited),
        (error(-5, "RATE_LIMIT_FAILURE", retryAfterSeconds=240, token="secret"), AccountProblem),
        (error(-5, "PROOF_REQUIRED_FAILURE", retryAfterSeconds=240), AccountProblem),
        (error(-4, "IDENTITY_FAILURE"), Refused),
        (error(-1, "UNREGISTERED_FAILURE"), Refused),
        (error(-1, "IDENTITY_FAILURE"), Refused),
        (error(-1, "NETWORK_FAILURE"), OutcomeUnknown),
        (error(-1, "UNREGISTERED_FAILURE", "NETWORK_FAILURE"), OutcomeUnknown),
        (error(-1, "RATE_LIMIT_FAILURE"), RateLimited),
        (error(-1), Refused),
        (error(-2), OutcomeUnknown),
        (error(-3), OutcomeUnknown),
        (error(-32603), OutcomeUnknown),
        (error(-32600), Refused),
        (error(-32601), Refused),
        (error(-32602), Refused),
        (Fault(413, b""), TooLarge),
        (Fault(500, b""), OutcomeUnknown),
        (Fault(502, b"<html>"), OutcomeUnknown),
        (Fault(200, b"<html>"), OutcomeUnknown),
        (Fault(200, b""), OutcomeUnknown),
        (Fault(200, b'{"result": {}}'), OutcomeUnknown),
        (Fault(403, b"<html>company proxy</html>"), PlatformUnavailable),
        (Fault(415, b""), PlatformUnavailable),
        (Fault(end="cut"), OutcomeUnknown),
        (Fault(takes=True, end="cut"), OutcomeUnknown),
        (Fault(takes=True, end="half"), OutcomeUnknown),
    ],
)
def test_every_error_has_its_meaning_and_is_not_repeated(
    server: SignalServer, fault: Fault, error_type: type[PlatformError]
) -> None:
    server.spoil("send", fault)
    with pytest.raises(PlatformError) as caught:
        call(server, lambda adapter: adapter.send(outgoing()))
    assert type(caught.value) is error_type
    assert caught.value.hint
    assert "secret" not in str(caught.value)
    assert server.count("send") == 1
    if isinstance(caught.value, RateLimited) and b"240" in fault.body:
        assert caught.value.retry_after == 240


def test_one_success_in_a_group_is_sent(server: SignalServer) -> None:
    server.spoil("send", error(-1, "NETWORK_FAILURE", "SUCCESS", "UNREGISTERED_FAILURE"))
    assert call(server, lambda adapter: adapter.send(outgoing(chat_id=GROUP))) == f"{NUMBER}:1"
    body = {"result": {"timestamp": 5, "results": [{"type": "NETWORK_FAILURE"}]}}
    server.spoil("send", Fault(200, json.dumps(body).encode()))
    with pytest.raises(OutcomeUnknown):
        call(server, lambda adapter: adapter.send(outgoing(chat_id=GROUP)))


def test_unreachable_daemon_has_certainly_sent_nothing(server: SignalServer) -> None:
    server.refuse()
    with pytest.raises(PlatformUnavailable):
        call(server, lambda adapter: adapter.send(outgoing()))


def test_formatting_quotes_files_and_edits(server: SignalServer) -> None:
    (part,) = format_text("**hola 👩‍👩‍👧** `code` [x](https://a.b) ~~no~~ *i*")
    assert "x (https://a.b)" in part.text

    async def act(adapter: SignalAdapter) -> None:
        number = await adapter.send(
            outgoing(part.text, spans=part.spans, reply_to=f"{ANA_UUID}:77")
        )
        media = Media(type="image/png", name="a b;c.png")
        await adapter.send(outgoing("see", media=media, content=b"\x89PNG"))
        await adapter.send(outgoing("changed", replaces=number))

    call(server, act)
    text, file, edit = server.sent
    assert text.styles == (
        "0:13:BOLD", "14:4:MONOSPACE", "35:2:STRIKETHROUGH", "38:1:ITALIC",
    )  # fmt: skip
    assert text.quote == 77
    assert file.file == ("image/png;filename=abc.png", b"\x89PNG")
    assert edit.edits == text.timestamp


def test_message_goes_to_its_chat_only(server: SignalServer) -> None:
    for chat in (ANA_UUID, ANA_NUMBER, "u:ana.01", GROUP):
        message = outgoing(chat_id=chat)
        call(server, partial(SignalAdapter.send, message=message))
    assert [message.chat for message in server.sent] == [ANA_UUID, ANA_NUMBER, "u:ana.01", GROUP]
    for chat_id in ("no group", None, ""):
        message = outgoing(chat_id=chat_id)
        with pytest.raises(Refused):
            call(server, partial(SignalAdapter.send, message=message))
    assert len(server.sent) == 4


def test_long_text_is_split_by_bytes(server: SignalServer) -> None:
    parts = format_text("**ñandú** " * 500)
    assert len(parts) > 1
    assert all(len(part.text.encode()) <= 2000 for part in parts)


# -- files, typing, the rest


def read(server: SignalServer, media: Media, limit: int = 2**30) -> bytes:
    async def act(adapter: SignalAdapter) -> bytes:
        content = b""
        pieces = adapter.fetch(media)
        try:
            async for piece in pieces:
                content += piece
                if len(content) >= limit:
                    break
        finally:
            await pieces.aclose()
        return content

    result = call(server, act)
    assert isinstance(result, bytes)
    return result


def test_file_is_received_and_fetched(server: SignalServer) -> None:
    content = bytes(range(256)) * 1000

    async def act(listener: Listener) -> None:
        server.write(attachments=[server.attach(content)])
        server.write("in a group", group=GROUP, attachments=[server.attach(b"x")])
        await listener.wait(lambda: len(listener.messages) == 2)

    (media,), (other,) = [message.media for message in play(server, act).messages]
    assert (media.name, media.type, media.size) == ("a.png", "image/png", 256_000)
    assert read(server, media) == content
    assert read(server, other) == b"x"
    server.spoil("getAttachment", Fault(end="half"), Fault(503, b""), Fault(200, b"<html>"))
    for _ in range(3):
        with pytest.raises(PlatformUnavailable):
            read(server, media)
    for wrong in (f"{ANA_UUID}#gone", "no file", None):
        with pytest.raises(Refused):
            read(server, Media(source=wrong))


def test_file_without_end_can_be_left(server: SignalServer) -> None:
    endless = Media(source=f"{ANA_UUID}#{server.attach(None)['id']}")
    assert len(read(server, endless, limit=500_000)) < 700_000


def test_typing_ends_with_its_turn_and_never_fails(server: SignalServer) -> None:
    async def act(adapter: SignalAdapter) -> None:
        await adapter.show(CHAT, StreamUpdate(kind="began", turn="t1"))
        (task,) = adapter._typing._by_turn.values()
        await adapter.show(CHAT, StreamUpdate(kind="ended", turn="t1"))
        await asyncio.gather(task, return_exceptions=True)
        assert task.cancelled()
        for fault in (Fault(end="cut"), Fault(502, b""), error(-5)):
            server.spoil("sendTyping", fault)
            await adapter.show(CHAT, StreamUpdate(kind="typing", turn="t2"))
            await asyncio.gather(*adapter._typing._by_turn.values())
        group = Source("signal", GROUP, chat_type="group", user_id="x")
        await adapter.show(group, StreamUpdate(kind="typing", turn="t3"))
        await asyncio.gather(*adapter._typing._by_turn.values())
        assert not adapter._typing._by_turn

    call(server, act)
    assert server.typing == [(GROUP, False)]


def test_typing_is_taken_back_when_a_turn_ends_without_an_answer(server: SignalServer) -> None:
    """Else Signal would show it for 15 more seconds."""

    async def act(adapter: SignalAdapter) -> None:
        for turn, is_shown in (("t1", True), ("t2", False)):
            await adapter.show(CHAT, StreamUpdate(kind="began", turn=turn))
            if is_shown:
                await asyncio.gather(*adapter._typing._by_turn.values())
                await adapter.show(CHAT, StreamUpdate(kind="tool", turn=turn))
            await adapter.show(CHAT, StreamUpdate(kind="ended", turn=turn))
            await adapter.show(CHAT, StreamUpdate(kind="ended", turn=turn))
            await asyncio.gather(*adapter._typing._by_turn.values())
        assert not adapter._typing._by_turn

    call(server, act)
    chat = CHAT.chat_id
    assert [shown for shown in server.typing if shown[1]] == [(chat, True)]
    assert server.typing[0] == (chat, False)
    assert server.typing[-1] == (chat, True)


def test_account_says_who_it_is(server: SignalServer) -> None:
    assert call(server, lambda adapter: adapter.identify()) == f"{NUMBER} (signal-cli 0.13.19)"
    server.lists_accounts = False  # a daemon that was started for one account
    assert call(server, lambda adapter: adapter.identify()) == f"{NUMBER} (signal-cli 0.13.19)"


def test_content_is_in_no_log(server: SignalServer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    secret = "a text that nobody may read in a log"

    async def act(listener: Listener) -> None:
        server.write(secret)
        await listener.wait_texts(secret)
        server.spoil("send", error(-3), Fault(end="cut"))
        for _ in range(2):
            with pytest.raises(PlatformError) as problem:
                await listener.adapter.send(outgoing(secret))
            assert secret not in str(problem.value)
        await listener.adapter.send(outgoing(secret))

    play(server, act)
    assert secret not in caplog.text

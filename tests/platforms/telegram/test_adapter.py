"""The Telegram adapter against a server on loopback: every promise, and what happened to others."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tertulia.core.backoff import Backoff
from tertulia.core.buttons import Button
from tertulia.core.media import Media
from tertulia.core.secret import Secret
from tertulia.core.source import Source
from tertulia.core.text.markdown import parse
from tertulia.core.text.spans import Span
from tertulia.errors import (
    AccessDenied,
    AccountProblem,
    ConfigError,
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
    HttpRequest,
    Incoming,
    MenuEntry,
    Outgoing,
    StreamUpdate,
    Update,
)
from tertulia.platforms.definition import BuildContext
from tertulia.platforms.telegram import PLATFORM, TelegramSettings
from tertulia.platforms.telegram import adapter as adapter_module
from tertulia.platforms.telegram.adapter import TelegramAdapter
from tertulia.platforms.telegram.entities import format_text
from tertulia.testing.adapter_contract import AdapterContract, AdapterFixture, SendFailure
from tests.servers.scripted_http import Fault
from tests.servers.telegram import BOT, TOKEN, TelegramServer, rate_limit, refusal

DM = Source("telegram", "42", user_id="42")


@pytest.fixture
def server() -> Iterator[TelegramServer]:
    with TelegramServer() as running:
        yield running
    assert running.violations == []


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pauses double as they do in production, from a shorter first one."""
    monkeypatch.setattr(adapter_module, "_RECONNECT", Backoff(first=0.02, longest=0.2))
    monkeypatch.setattr(adapter_module, "_CONFLICT", Backoff(first=0.02, longest=0.2))


class TelegramScene(AdapterFixture):
    chat = "42"
    mishaps = ("unavailable", "rate_limited", "refused", "too_large", "unknown")

    def __init__(self, server: TelegramServer) -> None:
        self.server = server
        self.adapter = TelegramAdapter(TOKEN, base_url=server.url)
        self._updates: dict[str, int] = {}
        self._written: Counter[str] = Counter()
        self._spoiled = 0
        server.chats[42] = {"id": 42, "type": "private", "first_name": "Ana"}

    async def write(self, text: str, message_id: str) -> bool:
        update = self._updates.get(message_id)
        if update is None:
            with self.server.lock:
                self.server.write(42, text)
                update = self._updates[message_id] = self.server.next_update - 1
        self._written[message_id] += 1
        times = self._written[message_id]
        return await asyncio.to_thread(self.server.wait_acknowledged, update, times)

    async def arrived(self, count: int) -> list[str]:
        sent = await asyncio.to_thread(self.server.wait_sent, count)
        return [message.text for message in sent]

    def spoil(self, mishap: SendFailure) -> None:
        self._spoiled = self.server.count("sendMessage")
        faults = {
            "rate_limited": rate_limit(7, None),
            "refused": refusal(403, "Forbidden: bot was kicked", times=None),
            "too_large": refusal(400, "Bad Request: message is too long", times=None),
            "unknown": Fault(takes=True, end="cut", times=None),
        }
        if mishap == "unavailable":
            self.server.refuse()
        else:
            self.server.spoil("sendMessage", faults[mishap])

    def tries(self) -> int:
        return self.server.count("sendMessage") - self._spoiled

    secrets = (TOKEN,)

    def another_adapter(self) -> TelegramAdapter:
        return TelegramAdapter(TOKEN, base_url=self.server.url)

    async def revoke(self) -> None:
        self.server.revoke()

    async def disconnect(self) -> None:
        self.server.refuse()

    async def reconnect(self) -> None:
        self.server.open()

    async def attach(self, content: bytes) -> None:
        file_id = self.server.add_file(content)
        self.server.write(42, document={"file_id": file_id, "file_size": len(content)})

    async def write_as_agent(self, text: str) -> None:
        self.server.write(42, text, user=BOT)

    async def write_as_program(self, text: str) -> None:
        self.server.write(42, text, user={**BOT, "id": 8, "username": "robot_bot"})

    async def write_nonsense(self) -> None:
        self.server.push({"message": {"text": ["nonsense"]}})
        self.server.push({"of_next_year": {}})

    async def edit(self, message_id: str, text: str) -> None:
        number = [*self._updates].index(message_id) + 1
        self.server.edit(self.server.messages[42, number], text)

    async def press(self, value: str) -> bool:
        press_id = self.server.press((42, self.server.sent[-1].message_id), data=value)
        await asyncio.to_thread(self.server.wait, lambda: self.server.presses[press_id])
        return True

    def buttons(self) -> list[Button]:
        if not self.server.sent:
            return []
        message = 42, self.server.sent[-1].message_id
        return [Button(*button) for button in self.server.buttons(message)]


class TestTelegramAdapter(AdapterContract):
    @asynccontextmanager
    async def scene(self) -> AsyncIterator[AdapterFixture]:
        with TelegramServer() as server:
            yield TelegramScene(server)
            assert server.violations == []


class Listener:
    """An adapter that listens, and what it handed over."""

    def __init__(self, server: TelegramServer, **options: Any) -> None:
        self.server = server
        self.adapter = TelegramAdapter(TOKEN, base_url=server.url, **options)
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
        await self.wait(lambda: len(self.updates) >= len(texts))
        assert self.texts == list(texts)

    async def wait_deaf(self) -> None:
        while self.adapter.state.listening:  # noqa: ASYNC110
            await asyncio.sleep(0.01)

    def start(self) -> None:
        self.listening = asyncio.create_task(self.adapter.listen(self.receive))

    async def stop(self) -> None:
        assert self.listening is not None
        self.listening.cancel()
        await asyncio.gather(self.listening, return_exceptions=True)


def play(
    server: TelegramServer, act: Callable[[Listener], Awaitable[None]], **options: Any
) -> Listener:
    """Run `act` while an adapter listens."""
    listener = Listener(server, **options)

    async def run() -> None:
        async with asyncio.timeout(60):
            listener.start()
            try:
                await act(listener)
            finally:
                await listener.stop()
                await listener.adapter.close()

    asyncio.run(run())
    return listener


def call(server: TelegramServer, act: Callable[[TelegramAdapter], Awaitable[Any]]) -> Any:
    """Run `act` with an adapter that does not listen."""
    server.chats.setdefault(42, {"id": 42, "type": "private", "first_name": "Ana"})

    async def run() -> Any:
        adapter = TelegramAdapter(TOKEN, base_url=server.url)
        try:
            async with asyncio.timeout(60):
                return await act(adapter)
        finally:
            await adapter.close()

    return asyncio.run(run())


def outgoing(text: str = "hola", **fields: Any) -> Outgoing:
    return Outgoing(**{"delivery": "d1", "chat_id": "42", "text": text, **fields})


# -- receiving


def test_waiting_messages_are_received_after_a_long_absence(server: TelegramServer) -> None:
    for number in range(250):
        server.write(42 + number % 7, f"waiting {number}")

    async def act(listener: Listener) -> None:
        await listener.wait(lambda: len(listener.updates) == 250 and not server.pending)

    listener = play(server, act)
    for chat in range(42, 49):
        own = [
            int((m.text or "").split()[1])
            for m in listener.messages
            if m.source.chat_id == str(chat)
        ]
        assert own == sorted(own)
    assert len(set(listener.texts)) == 250


def test_offset_of_an_earlier_time_is_never_sent(server: TelegramServer) -> None:
    """After a quiet week ids begin anew, possibly below an old offset."""

    async def act(listener: Listener) -> None:
        listener.server.push({"message": server.write(42, "new")}, update_id=900_000)
        await listener.wait(lambda: not server.pending and bool(listener.updates))
        await listener.wait(lambda: server.polls >= 3)
        server.next_update = 5
        server.write(42, "after a quiet week")
        await listener.wait(lambda: "after a quiet week" in listener.texts)

    play(server, act, poll_seconds=0)


def test_update_that_cannot_be_stored_is_asked_for_again(server: TelegramServer) -> None:
    async def act(listener: Listener) -> None:
        listener.failures = [StoreUnavailable("locked", hint="wait") for _ in range(3)]
        for number in range(5):
            server.write(42, f"m{number}")
        await listener.wait(lambda: len(listener.updates) == 5 and not server.pending)

    listener = play(server, act)
    assert listener.texts == [f"m{number}" for number in range(5)]


@pytest.mark.parametrize(
    "fault",
    [
        Fault(500, b""),
        Fault(502, b"<html>bad gateway</html>", "text/html"),
        Fault(200, b"<html>hotel wifi</html>", "text/html"),
        Fault(200, b""),
        Fault(200, b'{"ok":true}'),
        Fault(200, b'{"ok":true,"result":5}'),
        Fault(200, b'{"ok":true,"result":[{"upd'),
        Fault(end="cut"),
        Fault(end="half"),
        Fault(302, b""),
        rate_limit(0.1),
        rate_limit(None),
        refusal(400, "Bad Request"),
        refusal(409, "Conflict: terminated by other getUpdates request"),
    ],
)
def test_no_fault_of_a_poll_ends_listening(
    server: TelegramServer, fault: Fault, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tertulia.platforms.telegram.bot_api._DEFAULT_PAUSE", 0.05)

    async def act(listener: Listener) -> None:
        server.spoil("getUpdates", fault, fault)
        server.write(42, "hola")
        await listener.wait_texts("hola")
        assert listener.adapter.state.listening

    play(server, act)


def test_server_that_cannot_be_reached_is_reached_later(server: TelegramServer) -> None:
    async def act(listener: Listener) -> None:
        server.write(42, "before")
        await listener.wait_texts("before")
        server.refuse()
        await listener.wait_deaf()
        assert listener.adapter.state.problem
        server.write(42, "meanwhile")
        server.open()
        await listener.wait_texts("before", "meanwhile")

    play(server, act)


def test_silent_connection_is_dropped(
    server: TelegramServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Deaf for hours while the status said connected: the poll has a time limit."""
    monkeypatch.setattr(adapter_module, "_POLL_MARGIN_SECONDS", 0.3)

    async def act(listener: Listener) -> None:
        server.write(42, "before")
        await listener.wait_texts("before")
        server.silence()
        server.write(42, "meanwhile")
        await listener.wait_deaf()
        server.speak()
        await listener.wait_texts("before", "meanwhile")

    play(server, act, poll_seconds=0)


def test_conflict_ends_when_the_other_program_stops(server: TelegramServer) -> None:
    async def act(listener: Listener) -> None:
        await listener.wait(lambda: server.polls >= 2)
        async with asyncio.timeout(30):
            other = Listener(server)
            other.start()
            await listener.wait(lambda: server.conflicts >= 3)
            await other.stop()
            await other.adapter.close()
        server.write(42, "hola")
        await listener.wait(lambda: "hola" in [*listener.texts, *other.texts])
        assert listener.texts == ["hola"]

    play(server, act)


def test_webhook_of_an_earlier_configuration_is_removed(server: TelegramServer) -> None:
    server.webhook = {"url": "https://elsewhere.example"}
    server.write(42, "waiting")

    async def act(listener: Listener) -> None:
        await listener.wait_texts("waiting")

    play(server, act)
    assert server.webhook is None


@pytest.mark.parametrize(
    "fault",
    [
        Fault(404, b"404: Not Found", times=None),
        refusal(404, "Not Found", times=None),
        refusal(404, "Not Found: method not found", times=None),
        refusal(400, "Bad Request", times=None),
    ],
)
def test_server_without_webhooks_and_menus_is_polled(server: TelegramServer, fault: Fault) -> None:
    for method in ("deleteWebhook", "setMyCommands"):
        server.spoil(method, fault)
    server.write(42, "hola")

    async def act(listener: Listener) -> None:
        await listener.adapter.fill_menu((MenuEntry("new", "Start afresh"),))
        await listener.wait_texts("hola")

    play(server, act)


def test_webhook_that_another_program_sets_meanwhile_is_removed(server: TelegramServer) -> None:
    async def act(listener: Listener) -> None:
        await listener.wait(lambda: listener.adapter.state.listening)
        server.webhook = {"url": "https://elsewhere.example"}
        server.write(42, "one")  # ends the poll that waits
        await listener.wait(lambda: server.webhook is None)
        server.write(42, "two")
        await listener.wait_texts("one", "two")

    play(server, act)


def test_one_account_polls_once_at_a_time(server: TelegramServer) -> None:
    async def act(listener: Listener) -> None:
        for number in range(20):
            server.write(42, f"m{number}")
            await listener.wait(lambda: not server.pending)

    play(server, act)
    assert server.conflicts == 0


def test_updates_that_are_not_understood_are_skipped(
    server: TelegramServer, caplog: pytest.LogCaptureFixture
) -> None:
    secret = "a text that nobody may read in a log"
    chat = {"id": 42, "type": "private"}
    bad: list[dict[str, Any]] = [
        {"message": None},
        {"message": {"text": secret}},
        {"message": {"message_id": 1, "chat": {"id": "x", "type": "private"}, "text": secret}},
        {"message": {"message_id": 1, "chat": {"id": 42, "type": "planet"}, "text": secret}},
        {"message": {"message_id": 1, "chat": chat, "text": secret, "entities": [{}],
                     "photo": [{}]}},
        {"message": [secret]},
        {"edited_message": {"text": secret}},
        {"stopped_message_generation": {"chat": None}},
    ]  # fmt: skip
    server.push({"a_kind_of_next_year": {"text": secret}})
    for update in bad:
        server.push(update)
    server.push_raw(b'"not even an object"', 1500)
    server.push({"message": server.write(42, "\ud83d lone")}, update_id=1501)
    server.write(42, "after all of them")

    async def act(listener: Listener) -> None:
        await listener.wait(lambda: "after all of them" in listener.texts and not server.pending)

    listener = play(server, act)
    assert "\ud83d lone" in listener.texts
    assert "not understood" in caplog.text
    assert secret not in caplog.text


def test_update_that_is_no_json_does_not_stop_the_queue(
    server: TelegramServer, caplog: pytest.LogCaptureFixture
) -> None:
    server.write(42, "before")
    server.push_raw(b'{"update_id": 2000, "message": {"text": "secret" ', 2000)
    server.push({"message": server.write(42, "x")}, update_id=2001)

    async def act(listener: Listener) -> None:
        await listener.wait(lambda: "x" in listener.texts and not server.pending)

    listener = play(server, act)
    assert listener.texts[0] == "before"
    assert "2000" in caplog.text
    assert "secret" not in caplog.text


def test_huge_update_is_received(server: TelegramServer) -> None:
    text = "x" * (16 * 2**20)
    server.write(42, text)

    async def act(listener: Listener) -> None:
        await listener.wait_texts(text)

    play(server, act)


def test_update_that_is_given_twice_has_the_same_id(server: TelegramServer) -> None:
    message = server.write(42, "hola")
    server.push({"message": message})

    async def act(listener: Listener) -> None:
        await listener.wait_texts("hola", "hola")

    listener = play(server, act)
    assert len({message.message_id for message in listener.messages}) == 1


def test_edit_is_a_change_and_own_messages_are_dropped(server: TelegramServer) -> None:
    message = server.write(42, "before")
    server.edit(message, "after")
    server.write(-100, "of the bot itself", user=BOT)
    server.write(42, "last")

    async def act(listener: Listener) -> None:
        await listener.wait(lambda: len(listener.updates) == 3 and not server.pending)

    listener = play(server, act)
    assert listener.texts == ["before", "last"]
    (changed,) = [update for update in listener.updates if isinstance(update, Changed)]
    assert (changed.kind, changed.text) == ("edited", "after")
    assert changed.message_id == listener.messages[0].message_id


def test_revoked_token_ends_listening_with_an_account_problem(server: TelegramServer) -> None:
    async def act(listener: Listener) -> None:
        await listener.wait(lambda: server.polls >= 2)
        server.revoke()
        assert listener.listening is not None
        with pytest.raises(AccountProblem) as problem:
            await listener.listening
        assert TOKEN not in str(problem.value)
        assert not listener.adapter.state.listening

    play(server, act, poll_seconds=0)


# -- webhook


@pytest.mark.parametrize(
    ("base_url", "public_url", "problem"),
    [
        ("https://api.telegram.org", "https://me.example", None),
        ("https://api.telegram.org/", "http://me.example", "does not begin with https"),
        ("https://api.telegram.org", None, "has no public_url"),
        ("http://127.0.0.1:8081", "http://127.0.0.1:8460", None),
        ("http://127.0.0.1:8081", "127.0.0.1:8460", "does not begin with https"),
    ],
)
def test_only_a_server_of_ones_own_calls_an_address_without_https(
    base_url: str, public_url: str | None, problem: str | None
) -> None:
    settings = TelegramSettings(
        token=Secret("t"), secret=Secret("s"), mode="webhook", base_url=base_url,
        public_url=public_url,
    )  # fmt: skip
    context = BuildContext(name="telegram", settings=settings, folder="x", environ={})
    if problem is None:
        assert PLATFORM.build_adapter(context).needs_http
    else:
        with pytest.raises(ConfigError, match=problem):
            PLATFORM.build_adapter(context)


def post(update: object, secret: str = "s3cret") -> HttpRequest:
    headers = {"x-telegram-bot-api-secret-token": secret}
    return HttpRequest(method="POST", headers=headers, body=json.dumps(update).encode())


def test_webhook_is_set_and_its_calls_are_accepted(server: TelegramServer) -> None:
    async def act(listener: Listener) -> None:
        await listener.wait(lambda: server.webhook is not None)
        assert server.webhook is not None
        assert server.webhook["url"] == "https://me.example/platforms/telegram"
        assert server.webhook["secret_token"] == "s3cret"
        message = server.write(42, "hola")
        answer = await listener.adapter.respond(post({"update_id": 1, "message": message}))
        assert answer.status == 200
        assert listener.texts == ["hola"]
        for wrong in ("", "other", "s3creté"):
            with pytest.raises(AccessDenied):
                await listener.adapter.respond(post({"update_id": 1}, wrong))
        listener.failures = [StoreUnavailable("locked", hint="wait")]
        with pytest.raises(StoreUnavailable):
            await listener.adapter.respond(post({"update_id": 2, "message": message}))
        for bad in (5, {"message": {"text": "x"}}, {"update_id": 3, "a_new_kind": {}}):
            assert (await listener.adapter.respond(post(bad))).status == 200
        broken = HttpRequest(method="POST", headers=post(1).headers, body=b'{"update_')
        assert (await listener.adapter.respond(broken)).status == 200

    url = "https://me.example/platforms/telegram"
    play(server, act, webhook=(url, "s3cret"))


def test_webhook_that_was_removed_is_set_again(
    server: TelegramServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adapter_module, "_WEBHOOK_CHECK_SECONDS", 0.05)

    async def act(listener: Listener) -> None:
        await listener.wait(lambda: server.webhook is not None)
        server.webhook = None
        await listener.wait(lambda: server.count("setWebhook") == 2)

    play(server, act, webhook=("https://me.example/platforms/telegram", "s3cret"))


def test_webhook_that_is_refused_is_set_again_after_growing_pauses(
    server: TelegramServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts: list[int] = []

    class RecordingBackoff:
        def delay(self, attempt: int, _: float) -> float:
            attempts.append(attempt)
            return 0.01

    monkeypatch.setattr(adapter_module, "_RECONNECT", RecordingBackoff())
    reason = "Bad Request: bad webhook: Failed to resolve host: Name or service not known"
    server.spoil("setWebhook", refusal(400, reason, times=None))

    async def act(listener: Listener) -> None:
        await listener.wait(lambda: server.count("setWebhook") >= 4)
        assert "check public_url" in str(listener.adapter.state.problem)
        assert not listener.adapter.state.listening

    play(server, act, webhook=("https://nowhere.example/platforms/telegram", "s3cret"))
    assert attempts[:3] == [1, 2, 3]


def test_webhook_that_telegram_cannot_reach_is_a_problem_until_it_is_called(
    server: TelegramServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adapter_module, "_WEBHOOK_CHECK_SECONDS", 0.05)

    async def act(listener: Listener) -> None:
        adapter = listener.adapter
        await listener.wait(lambda: adapter.state.listening)
        message = server.write(42, "hola")
        server.webhook_failed_at = 1_800_000_000
        await listener.wait(lambda: not adapter.state.listening)
        assert "1 waiting" in str(adapter.state.problem)
        assert server.count("setWebhook") == 1
        monkeypatch.setattr("time.time", lambda: 1_800_000_001.0)
        await adapter.respond(post({"update_id": 1, "message": message}))
        assert adapter.state.listening
        checks = server.count("getWebhookInfo")
        await listener.wait(lambda: server.count("getWebhookInfo") >= checks + 2)
        assert adapter.state.listening

    play(server, act, webhook=("https://me.example/platforms/telegram", "s3cret"))


# -- sending


def test_formatted_text_arrives_with_entities_and_pings_nobody(server: TelegramServer) -> None:
    parts = format_text("**hola 👩‍👩‍👧** `code` [x](https://a.b) @someone\n```py\n1\n```")
    (part,) = parts
    number = call(server, lambda adapter: adapter.send(outgoing(part.text, spans=part.spans)))
    (message,) = server.sent
    assert str(message.message_id) == number
    assert [entity["type"] for entity in message.entities] == ["bold", "code", "text_link", "pre"]
    assert server.pings == []


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (refusal(403, "Forbidden: bot was blocked by the user"), Refused),
        (refusal(400, "Bad Request: chat not found"), Refused),
        (refusal(400, "Bad Request: message thread not found"), Refused),
        (refusal(400, "Bad Request: TOPIC_CLOSED"), Refused),
        (refusal(400, "Bad Request: not enough rights to send text messages"), Refused),
        (refusal(400, "Bad Request: message is too long"), TooLarge),
        (refusal(413, "Request Entity Too Large"), TooLarge),
        (Fault(413, b"<html>"), TooLarge),
        (refusal(401, "Unauthorized"), AccountProblem),
        (refusal(404, "Not Found"), AccountProblem),
        (rate_limit(240), RateLimited),
        (rate_limit(None), RateLimited),
        (Fault(429, b"<html>slow down"), RateLimited),
        (refusal(500, "Internal Server Error"), OutcomeUnknown),
        (Fault(502, b"<html>"), OutcomeUnknown),
        (Fault(504, b""), OutcomeUnknown),
        (Fault(200, b"<html>"), OutcomeUnknown),
        (Fault(200, b""), OutcomeUnknown),
        (Fault(403, b"<html>company proxy</html>"), PlatformUnavailable),
        (Fault(302, b""), PlatformUnavailable),
        (Fault(end="cut"), OutcomeUnknown),
        (Fault(takes=True, end="cut"), OutcomeUnknown),
        (Fault(takes=True, end="half"), OutcomeUnknown),
        (Fault(takes=True, status=500), OutcomeUnknown),
    ],
)
def test_every_refusal_has_its_meaning_and_is_not_repeated(
    server: TelegramServer, fault: Fault, error: type[PlatformError]
) -> None:
    server.spoil("sendMessage", fault)
    with pytest.raises(PlatformError) as caught:
        call(server, lambda adapter: adapter.send(outgoing()))
    assert type(caught.value) is error
    assert TOKEN not in repr(caught.value) + str(caught.value)
    assert server.count("sendMessage") == 1
    if fault.body and b"retry_after" in fault.body:
        assert isinstance(caught.value, RateLimited)
        assert caught.value.retry_after == 240


def test_send_without_answer_is_unknown(
    server: TelegramServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tertulia.platforms.telegram.bot_api._SEND_SECONDS", 0.2)
    server.spoil("sendMessage", Fault(takes=True, end="never"))
    with pytest.raises(OutcomeUnknown):
        call(server, lambda adapter: adapter.send(outgoing()))
    server.wait(lambda: len(server.sent) > 0)
    assert len(server.sent) == 1


def test_unreachable_server_has_certainly_sent_nothing(server: TelegramServer) -> None:
    server.refuse()
    with pytest.raises(PlatformUnavailable):
        call(server, lambda adapter: adapter.send(outgoing()))


def test_refused_formatting_is_sent_as_plain_text(server: TelegramServer) -> None:
    wrong = (Span("bold", 0, 4),)
    server.spoil("sendMessage", refusal(400, "Bad Request: can't parse entities: bad offset"))
    call(server, lambda adapter: adapter.send(outgoing(spans=wrong)))
    assert [(message.text, message.entities) for message in server.sent] == [("hola", ())]


def test_plain_text_that_is_refused_is_not_tried_for_ever(server: TelegramServer) -> None:
    server.spoil("sendMessage", refusal(400, "Bad Request: can't parse entities", times=None))
    with pytest.raises(Refused):
        call(server, lambda adapter: adapter.send(outgoing(spans=(Span("bold", 0, 4),))))
    assert server.count("sendMessage") == 2


def test_reply_to_a_message_that_is_gone_is_sent_without_it(server: TelegramServer) -> None:
    server.write(42, "hola")
    call(server, lambda adapter: adapter.send(outgoing(reply_to="1")))
    call(server, lambda adapter: adapter.send(outgoing(reply_to="999")))
    assert [message.reply_to for message in server.sent] == [1, None]
    server.spoil("sendMessage", refusal(400, "Bad Request: message to be replied not found"))
    call(server, lambda adapter: adapter.send(outgoing(reply_to="999")))
    assert len(server.sent) == 3


def test_topic_is_kept_and_nothing_lands_elsewhere(server: TelegramServer) -> None:
    server.forum(-100, 7)
    call(server, lambda adapter: adapter.send(outgoing(chat_id="-100", thread_id="7")))
    call(server, lambda adapter: adapter.send(outgoing(chat_id="-100", thread_id="1")))
    call(server, lambda adapter: adapter.send(outgoing(chat_id="-100")))
    assert [message.thread_id for message in server.sent] == [7, None, None]
    server.topics[-100].clear()
    with pytest.raises(Refused, match="no such topic"):
        call(server, lambda adapter: adapter.send(outgoing(chat_id="-100", thread_id="7")))
    assert len(server.sent) == 3


def test_group_that_moved_is_found_at_its_new_id(server: TelegramServer) -> None:
    server.migrated[-5] = -1005
    server.chats[-1005] = {"id": -1005, "type": "supergroup", "title": "Garden"}
    call(server, lambda adapter: adapter.send(outgoing(chat_id="-5")))
    assert [(message.chat_id, message.text) for message in server.sent] == [(-1005, "hola")]


@pytest.mark.parametrize(
    ("media_type", "size", "method"),
    [
        ("image/png", 10, "sendPhoto"),
        ("image/jpeg", 10_000_001, "sendDocument"),
        ("audio/ogg", 10, "sendVoice"),
        ("audio/mpeg", 10, "sendAudio"),
        ("video/mp4", 10, "sendVideo"),
        ("application/pdf", 10, "sendDocument"),
        (None, 10, "sendDocument"),
    ],
)
def test_file_is_sent_as_its_kind(
    server: TelegramServer, media_type: str | None, size: int, method: str
) -> None:
    media = Media(type=media_type, name="a b.bin")
    content = b"x" * size
    caption = parse("**see**")
    message = outgoing(caption.text, spans=caption.spans, media=media, content=content)
    call(server, lambda adapter: adapter.send(message))
    (sent,) = server.sent
    assert (sent.method, sent.text, sent.file) == (method, "see", ("a b.bin", content))
    assert [entity["type"] for entity in sent.entities] == ["bold"]


def test_message_is_replaced_and_unchanged_text_is_success(server: TelegramServer) -> None:
    number = call(server, lambda adapter: adapter.send(outgoing("first")))
    second = outgoing("second", replaces=number)
    for _ in range(2):
        again = call(server, lambda adapter: adapter.send(second))
        assert again == number
    assert server.messages[42, int(number)]["text"] == "second"


# -- files


def read(server: TelegramServer, media: Media, limit: int = 2**30) -> bytes:
    async def act(adapter: TelegramAdapter) -> bytes:
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


def test_file_is_fetched_and_a_lost_one_is_refused(server: TelegramServer) -> None:
    file_id = server.add_file(b"content" * 1000)
    assert read(server, Media(source=file_id)) == b"content" * 1000
    server.expired.add(file_id)
    with pytest.raises(Refused) as expired:
        read(server, Media(source=file_id))
    assert TOKEN not in str(expired.value)
    with pytest.raises(Refused):
        read(server, Media(source="of another bot"))
    with pytest.raises(TooLarge):
        read(server, Media(source=server.add_file(b"x" * 20_000_001)))
    server.spoil("file", Fault(end="half"), Fault(503, b""))
    for _ in range(2):
        with pytest.raises(PlatformUnavailable):
            read(server, Media(source=server.add_file(b"content")))


def test_file_without_end_can_be_left(server: TelegramServer) -> None:
    endless = Media(source=server.add_file(None))
    assert len(read(server, endless, limit=500_000)) < 600_000


# -- show


def show(server: TelegramServer, source: Source, *updates: StreamUpdate) -> TelegramAdapter:
    async def act(adapter: TelegramAdapter) -> TelegramAdapter:
        for update in updates:
            assert await adapter.show(source, update) is None
            await asyncio.gather(*adapter._typing._by_turn.values())
        return adapter

    result = call(server, act)
    assert isinstance(result, TelegramAdapter)
    return result


def draft(text: str) -> StreamUpdate:
    return StreamUpdate(kind="draft", turn="t1", text=text)


def test_draft_grows_and_has_a_number(server: TelegramServer) -> None:
    show(server, DM, StreamUpdate(kind="typing", turn="t1"), draft("**a"), draft("**a** b"))
    assert server.actions == [(42, None, "typing")]
    assert [text for _, _, text in server.drafts] == ["**a", "a b"]
    assert len({number for _, number, _ in server.drafts}) == 1
    assert server.drafts[0][1] > 0


def test_typing_ends_with_its_turn_and_a_short_turn_shows_none(server: TelegramServer) -> None:
    async def act(adapter: TelegramAdapter) -> None:
        await adapter.show(DM, StreamUpdate(kind="began", turn="t1"))
        await adapter.show(DM, StreamUpdate(kind="ended", turn="t1"))
        await adapter.show(DM, StreamUpdate(kind="began", turn="t2"))
        await asyncio.gather(*adapter._typing._by_turn.values())
        assert not adapter._typing._by_turn

    call(server, act)
    assert server.actions == [(42, None, "typing")]


def test_long_draft_shows_its_last_part(server: TelegramServer) -> None:
    show(server, DM, draft("word " * 2000 + "the end"))
    assert server.drafts[-1][2].endswith("the end")


def test_group_gets_no_draft_and_a_refusal_turns_drafts_off(server: TelegramServer) -> None:
    group = Source("telegram", "-100", chat_type="group", user_id="42")
    server.chats[-100] = {"id": -100, "type": "supergroup", "title": "Garden"}
    show(server, group, draft("a"), StreamUpdate(kind="typing", turn="t1"))
    assert server.count("sendMessageDraft") == 0
    server.spoil("sendMessageDraft", refusal(404, "Not Found: method not found", times=None))
    show(server, DM, draft("a"), draft("ab"), draft("abc"))
    assert server.count("sendMessageDraft") == 1


def test_show_obeys_the_pause_that_telegram_asks_for(server: TelegramServer) -> None:
    server.spoil("sendMessageDraft", rate_limit(60))
    show(server, DM, draft("a"), draft("ab"), StreamUpdate(kind="typing", turn="t1"))
    assert (server.count("sendMessageDraft"), server.count("sendChatAction")) == (1, 0)


@pytest.mark.parametrize("fault", [Fault(end="cut"), Fault(502, b"<html>"), Fault(200, b"{")])
def test_show_never_fails(server: TelegramServer, fault: Fault) -> None:
    server.spoil("sendMessageDraft", fault)
    server.spoil("sendChatAction", fault)
    show(server, DM, StreamUpdate(kind="typing", turn="t1"), draft("a"))


# -- the rest


def test_menu_has_the_commands_that_telegram_accepts(server: TelegramServer) -> None:
    entries = (MenuEntry("new", "Begin"), MenuEntry("Bad-Name", "x"), MenuEntry("help", "y" * 300))
    call(server, lambda adapter: adapter.fill_menu(entries))
    assert [command["command"] for command in server.commands] == ["new", "help"]
    assert all(len(command["description"]) <= 256 for command in server.commands)
    server.spoil("setMyCommands", rate_limit(60), refusal(401, "Unauthorized"))
    call(server, lambda adapter: adapter.fill_menu(entries))
    with pytest.raises(AccountProblem):
        call(server, lambda adapter: adapter.fill_menu(entries))


def test_bot_says_who_it_is(server: TelegramServer) -> None:
    assert call(server, lambda adapter: adapter.identify()) == "@tertulia_bot (Tertulia)"


def test_token_is_in_no_log_error_or_repr(
    server: TelegramServer, caplog: pytest.LogCaptureFixture
) -> None:
    """The token stands in every URL, which the HTTP library logs and keeps in its errors."""
    caplog.set_level(logging.DEBUG)
    faults = [
        Fault(end="cut"), Fault(takes=True, end="half"), Fault(502, b"<html>"), Fault(200, b"x"),
        refusal(401, "Unauthorized"), refusal(400, "Bad Request"), Fault(302, b"", headers={
            "Location": f"{server.url}/bot{TOKEN}/x"}),
    ]  # fmt: skip
    errors: list[BaseException] = []
    file_id = server.add_file(b"content")

    async def read_all(adapter: TelegramAdapter) -> None:
        async for _ in adapter.fetch(Media(source=file_id)):
            pass

    methods: dict[str, Callable[[TelegramAdapter], Awaitable[Any]]] = {
        "sendMessage": lambda adapter: adapter.send(outgoing()),
        "getMe": lambda adapter: adapter.identify(),
        "getFile": read_all,
        "file": read_all,
    }
    for operation, act in methods.items():
        for fault in faults:
            server.mend()
            server.spoil(operation, fault)
            try:
                call(server, act)
            except PlatformError as problem:
                errors.append(problem)
    server.refuse()
    with pytest.raises(PlatformUnavailable) as unreachable:
        call(server, lambda adapter: adapter.send(outgoing()))
    errors.append(unreachable.value)
    assert len(errors) > 20
    for error in errors:
        chain: BaseException | None = error
        while chain is not None:
            for text in (str(chain), repr(chain), repr(chain.__dict__), repr(chain.args)):
                assert TOKEN not in text
            assert chain.__cause__ is None
            chain = chain.__context__
    assert "/bot[hidden]/" in caplog.text
    assert TOKEN not in caplog.text
    adapter = TelegramAdapter(TOKEN, base_url=server.url, webhook=("https://x.y", "the-secret"))
    assert TOKEN not in repr(adapter)
    assert TOKEN not in repr(adapter._api)

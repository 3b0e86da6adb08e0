"""The WhatsApp adapter against a server on loopback: every promise, and what happened to others."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tertulia.core.backoff import Backoff
from tertulia.core.buttons import Button
from tertulia.core.media import Media
from tertulia.core.source import Source
from tertulia.errors import (
    AccessDenied,
    AccountProblem,
    OutcomeUnknown,
    PlatformError,
    PlatformUnavailable,
    RateLimited,
    Refused,
    StaleWrite,
    StoreUnavailable,
    TooLarge,
)
from tertulia.platforms.base import (
    Changed,
    HttpRequest,
    Incoming,
    Outgoing,
    Settled,
    StreamUpdate,
    Update,
)
from tertulia.platforms.whatsapp import adapter as adapter_module
from tertulia.platforms.whatsapp.adapter import WhatsAppAdapter
from tertulia.platforms.whatsapp.markup import format_text
from tertulia.testing.adapter_contract import AdapterContract, AdapterFixture, SendFailure
from tests.servers.scripted_http import Fault
from tests.servers.whatsapp import (
    ANA,
    ANA_ID,
    APP_SECRET,
    NUMBER,
    NUMBER_ID,
    TOKEN,
    VERIFY_TOKEN,
    Sent,
    WhatsAppServer,
    contact,
    notification,
    refusal,
)

DM = Source("whatsapp", ANA, user_id=ANA)


@pytest.fixture
def server() -> Iterator[WhatsAppServer]:
    with WhatsAppServer() as running:
        yield running
    assert running.violations == []


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapter_module, "_RECONNECT", Backoff(first=0.02, longest=0.2))
    monkeypatch.setattr(adapter_module, "_STATUS_SECONDS", 0.01)


def connected(server: WhatsAppServer, **options: Any) -> WhatsAppAdapter:
    values = {"phone_number_id": NUMBER_ID, "base_url": f"{server.url}/v23.0", **options}
    return WhatsAppAdapter(TOKEN, app_secret=APP_SECRET, verify_token=VERIFY_TOKEN, **values)


async def post(
    server: WhatsAppServer, adapter: WhatsAppAdapter, payload: Any, **headers: str
) -> int:
    """Post a signed notification as WhatsApp does; return the status, 503 if it is to repeat."""
    body = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    request = HttpRequest(method="POST", headers=server.sign(body) | headers, body=body)
    try:
        return (await adapter.respond(request)).status
    except (StoreUnavailable, PlatformUnavailable, StaleWrite):
        return 503


class WhatsAppScene(AdapterFixture):
    chat = ANA
    mishaps = ("unavailable", "rate_limited", "refused", "too_large", "unknown")

    def __init__(self, server: WhatsAppServer) -> None:
        self.server = server
        self._adapter = connected(server)
        self.adapter = self._adapter
        self._written: dict[str, dict[str, Any]] = {}
        self._spoiled = 0

    async def write(self, text: str, message_id: str) -> bool:
        while not self.adapter.state.listening:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        message = self._written.setdefault(message_id, self.server.message(ANA, text))
        value = self.server.value(messages=[message], contacts=[contact(ANA)])
        return await post(self.server, self._adapter, notification(value)) == 200

    async def arrived(self, count: int) -> list[str]:
        sent = await asyncio.to_thread(self.server.wait_sent, count)
        return [message.text for message in sent]

    def spoil(self, mishap: SendFailure) -> None:
        self._spoiled = self.server.count("messages")
        faults = {
            "rate_limited": refusal(131056, times=None),
            "refused": refusal(131026, times=None),
            "too_large": Fault(413, b"", times=None),
            "unknown": Fault(takes=True, end="cut", times=None),
        }
        if mishap == "unavailable":
            self.server.refuse()
        else:
            self.server.spoil("messages", faults[mishap])

    def tries(self) -> int:
        return self.server.count("messages") - self._spoiled

    secrets = (TOKEN, APP_SECRET, VERIFY_TOKEN)

    async def revoke(self) -> None:
        self.server.token = "another"

    async def _notify(self, *messages: Any) -> None:
        value = self.server.value(messages=list(messages), contacts=[contact(ANA)])
        assert await post(self.server, self._adapter, notification(value)) == 200

    async def attach(self, content: bytes) -> None:
        document = {"id": self.server.add_file(content)}
        await self._notify(self.server.message(ANA, None, type="document", document=document))

    async def write_nonsense(self) -> None:
        await self._notify(5, {"id": "x", "from": ANA, "type": "text", "text": ["nonsense"]})

    async def edit(self, message_id: str, text: str) -> None:
        original = self._written[message_id]["id"]
        content = {"type": "text", "text": {"body": text}}
        edit = {"original_message_id": original, "message": content}
        await self._notify(self.server.message(ANA, None, type="edit", edit=edit))

    async def press(self, value: str) -> bool:
        await self._notify(self.server.pressed(self.server.sent[-1], f"tertulia:{value}"))
        return True

    def buttons(self) -> list[Button]:
        return _buttons(self.server.sent[-1]) if self.server.sent else []


def _buttons(sent: Sent) -> list[Button]:
    return [Button(label, value.removeprefix("tertulia:")) for label, value in sent.buttons]


class TestWhatsAppAdapter(AdapterContract):
    @asynccontextmanager
    async def scene(self) -> AsyncIterator[AdapterFixture]:
        with WhatsAppServer() as server:
            yield WhatsAppScene(server)
            assert server.violations == []


class Listener:
    """An adapter that listens, and what it handed over."""

    def __init__(self, server: WhatsAppServer, **options: Any) -> None:
        self.server = server
        self.adapter = connected(server, **options)
        self.updates: list[Update] = []
        self.failures: list[Exception] = []
        self.listening: asyncio.Task[None] | None = None

    async def receive(self, update: Update) -> None:
        if self.failures:
            raise self.failures.pop(0)
        self.updates.append(update)

    @property
    def messages(self) -> list[Incoming]:
        return [update for update in self.updates if isinstance(update, Incoming)]

    @property
    def texts(self) -> list[str | None]:
        return [message.text for message in self.messages]

    async def post(self, *values: dict[str, Any]) -> int:
        return await post(self.server, self.adapter, notification(*values))

    async def write(self, number: str | None, text: str, **fields: Any) -> int:
        message = self.server.message(number, text, **fields)
        contacts = [contact(number, fields.get("user_id"))]
        return await self.post(self.server.value(messages=[message], contacts=contacts))

    async def start(self) -> None:
        self.listening = asyncio.create_task(self.adapter.listen(self.receive))
        while not self.adapter.state.listening and not self.listening.done():  # noqa: ASYNC110
            await asyncio.sleep(0.01)

    async def stop(self) -> None:
        assert self.listening is not None
        self.listening.cancel()
        await asyncio.gather(self.listening, return_exceptions=True)
        await self.adapter.close()


def play(
    server: WhatsAppServer, act: Callable[[Listener], Awaitable[None]], **options: Any
) -> Listener:
    """Run `act` while an adapter listens."""

    async def run() -> Listener:
        listener = Listener(server, **options)
        async with asyncio.timeout(60):
            await listener.start()
            try:
                await act(listener)
            finally:
                await listener.stop()
        return listener

    return asyncio.run(run())


def call(server: WhatsAppServer, act: Callable[[WhatsAppAdapter], Awaitable[Any]]) -> Any:
    """Run `act` with an adapter that does not listen."""

    async def run() -> Any:
        adapter = connected(server)
        try:
            async with asyncio.timeout(60):
                return await act(adapter)
        finally:
            await adapter.close()

    return asyncio.run(run())


def outgoing(text: str = "hola", **fields: Any) -> Outgoing:
    return Outgoing(**{"delivery": "d1", "chat_id": ANA, "text": text, **fields})


# -- receiving


def test_all_lists_of_a_notification_are_read(server: WhatsAppServer) -> None:
    async def act(listener: Listener) -> None:
        messages = [server.message(f"3460000000{number}", f"m{number}") for number in range(6)]
        values = [
            server.value(messages=messages[:3], contacts=[]),
            server.value(messages=messages[3:4]),
            server.value(
                statuses=[
                    {"id": f"w{number}", "status": "sent", "biz_opaque_callback_data": f"d{number}"}
                    for number in range(3)
                ]
            ),
        ]
        payload = notification(*values)
        change = {"field": "messages", "value": server.value(messages=messages[4:])}
        payload["entry"][0]["changes"].append(change)
        assert await post(server, listener.adapter, payload) == 200

    listener = play(server, act)
    assert sorted(map(str, listener.texts)) == [f"m{number}" for number in range(6)]
    settled = [update for update in listener.updates if isinstance(update, Settled)]
    assert [update.delivery for update in settled] == ["d0", "d1", "d2"]


def test_message_that_was_not_stored_is_repeated_and_not_overtaken(
    server: WhatsAppServer,
) -> None:
    async def act(listener: Listener) -> None:
        ana = [server.message(ANA, "first"), server.message(ANA, "second")]
        ben = server.message("34600999888", "of another")
        value = server.value(messages=[*ana, ben])
        listener.failures = [StoreUnavailable("locked", hint="wait")]
        assert await listener.post(value) == 503
        assert listener.texts == ["of another"]
        assert await listener.post(value) == 200

    listener = play(server, act)
    assert listener.texts == ["of another", "first", "second", "of another"]
    assert len({message.message_id for message in listener.messages}) == 3


def test_bad_items_do_not_stop_the_others(
    server: WhatsAppServer, caplog: pytest.LogCaptureFixture
) -> None:
    secret = "a text that nobody may read in a log"
    good = server.message(ANA, "after all of them")
    bad: list[Any] = [
        None, 5, secret, [secret], {}, {"id": "x", "from": ANA},
        {"id": "x", "type": "text", "text": {"body": secret}},
        {"id": "x", "from": ANA, "type": "text", "text": secret},
        {"id": None, "from": ANA, "type": "text", "text": {"body": secret}},
        {"id": "x", "from": ANA, "type": "image", "image": {"caption": secret}},
        {"id": "x", "from": ANA, "type": "reaction", "reaction": None},
        {"id": "x", "from": ANA, "type": "edit", "edit": {"message": secret}},
        {"id": "x", "from": ANA, "type": "kind_of_next_year", "kind_of_next_year": secret},
        {"id": "x", "from": ANA, "type": "unsupported", "errors": [{"code": 131051}]},
    ]  # fmt: skip

    async def act(listener: Listener) -> None:
        statuses: list[Any] = [None, 5, {}, {"status": secret}, {"status": "sent"}, {"status": {}}]
        value = server.value(messages=[*bad, good], statuses=statuses, errors=[{"code": 130429}])
        assert await listener.post(value) == 200
        for payload in (
            b"{", b"[1]", b"", b"\xff\xfe", {"entry": 5}, {"entry": [None, {"changes": 7}]},
            {"entry": [{"changes": [None, {"field": "messages"}, {"field": "other"}]}]},
            notification(server.value("another number", messages=[good])),
            {"entry": [{"changes": [{"field": "messages", "value": {"messages": [good]}}]}]},
        ):  # fmt: skip
            assert await post(server, listener.adapter, payload) == 200
        assert await listener.write(ANA, "\ud83d lone") == 200

    listener = play(server, act)
    assert listener.texts == ["after all of them", "\ud83d lone"]
    assert "not understood" in caplog.text
    assert "without an account" in caplog.text
    assert secret not in caplog.text


def test_edit_revoke_and_reaction_are_changes(server: WhatsAppServer) -> None:
    original = server.message(ANA, "before")

    async def act(listener: Listener) -> None:
        content = {"type": "text", "text": {"body": "after"}}
        changes = [
            {"type": "edit", "edit": {"original_message_id": original["id"], "message": content}},
            {"type": "revoke", "revoke": {"original_message_id": original["id"]}},
            {"type": "reaction", "reaction": {"message_id": original["id"], "emoji": "👍"}},
        ]
        messages = [original, *(server.message(ANA, None, **change) for change in changes)]
        assert await listener.post(server.value(messages=messages)) == 200

    listener = play(server, act)
    changes = [update for update in listener.updates if isinstance(update, Changed)]
    assert [(change.kind, change.text) for change in changes] == [
        ("edited", "after"),
        ("deleted", None),
        ("reacted", "👍"),
    ]
    assert {change.message_id for change in changes} == {original["id"]}
    assert len(listener.messages) == 1


def test_group_is_a_chat_of_its_own(server: WhatsAppServer) -> None:
    async def act(listener: Listener) -> None:
        await listener.write(ANA, "to all", group_id="G1")
        await listener.write(ANA, f"@{NUMBER} to you", group_id="G1")
        await listener.write(ANA, "a reply", group_id="G1", context={"from": NUMBER, "id": "w1"})

    listener = play(server, act)
    assert [message.is_addressed for message in listener.messages] == [False, True, True]
    assert {(m.source.chat_id, m.source.chat_type) for m in listener.messages} == {("G1", "group")}
    assert listener.messages[2].reply_to == "w1"


# -- who a person is


def test_person_known_by_the_number_stays_so_when_it_is_hidden(server: WhatsAppServer) -> None:
    """One person became two because an id changed its form."""
    ids: dict[str, str] = {}

    async def remember(user_id: str, new_id: str) -> str:
        return ids.setdefault(user_id, new_id)

    async def act(listener: Listener) -> None:
        listener.adapter.remember_id = remember
        await listener.write(ANA, "by number")
        await listener.write(ANA, "by both", user_id=ANA_ID)
        await listener.write(None, "by id", user_id=ANA_ID)

    async def after_restart(listener: Listener) -> None:
        listener.adapter.remember_id = remember
        await listener.write(None, "by id again", user_id=ANA_ID)

    first, second = play(server, act), play(server, after_restart)
    sources = [message.source for message in (*first.messages, *second.messages)]
    assert {source.chat_id for source in sources} == {ANA}
    assert {source.participant for source in sources} == {ANA}
    assert [source.user_id for source in sources] == [ANA, ANA_ID, ANA_ID, ANA_ID]


def test_person_known_by_the_id_stays_so_when_the_number_appears(server: WhatsAppServer) -> None:
    async def act(listener: Listener) -> None:
        await listener.write(None, "by id", user_id=ANA_ID)
        await listener.write(ANA, "by both", user_id=ANA_ID)

    listener = play(server, act)
    assert {message.source.chat_id for message in listener.messages} == {ANA_ID}
    assert {message.source.participant for message in listener.messages} == {ANA_ID}


def test_ids_that_cannot_be_stored_are_not_acknowledged(server: WhatsAppServer) -> None:
    async def fail(user_id: str, new_id: str) -> str:
        raise StoreUnavailable("locked", hint="wait")

    async def act(listener: Listener) -> None:
        listener.adapter.remember_id = fail
        assert await listener.write(ANA, "hola", user_id=ANA_ID) == 503

    assert play(server, act).updates == []


# -- the webhook


def test_address_is_verified_with_the_token(server: WhatsAppServer) -> None:
    def request(token: str, mode: str = "subscribe") -> HttpRequest:
        query = {"hub.mode": mode, "hub.verify_token": token, "hub.challenge": "1158201444"}
        return HttpRequest(method="GET", headers={}, query=query)

    async def act(adapter: WhatsAppAdapter) -> None:
        assert (await adapter.respond(request(VERIFY_TOKEN))).body == b"1158201444"
        for wrong in (request("wrong"), request("ñ"), request(VERIFY_TOKEN, "unsubscribe")):
            with pytest.raises(AccessDenied):
                await adapter.respond(wrong)
        with pytest.raises(AccessDenied):
            await adapter.respond(HttpRequest(method="GET", headers={}))

    call(server, act)


def test_unsigned_notifications_are_refused(server: WhatsAppServer) -> None:
    async def act(listener: Listener) -> None:
        payload = notification(server.value(messages=[server.message(ANA, "forged")]))
        body = json.dumps(payload).encode()
        for headers in (
            {},
            {"x-hub-signature-256": "sha256=" + "0" * 64},
            {"x-hub-signature-256": "ñ"},
            server.sign(body + b" "),
        ):
            request = HttpRequest(method="POST", headers=headers, body=body)
            with pytest.raises(AccessDenied):
                await listener.adapter.respond(request)

    assert play(server, act).updates == []


def test_notification_before_listening_is_repeated(server: WhatsAppServer) -> None:
    async def act(adapter: WhatsAppAdapter) -> None:
        payload = notification(server.value(messages=[server.message(ANA, "early")]))
        assert await post(server, adapter, payload) == 503

    call(server, act)


def test_message_reaches_the_account_of_its_number(server: WhatsAppServer) -> None:
    server.numbers["2222"] = "15550000000"

    async def act(listener: Listener) -> None:
        other = Listener(server, phone_number_id="2222", account="second")
        await other.start()
        try:
            messages = [server.message(ANA, "to the second")]
            value = server.value("2222", messages=messages)
            assert await listener.post(value, server.value(messages=messages)) == 200
            assert [message.source.account for message in other.messages] == ["second"]
        finally:
            await other.stop()

    assert play(server, act).texts == ["to the second"]


# -- the account


@pytest.mark.parametrize("code", [0, 10, 190, 200, 299, 131031, 131042])
def test_refused_account_is_the_trouble_of_the_account(server: WhatsAppServer, code: int) -> None:
    server.spoil("number", refusal(code, status=403))

    async def act(listener: Listener) -> None:
        assert listener.listening is not None
        with pytest.raises(AccountProblem):
            await listener.listening

    play(server, act)


def test_account_that_cannot_be_asked_goes_on_listening(
    server: WhatsAppServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adapter_module, "_CHECK_SECONDS", 0.02)

    async def act(listener: Listener) -> None:
        faults = [Fault(end="cut"), Fault(500, b""), Fault(200, b"<html>"), refusal(131000)]
        server.spoil("number", *faults)
        count = server.count("number")
        await asyncio.to_thread(server.wait, lambda: server.count("number") > count + 5)
        assert await listener.write(ANA, "hola") == 200

    assert play(server, act).texts == ["hola"]


@pytest.mark.parametrize(
    "fault",
    [Fault(404, b"404: Not Found", times=None), Fault(500, b"", times=None), refusal(100)],
)
def test_message_is_stored_before_the_account_could_be_asked(
    server: WhatsAppServer, fault: Fault
) -> None:
    server.spoil("number", fault)

    async def run() -> None:
        listener = Listener(server)
        listening = asyncio.create_task(listener.adapter.listen(listener.receive))
        try:
            await asyncio.to_thread(server.wait, lambda: server.count("number") > 0)
            assert await listener.write(ANA, "hola") == 200
            assert listener.texts == ["hola"]
        finally:
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)
            await listener.adapter.close()

    asyncio.run(run())


def test_state_says_what_works_while_the_account_cannot_be_asked(
    server: WhatsAppServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adapter_module, "_CHECK_SECONDS", 0.02)
    server.spoil("number", Fault(502, b"<html>", times=None))

    async def act(listener: Listener) -> None:
        state = listener.adapter.state
        assert state.listening
        assert state.heard_at is None
        assert str(state.problem).startswith("Messages are received, but answers may not be sent: ")
        assert "502" in str(state.problem)
        assert await listener.write(ANA, "hola") == 200
        server.mend()
        await asyncio.to_thread(server.wait, lambda: listener.adapter.state.problem is None)
        assert listener.adapter.state.listening
        server.spoil("number", Fault(502, b"<html>", times=None))
        await asyncio.to_thread(server.wait, lambda: listener.adapter.state.problem is not None)
        assert listener.adapter.state.listening

    listener = play(server, act)
    assert not listener.adapter.state.listening
    assert listener.adapter.state.problem is None


# -- sending


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        *((refusal(code), Refused) for code in (131026, 131047, 131051, 100, 131008, 131009)),
        (refusal(131999), Refused),
        *((refusal(code), AccountProblem) for code in (0, 10, 190, 200, 299, 131031, 131042)),
        *((refusal(code), RateLimited) for code in (131056, 130429)),
        (Fault(429, b""), RateLimited),
        (refusal(131000), OutcomeUnknown),
        (refusal(2, status=503), OutcomeUnknown),
        (refusal(131000, status=500), OutcomeUnknown),
        (Fault(500, b"<html>"), OutcomeUnknown),
        (Fault(200, b"<html>", "text/html"), OutcomeUnknown),
        (Fault(200, b""), OutcomeUnknown),
        (Fault(takes=True, end="half"), OutcomeUnknown),
        (Fault(takes=True, end="cut"), OutcomeUnknown),
        (Fault(413, b""), TooLarge),
        (refusal(131053), TooLarge),
        (refusal(131057, status=503), PlatformUnavailable),
        (Fault(302, b""), PlatformUnavailable),
    ],
)
def test_outcome_of_a_send(server: WhatsAppServer, fault: Fault, kind: type[PlatformError]) -> None:
    server.spoil("messages", fault)
    with pytest.raises(PlatformError) as caught:
        call(server, lambda adapter: adapter.send(outgoing()))
    assert type(caught.value) is kind
    assert caught.value.hint
    assert "secret text" not in str(caught.value)
    assert server.count("messages") == 1


def test_end_of_the_24_hours_is_said_plainly(server: WhatsAppServer) -> None:
    server.closed.add(ANA)
    with pytest.raises(Refused, match="24 hours") as caught:
        call(server, lambda adapter: adapter.send(outgoing()))
    assert "write first" in str(caught.value.hint)


def test_pauses_grow_while_whatsapp_limits_and_begin_anew(server: WhatsAppServer) -> None:
    pauses: list[float] = []

    async def act(adapter: WhatsAppAdapter) -> None:
        server.spoil("messages", *[refusal(131056)] * 4)
        for _ in range(4):
            with pytest.raises(RateLimited) as caught:
                await adapter.send(outgoing())
            pauses.append(caught.value.retry_after)
        await adapter.send(outgoing())
        server.spoil("messages", refusal(130429))
        with pytest.raises(RateLimited) as caught:
            await adapter.send(outgoing())
        pauses.append(caught.value.retry_after)

    call(server, act)
    assert pauses == [4, 16, 64, 64, 4]


def test_message_goes_to_a_number_an_id_or_a_group(server: WhatsAppServer) -> None:
    async def act(adapter: WhatsAppAdapter) -> None:
        for chat in (ANA, ANA_ID, "Y2FwaV9ncm91cDoxNzA1"):
            await adapter.send(outgoing(chat_id=chat))

    call(server, act)
    bodies = [json.loads(request.body) for request in server.requests]
    assert [(body.get("to"), body.get("recipient")) for body in bodies] == [
        (ANA, None),
        (None, ANA_ID),
        ("Y2FwaV9ncm91cDoxNzA1", None),
    ]
    assert [body["recipient_type"] for body in bodies] == ["individual", "individual", "group"]


def test_send_carries_the_delivery_and_the_reply(server: WhatsAppServer) -> None:
    question = server.new_id()
    sent_id = call(server, lambda adapter: adapter.send(outgoing(reply_to=question)))
    (sent,) = server.sent
    assert (sent.delivery, sent.reply_to, sent.message_id) == ("d1", question, sent_id)


def test_key_that_is_too_long_for_whatsapp_is_left_out(server: WhatsAppServer) -> None:
    call(server, lambda adapter: adapter.send(outgoing(delivery="d" * 600)))
    assert [sent.delivery for sent in server.sent] == [None]


def test_refused_reply_is_left_out(server: WhatsAppServer) -> None:
    call(server, lambda adapter: adapter.send(outgoing(reply_to="wamid.gone")))
    assert [(sent.text, sent.reply_to) for sent in server.sent] == [("hola", None)]


def test_text_has_the_marks_of_whatsapp(server: WhatsAppServer) -> None:
    (part,) = format_text("**bold** _it_ ~~no~~ `x` [page](https://a.example)\n\n# Title")
    call(server, lambda adapter: adapter.send(outgoing(part.text, spans=part.spans)))
    assert server.texts == ["*bold* _it_ ~no~ `x` page (https://a.example)\n\n*Title*"]


def test_lone_surrogate_is_sent(server: WhatsAppServer) -> None:
    call(server, lambda adapter: adapter.send(outgoing("\ud83d lone")))
    assert server.texts == ["? lone"]


@pytest.mark.parametrize(
    ("media_type", "size", "caption", "kind"),
    [
        ("image/png", 10, "see", "image"),
        ("image/png", 5_000_001, "", "document"),
        ("image/webp", 10, "", "document"),
        ("audio/ogg", 10, "", "audio"),
        ("audio/ogg", 10, "listen", "document"),
        ("video/mp4", 10, "look", "video"),
        ("video/mp4", 16_000_001, "", "document"),
        ("application/pdf", 10, "the plan", "document"),
    ],
)
def test_file_is_uploaded_and_sent(
    server: WhatsAppServer, media_type: str, size: int, caption: str, kind: str
) -> None:
    content = b"x" * size
    file = outgoing(caption, media=Media(name="a.bin", type=media_type), content=content)
    call(server, lambda adapter: adapter.send(file))
    (sent,) = server.sent
    assert (sent.kind, sent.text, sent.file) == (kind, caption, ("a.bin", media_type, content))


def test_file_beyond_every_limit_is_too_large(server: WhatsAppServer) -> None:
    content = bytes(100_000_001)
    file = outgoing("", media=Media(name="a", type="video/mp4"), content=content)
    with pytest.raises(TooLarge):
        call(server, lambda adapter: adapter.send(file))
    caption = outgoing("x" * 1025, media=Media(name="a", type="image/png"), content=b"x")
    with pytest.raises(TooLarge):
        call(server, lambda adapter: adapter.send(caption))
    assert server.requests == []


@pytest.mark.parametrize(
    ("operation", "fault", "kind", "is_sent"),
    [
        ("media", Fault(takes=True, end="cut"), PlatformUnavailable, False),
        ("media", Fault(500, b""), PlatformUnavailable, False),
        ("media", Fault(200, b"{}"), PlatformUnavailable, False),
        ("media", refusal(100), Refused, False),
        ("media", refusal(190, status=401), AccountProblem, False),
        ("messages", Fault(takes=True, end="cut"), OutcomeUnknown, True),
    ],
)
def test_outcome_of_a_file(
    server: WhatsAppServer, operation: str, fault: Fault, kind: type[PlatformError], is_sent: bool
) -> None:
    server.spoil(operation, fault)
    file = outgoing("", media=Media(name="a", type="image/png"), content=b"x")
    with pytest.raises(PlatformError) as caught:
        call(server, lambda adapter: adapter.send(file))
    assert type(caught.value) is kind
    assert bool(server.sent) is is_sent


# -- late outcomes


def test_late_outcomes_settle_deliveries(server: WhatsAppServer) -> None:
    sent = Sent(ANA, "hola", "wamid.1", delivery="d1")

    async def act(listener: Listener) -> None:
        errors = [{"code": 131047, "title": "Re-engagement message"}]
        for status in ("sent", "delivered", "read"):
            await listener.post(server.value(statuses=[server.status(sent, status)]))
        failed = server.status(sent, "failed", errors=errors)
        await listener.post(server.value(statuses=[failed]))
        foreign = server.status(Sent(ANA, "x", "wamid.2"), "failed")
        await listener.post(server.value(statuses=[foreign]))

    listener = play(server, act)
    settled = [update for update in listener.updates if isinstance(update, Settled)]
    assert [(update.delivery, update.is_sent) for update in settled] == [
        ("d1", True),
        ("d1", True),
        ("d1", True),
        ("d1", False),
    ]
    assert "24 hours" in str(settled[-1].problem)
    assert settled[-1].message_id == "wamid.1"


def test_outcome_that_comes_too_early_is_tried_again(server: WhatsAppServer) -> None:
    sent = Sent(ANA, "hola", "wamid.1", delivery="d1")
    early = StaleWrite("The delivery is still being sent.", hint="Report it again.")

    async def act(listener: Listener) -> None:
        value = server.value(statuses=[server.status(sent, "sent")])
        listener.failures = [early, early]
        assert await listener.post(value) == 200
        listener.failures = [early] * 4
        assert await listener.post(value) == 503

    assert len(play(server, act).updates) == 1


# -- files that people sent


async def read_all(adapter: WhatsAppAdapter, source: str) -> bytes:
    return b"".join([piece async for piece in adapter.fetch(Media(source=source))])


def test_file_is_fetched_by_its_id(server: WhatsAppServer) -> None:
    file_id = server.add_file(b"\xff\xd8\xff")

    async def act(listener: Listener) -> None:
        image = {"id": file_id, "mime_type": "image/jpeg; codecs=x", "caption": "see"}
        await listener.write(ANA, "ignored", type="image", image=image)
        voice = {"id": "v1", "mime_type": "audio/ogg"}
        await listener.write(ANA, "ignored", type="audio", audio=voice)

    listener = play(server, act)
    assert listener.texts == ["see", None]
    assert listener.messages[0].media == (Media(type="image/jpeg", source=file_id),)
    assert call(server, lambda adapter: read_all(adapter, file_id)) == b"\xff\xd8\xff"


@pytest.mark.parametrize(
    ("operation", "fault", "kind"),
    [
        ("media_address", refusal(100), Refused),
        ("media_address", Fault(200, b"{}"), Refused),
        ("media_address", Fault(500, b""), PlatformUnavailable),
        ("media_address", Fault(200, b'{"url":"https://evil.example/x"}'), Refused),
        ("media_address", Fault(200, b'{"url":"http://lookaside.fbsbx.com/x"}'), Refused),
        ("media_address", Fault(200, b'{"url":"https://evilfbsbx.com/x"}'), Refused),
        ("files", Fault(404, b""), Refused),
        ("files", Fault(302, b""), Refused),
        ("files", Fault(401, b""), AccountProblem),
        ("files", Fault(500, b""), PlatformUnavailable),
        ("files", Fault(end="half"), PlatformUnavailable),
    ],
)
def test_file_that_cannot_be_fetched(
    server: WhatsAppServer, operation: str, fault: Fault, kind: type[PlatformError]
) -> None:
    file_id = server.add_file(b"x" * 1000)
    server.spoil(operation, fault)
    with pytest.raises(kind):
        call(server, lambda adapter: read_all(adapter, file_id))


def test_expired_address_of_a_file(server: WhatsAppServer) -> None:
    file_id = server.add_file(b"x")
    server.expired.add(file_id)
    with pytest.raises(Refused):
        call(server, lambda adapter: read_all(adapter, file_id))


# -- show and the rest


def show(server: WhatsAppServer, *updates: StreamUpdate) -> None:
    async def act(adapter: WhatsAppAdapter) -> None:
        for update in updates:
            await adapter.show(DM, update)
            await asyncio.gather(*adapter._typing._by_turn.values())

    call(server, act)


def test_message_is_marked_as_read_with_typing(server: WhatsAppServer) -> None:
    message_id = server.new_id()
    show(
        server,
        StreamUpdate(kind="began", turn="1", message_id=message_id),
        StreamUpdate(kind="typing", turn="1", message_id=message_id),
        StreamUpdate(kind="ended", turn="1", message_id=message_id),
        StreamUpdate(kind="typing", turn="2"),
    )
    assert server.count("messages") == 2
    assert server.read == [message_id] * 2
    assert server.typing == [message_id] * 2


def test_typing_ends_with_its_turn(server: WhatsAppServer) -> None:
    server.spoil("messages", Fault(end="never"))

    async def act(adapter: WhatsAppAdapter) -> None:
        await adapter.show(DM, StreamUpdate(kind="began", turn="1", message_id="w"))
        (task,) = adapter._typing._by_turn.values()
        await asyncio.to_thread(server.wait, lambda: server.count("messages") == 1)
        await adapter.show(DM, StreamUpdate(kind="ended", turn="1", message_id="w"))
        await asyncio.gather(task, return_exceptions=True)
        assert task.cancelled()

    call(server, act)


@pytest.mark.parametrize("fault", [Fault(end="cut"), Fault(502, b"<html>"), refusal(130429)])
def test_show_never_fails(server: WhatsAppServer, fault: Fault) -> None:
    server.spoil("messages", fault)
    show(server, StreamUpdate(kind="began", turn="1", message_id="w"))


def test_nothing_is_shown_while_whatsapp_limits(server: WhatsAppServer) -> None:
    server.spoil("messages", refusal(130429))
    update = StreamUpdate(kind="typing", turn="1", message_id=server.new_id())
    show(server, update, update)
    assert server.count("messages") == 1


def test_number_says_which_it_is(server: WhatsAppServer) -> None:
    assert call(server, lambda adapter: adapter.identify()) == "+1 555-078-3881 (Acme)"


def test_secrets_are_in_no_log_error_or_repr(
    server: WhatsAppServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    secrets = (TOKEN, APP_SECRET, VERIFY_TOKEN, "secret-hash", "a secret text")
    file_id = server.add_file(b"content")
    errors: list[BaseException] = []
    actions: dict[str, Callable[[WhatsAppAdapter], Awaitable[Any]]] = {
        "messages": lambda adapter: adapter.send(outgoing()),
        "number": lambda adapter: adapter.identify(),
        "media_address": lambda adapter: read_all(adapter, file_id),
        "files": lambda adapter: read_all(adapter, file_id),
    }
    faults = [
        Fault(end="cut"), Fault(takes=True, end="half"), Fault(502, b"<html>"), refusal(190),
        refusal(131026), Fault(302, b"", headers={"Location": f"/x?access_token={TOKEN}"}),
    ]  # fmt: skip
    for operation, act in actions.items():
        for fault in faults:
            server.mend()
            server.spoil(operation, fault)
            try:
                call(server, act)
            except PlatformError as problem:
                errors.append(problem)
    assert len(errors) > 15
    for error in errors:
        chain: BaseException | None = error
        while chain is not None:
            for text in (str(chain), repr(chain), repr(chain.__dict__), repr(chain.args)):
                assert not any(secret in text for secret in secrets)
            assert chain.__cause__ is None
            chain = chain.__context__
    assert "[hidden]" in caplog.text
    adapter = connected(server)
    for secret in secrets:
        assert secret not in caplog.text
        assert secret not in repr(adapter)
        assert secret not in repr(adapter._api)


# -- buttons

BUTTONS = (Button("Approve once", "once:1"), Button("Deny", "no:1"))


def test_refused_buttons_are_sent_as_text(server: WhatsAppServer) -> None:
    server.spoil("messages", refusal(131009), refusal(131009))
    message = outgoing("May I?", buttons=BUTTONS, reply_to=server.new_id())
    call(server, lambda adapter: adapter.send(message))
    (sent,) = server.sent
    assert (sent.kind, sent.text, sent.buttons) == ("text", "May I?", ())


def test_group_gets_the_text_alone(server: WhatsAppServer) -> None:
    server.groups.add("group-1")
    call(server, lambda adapter: adapter.send(outgoing(chat_id="group-1", buttons=BUTTONS)))
    assert [(sent.kind, sent.buttons) for sent in server.sent] == [("text", ())]
    assert server.count("messages") == 1

"""Every fault of a server against every adapter that sends over HTTP, as one table.

Which error a fault becomes decides what the gateway does: what may have arrived is never sent again
by itself, and what certainly did not arrive is. E-mail and Matrix have tables of their own, against
real servers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from tertulia.errors import (
    Error,
    OutcomeUnknown,
    PlatformError,
    PlatformUnavailable,
    RateLimited,
    Refused,
)
from tertulia.platforms.base import Adapter, Outgoing
from tertulia.platforms.discord.adapter import DiscordAdapter
from tertulia.platforms.signal.adapter import SignalAdapter
from tertulia.platforms.slack.adapter import SlackAdapter
from tertulia.platforms.telegram.adapter import TelegramAdapter
from tertulia.platforms.whatsapp.adapter import WhatsAppAdapter
from tests.servers import discord, signal, slack, telegram, whatsapp
from tests.servers.scripted_http import Fault, ScriptedServer

pytestmark = pytest.mark.check

# A text that a server or a library might say, and that no person may read.
SECRET = "text-of-a-server-nobody-may-read"
HTML = f"<html><body>{SECRET}</body></html>".encode()
WRONG_TYPES = b'{"ok":[],"result":[5],"messages":{},"id":7,"ts":[],"error":[],"jsonrpc":2}'


class Case(NamedTuple):
    """A fault, and the errors that it may become; None: the message was sent."""

    fault: Fault
    errors: tuple[type[PlatformError] | None, ...]


# What a server says without having done it, or after it: nobody can tell.
_UNCLEAR = (OutcomeUnknown,)
# A clear refusal: it may be sent again, or never.
_CLEAR = (Refused, PlatformUnavailable)
# Not accepted, and sent again later; no daemon of Signal asks for a pause in this way.
_LATER = (RateLimited, PlatformUnavailable)
TABLE = {
    "429 without a pause": Case(Fault(429, b""), _LATER),
    "429 with a page": Case(Fault(429, HTML, "text/html"), _LATER),
    "429 with nonsense as the pause": Case(
        Fault(429, b"{}", headers={"Retry-After": "soon"}), _LATER
    ),
    "500 without a body": Case(Fault(500, b""), _UNCLEAR),
    "502 with a page": Case(Fault(502, HTML, "text/html"), _UNCLEAR),
    "503 with JSON": Case(Fault(503, b'{"code":0,"message":"later"}'), _UNCLEAR),
    "404 with a page": Case(Fault(404, HTML, "text/html"), (*_CLEAR, *_UNCLEAR)),
    "302 to elsewhere": Case(
        Fault(302, b"", headers={"Location": "http://127.0.0.1:9/"}), (*_CLEAR, *_UNCLEAR)
    ),
    "200 with a page": Case(Fault(200, HTML, "text/html", takes=True), _UNCLEAR),
    "200 without a body": Case(Fault(200, b"", takes=True), _UNCLEAR),
    "200 with half of the JSON": Case(Fault(200, b'{"ok":tr', takes=True), _UNCLEAR),
    "200 with wrong types": Case(Fault(200, WRONG_TYPES, takes=True), _UNCLEAR),
    "200 with a list": Case(Fault(200, b"[1,2]", takes=True), _UNCLEAR),
    "200 with null": Case(Fault(200, b"null", takes=True), _UNCLEAR),
    "200 with endless nesting": Case(Fault(200, b"[" * 200_000, takes=True), _UNCLEAR),
    "cut before the answer": Case(Fault(end="cut"), _UNCLEAR),
    "cut after it was sent": Case(Fault(takes=True, end="cut"), _UNCLEAR),
    "half of the answer": Case(Fault(takes=True, end="half"), _UNCLEAR),
    "a late answer": Case(Fault(takes=True, delay=0.2), (None,)),
    "a wrong content type": Case(Fault(400, HTML, "image/png"), (*_CLEAR, *_UNCLEAR)),
}

# A refusal that names its pause, in the form of each platform that names one in JSON.
PAUSES = {
    "telegram": '{"ok":false,"error_code":429,"parameters":{"retry_after":%s}}',
    "discord": '{"retry_after":%s}',
    "signal": '{"error":{"code":-5,"data":{"response":{"results":[{"retryAfterSeconds":%s}]}}}}',
}


class FakePlatform(NamedTuple):
    """A server with the operation that sends, and how to make an adapter for it."""

    server: ScriptedServer
    operation: str
    chat: str
    adapter: Callable[[], Adapter]

    def texts(self) -> list[str]:
        server: Any = self.server
        return list(server.texts if hasattr(server, "texts") else [m.text for m in server.sent])


def _telegram() -> FakePlatform:
    server = telegram.TelegramServer()
    server.chats[42] = {"id": 42, "type": "private", "first_name": "Ana"}
    return FakePlatform(
        server, "sendMessage", "42", lambda: TelegramAdapter(telegram.TOKEN, base_url=server.url)
    )


def _discord() -> FakePlatform:
    server = discord.DiscordServer()
    return FakePlatform(
        server,
        "create",
        discord.DM,
        lambda: DiscordAdapter(discord.TOKEN, base_url=server.base_url),
    )


def _slack() -> FakePlatform:
    server = slack.SlackServer()
    server.returns_own = False
    server.add_channel("D1")
    return FakePlatform(
        server, "chat.postMessage", "D1",
        lambda: SlackAdapter(
            slack.BOT_TOKEN, app_token=slack.APP_TOKEN, base_url=f"{server.url}/api"
        ),
    )  # fmt: skip


def _whatsapp() -> FakePlatform:
    server = whatsapp.WhatsAppServer()
    return FakePlatform(
        server, "messages", whatsapp.ANA,
        lambda: WhatsAppAdapter(
            whatsapp.TOKEN, app_secret=whatsapp.APP_SECRET, verify_token=whatsapp.VERIFY_TOKEN,
            phone_number_id=whatsapp.NUMBER_ID, base_url=f"{server.url}/v23.0",
        ),
    )  # fmt: skip


def _signal() -> FakePlatform:
    server = signal.SignalServer()
    return FakePlatform(
        server, "send", signal.ANA_UUID, lambda: SignalAdapter(signal.NUMBER, base_url=server.url)
    )


FAKES = {
    "telegram": _telegram,
    "discord": _discord,
    "slack": _slack,
    "whatsapp": _whatsapp,
    "signal": _signal,
}


@pytest.fixture(scope="module", params=list(FAKES))
def platform(request: pytest.FixtureRequest) -> Iterator[FakePlatform]:
    platform = FAKES[request.param]()
    with platform.server:
        yield platform


@pytest.mark.parametrize("name", list(TABLE))
def test_fault_has_its_meaning_and_is_over_with_it(
    platform: FakePlatform, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    case = TABLE[name]

    async def send(adapter: Adapter, key: str) -> Error | None:
        message = Outgoing(delivery=key, chat_id=platform.chat, text=key)
        try:
            await adapter.send(message)
        except PlatformError as problem:
            return problem
        return None

    async def run() -> tuple[Error | None, Error | None]:
        # The second one has not heard of a pause that the first one keeps.
        first, second = platform.adapter(), platform.adapter()
        try:
            async with asyncio.timeout(60):
                platform.server.spoil(platform.operation, case.fault)
                problem = await send(first, f"first {name}")
                platform.server.mend()
                return problem, await send(second, f"then {name}")
        finally:
            await first.close()
            await second.close()

    before = platform.server.count(platform.operation)
    problem, later = asyncio.run(run())
    assert (None if problem is None else type(problem)) in case.errors
    assert later is None
    # The adapter itself has sent nothing again, in no form.
    assert platform.server.count(platform.operation) == before + 2
    assert platform.texts().count(f"first {name}") == int(case.fault.takes)
    for text in (str(problem), repr(problem), caplog.text):
        assert SECRET not in text


@pytest.mark.parametrize("seconds", ["1e999", "NaN", "-1e999", "9" * 400, "true", "[]"])
@pytest.mark.parametrize("name", list(PAUSES))
def test_pause_that_is_no_number_of_seconds_has_an_end(name: str, seconds: str) -> None:
    platform = FAKES[name]()

    async def run() -> float:
        adapter = platform.adapter()
        try:
            with pytest.raises(RateLimited) as caught:
                await adapter.send(Outgoing(delivery="d", chat_id=platform.chat, text="hola"))
            return caught.value.retry_after
        finally:
            await adapter.close()

    with platform.server:
        status = 200 if name == "signal" else 429
        body = (PAUSES[name] % seconds).encode()
        platform.server.spoil(platform.operation, Fault(status, body))
        assert 0 < asyncio.run(run()) <= 86_400

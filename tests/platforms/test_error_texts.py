"""No text of a server and no text of a library reaches a person: every adapter, every operation.

A server answers every request with an error of its platform whose texts nobody may read, because
they may contain what somebody wrote, a secret, or markup. What people read (errors, the state of
the connection, dead letters, the log) is in our words, with codes at most.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from traceback import format_exception
from typing import Any, Literal

import pytest

from tertulia.core.buttons import Button
from tertulia.core.media import Media
from tertulia.core.source import Source
from tertulia.errors import Error
from tertulia.platforms.base import Adapter, MenuEntry, Outgoing, StreamUpdate, Update
from tertulia.platforms.discord.adapter import DiscordAdapter
from tertulia.platforms.email.adapter import EmailAdapter
from tertulia.platforms.matrix import MatrixSettings
from tertulia.platforms.matrix.adapter import MatrixAdapter
from tertulia.platforms.signal.adapter import SignalAdapter
from tertulia.platforms.slack.adapter import SlackAdapter
from tertulia.platforms.telegram.adapter import TelegramAdapter
from tertulia.platforms.whatsapp.adapter import WhatsAppAdapter
from tests.platforms.email.mail_gateway import new_adapter
from tests.servers.mail import ANA, MailServers
from tests.servers.scripted_http import Fault, Request, Response, ScriptedServer

pytestmark = pytest.mark.check

SECRET = "a text <b>that</b> nobody may read"
STATUSES = (200, 400, 401, 403, 404, 409, 413, 429, 500, 502)
# The error of each platform, with a text in every place where it has one.
ERRORS: dict[str, Callable[[int], Any]] = {
    "telegram": lambda status: {"ok": False, "error_code": status, "description": SECRET,
                                "parameters": {"retry_after": SECRET}},
    "discord": lambda status: {"code": 50035, "message": SECRET,
                               "errors": {"content": {"_errors": [{"message": SECRET}]}}},
    "slack": lambda status: {"ok": False, "error": SECRET, "needed": SECRET,
                             "response_metadata": {"messages": [SECRET]}},
    "whatsapp": lambda status: {"error": {"message": SECRET, "type": SECRET, "code": 131026,
                                          "error_data": {"details": SECRET}}},
    "signal": lambda status: {"jsonrpc": "2.0", "id": "1", "error": {
        "code": -1, "message": SECRET,
        "data": {"response": {"results": [{"type": SECRET, "token": SECRET}]}}}},
    "matrix": lambda status: {"errcode": "M_FORBIDDEN", "error": SECRET, "soft_logout": SECRET},
}  # fmt: skip
CHATS = {
    "telegram": "42", "discord": "3000", "slack": "D1", "whatsapp": "34600111222",
    "signal": "+15550142", "matrix": "!room:example.org", "email": ANA,
}  # fmt: skip
FILES = {
    "telegram": "file1", "discord": "3000/1/2", "slack": "F1", "whatsapp": "9000",
    "signal": "+15550142#file1", "matrix": "mxc://example.org/abc",
}  # fmt: skip


class RefusingServer(ScriptedServer):
    """A server of any platform that is asked for anything, and says what the script says."""

    def operation_of(self, request: Request) -> str:
        return "any"

    async def respond(self, request: Request) -> Response:
        return Response(404, b"")


@pytest.fixture
def server() -> Iterator[RefusingServer]:
    with RefusingServer() as running:
        yield running


def new_adapter_of(platform: str, url: str) -> Adapter:
    match platform:
        case "telegram":
            return TelegramAdapter("123456789:AAtoken", base_url=url)
        case "discord":
            return DiscordAdapter("token", base_url=url)
        case "slack":
            return SlackAdapter("xoxb-1", app_token="xapp-1", base_url=url)
        case "whatsapp":
            return WhatsAppAdapter(
                "token", app_secret="s", verify_token="v", phone_number_id="1", base_url=url
            )
        case "signal":
            return SignalAdapter("+15550100", base_url=url)
    return MatrixAdapter(MatrixSettings(base_url=url, user_id="@a:example.org"), "token")


@asynccontextmanager
async def opened(adapter: Adapter) -> AsyncIterator[Adapter]:
    try:
        yield adapter
    finally:
        await adapter.close()


async def read_texts(adapter: Adapter) -> list[str]:
    """Do everything that an adapter can do; return all that people might read about it."""
    chat, texts = CHATS[adapter.name], []
    source = Source(adapter.name, chat, user_id="42")
    message = Outgoing(delivery="d", chat_id=chat, text="hola", reply_to="1")
    picture = Media(type="image/png", name="a.png", source=FILES.get(adapter.name))

    async def fetch() -> None:
        async for _ in adapter.fetch(picture):
            pass

    async def listen() -> None:
        async def receive(update: Update) -> None:
            return

        listening = asyncio.create_task(adapter.listen(receive))
        while not listening.done() and adapter.state.problem is None:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        texts.append(adapter.state.problem or "")
        listening.cancel()
        await listening

    def shown(kind: Literal["draft", "ended"], text: str = "") -> StreamUpdate:
        return StreamUpdate(kind=kind, turn="t", text=text, message_id="1")

    def changed(**fields: Any) -> Outgoing:
        return Outgoing(**{"delivery": "d", "chat_id": chat, "text": "hola", **fields})

    works: list[Callable[[], Any]] = [
        lambda: adapter.send(message),
        lambda: adapter.send(changed(buttons=(Button("Yes", "1"), Button("No", "2")))),
        lambda: adapter.send(changed(media=picture, content=b"\x89PNG")),
        lambda: adapter.send(changed(replaces="1")),
        lambda: adapter.close_buttons(changed(replaces="1")),
        lambda: adapter.show(source, shown("draft", "h")),
        lambda: adapter.show(source, shown("ended")),
        lambda: adapter.fill_menu((MenuEntry("new", "Begin anew"),)),
        adapter.identify,
        fetch,
        listen,
    ]  # fmt: skip
    for work in works:
        try:
            await work()
        except Error as problem:
            texts += [str(problem), repr(problem), *format_exception(problem)]
        except asyncio.CancelledError:
            pass
    return texts


@pytest.mark.parametrize("platform", list(ERRORS))
def test_no_text_of_an_error_is_shown(
    server: RefusingServer, platform: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def run(status: int) -> list[str]:
        async with asyncio.timeout(60), opened(new_adapter_of(platform, server.url)) as adapter:
            return await read_texts(adapter)

    caplog.set_level(logging.DEBUG, "tertulia")
    for status in STATUSES:
        server.mend()
        body = json.dumps(ERRORS[platform](status)).encode()
        server.spoil("any", Fault(status, body, times=None))
        texts = asyncio.run(run(status))
        assert texts
        assert not [text for text in (*texts, caplog.text) if "nobody may read" in text], status


@pytest.mark.parametrize("platform", list(ERRORS))
def test_no_text_of_the_library_is_shown(platform: str, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing listens there: what the library says about it names addresses and error numbers."""

    async def run() -> list[str]:
        url = "http://127.0.0.1:9/nobody-may-read"
        async with asyncio.timeout(60), opened(new_adapter_of(platform, url)) as adapter:
            return await read_texts(adapter)

    caplog.set_level(logging.DEBUG, "tertulia")
    texts = asyncio.run(run())
    for text in (*texts, caplog.text):
        assert "nobody-may-read" not in text
        assert "attempts failed" not in text
        assert "Errno" not in text


@pytest.mark.parametrize("station", ["AUTH", "MAIL", "RCPT", "DATA"])
@pytest.mark.parametrize("code", ["421 4.7.0", "450 4.2.1", "535 5.7.8", "550 5.1.1", "552 5.3.4"])
def test_no_text_of_a_mail_server_is_shown(
    mail_servers: MailServers, station: str, code: str, caplog: pytest.LogCaptureFixture
) -> None:
    adapter: EmailAdapter = new_adapter(mail_servers, mail_servers.add_mailbox())
    mail_servers.smtp.spoil(station, f"{code} {SECRET}")
    caplog.set_level(logging.DEBUG, "tertulia")

    async def run() -> str:
        async with asyncio.timeout(60), opened(adapter):
            try:
                await adapter.send(Outgoing(delivery="d", chat_id=ANA, text="hola"))
            except Error as problem:
                return "".join([str(problem), repr(problem), *format_exception(problem)])
            return ""

    try:
        text = asyncio.run(run())
    finally:
        mail_servers.smtp.mend()
    assert text
    assert "nobody may read" not in text + caplog.text


@pytest.fixture(scope="module")
def mail_servers() -> Iterator[MailServers]:
    with MailServers() as running:
        yield running

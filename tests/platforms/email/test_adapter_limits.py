"""What the adapter of a mailbox does when something is missing, refused, or too much."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from email.policy import SMTP
from typing import Any

import pytest

from tertulia.core.media import Media
from tertulia.errors import (
    AccountProblem,
    OutcomeUnknown,
    PlatformError,
    PlatformUnavailable,
    Refused,
    StoreUnavailable,
    TooLarge,
)
from tertulia.platforms.base import Incoming, Outgoing, Update
from tertulia.platforms.email import adapter as adapter_module
from tertulia.platforms.email import smtp as smtp_module
from tertulia.platforms.email import wire as wire_module
from tertulia.platforms.email.imap import CommandRefused, ImapConnection
from tertulia.platforms.email.wire import MailServerAddress, Wire
from tests.platforms.email.mail_gateway import Listener, listen, new_adapter
from tests.servers.mail import ANA, MailServers, new_mail

pytestmark = pytest.mark.check

HOUR = 3600


def outgoing(**fields: Any) -> Outgoing:
    return Outgoing(**{"delivery": "d", "chat_id": ANA, "text": "hola", **fields})


# -- receiving


def test_mail_without_any_content_is_no_message(mail: MailServers) -> None:
    async def act(listener: Listener, address: str) -> None:
        await asyncio.to_thread(lambda: mail.write(address, "", subject=None))
        await asyncio.to_thread(mail.write, address, "after it")
        await listener.until(lambda: "after it" in listener.texts)

    assert listen(mail, act).texts == ["after it"]


def test_person_who_writes_now_and_then_is_no_program(mail: MailServers) -> None:
    async def act(listener: Listener, address: str) -> None:
        for number in range(23):
            content = new_mail(address, f"m{number}").as_bytes(policy=SMTP)
            moment = time.time() - 2 * HOUR + number * 60
            await asyncio.to_thread(mail.deliver, address, content, moment)
        await listener.until(lambda: len(listener.messages) == 23)

    assert not any(message.is_bot for message in listen(mail, act).messages)


def test_only_the_mail_that_was_not_stored_is_read_again(mail: MailServers) -> None:
    address = mail.add_mailbox()
    listener = Listener(new_adapter(mail, address))
    handed: list[str | None] = []

    async def receive(update: Update) -> None:
        if isinstance(update, Incoming):
            handed.append(update.text)
            if handed.count("m1") == 1 and update.text == "m1":
                raise StoreUnavailable("locked", hint="wait")
        listener.updates.append(update)

    async def run() -> None:
        await listener.start()
        await listener.stop()
        for number in range(3):
            await asyncio.to_thread(mail.write, address, f"m{number}")
        listener.receive = receive  # type: ignore[method-assign]
        await listener.start()
        await listener.wait_texts("m0", "m1", "m2")
        await listener.stop()

    asyncio.run(run())
    assert handed == ["m0", "m1", "m1", "m2"]


def test_quoted_mails_are_stored_up_to_a_limit(mail: MailServers) -> None:
    quote = "On Monday, Agent wrote:\n" + "> what was said before\n" * 8_000

    async def act(listener: Listener, address: str) -> None:
        first = await asyncio.to_thread(mail.write, address, "one")
        await asyncio.to_thread(lambda: mail.write(address, f"two\n\n{quote}", replies_to=first))
        await listener.until(lambda: len(listener.messages) == 2)

    message = listen(mail, act).messages[1]
    (quoted,) = message.media
    assert message.text == "two"
    assert len(quoted.hidden_text or "") == 100_000


def test_file_of_another_numbering_is_gone(mail: MailServers) -> None:
    """Its number may be that of a mail of somebody else now."""

    async def act(listener: Listener, address: str) -> None:
        files = (("a.bin", "a/b", b"content"),)
        await asyncio.to_thread(lambda: mail.write(address, "see", files=files))
        await listener.wait_texts("see")
        (file,) = listener.messages[0].media
        assert b"".join([piece async for piece in listener.adapter.fetch(file)]) == b"content"
        validity, _, rest = str(file.source).partition("/")
        other = Media(source=f"{int(validity) + 1}/{rest}")
        with pytest.raises(Refused):
            assert [piece async for piece in listener.adapter.fetch(other)]

    listen(mail, act)


def test_cursor_knows_the_time_of_the_last_mail(mail: MailServers) -> None:
    """If the server numbers the folder anew, older mails are not handed over again."""
    moment = int(time.time()) + HOUR

    async def act(listener: Listener, address: str) -> None:
        content = new_mail(address, "hola").as_bytes(policy=SMTP)
        await asyncio.to_thread(mail.deliver, address, content, moment)
        await listener.wait_texts("hola")

    assert str(listen(mail, act).adapter.cursor).endswith(f":{moment}")


def test_folder_that_takes_no_marks_is_read_on(
    mail: MailServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused: list[int] = []

    async def refuse(imap: ImapConnection, uid: int) -> None:
        refused.append(uid)
        raise CommandRefused("STORE", "NOPERM")

    monkeypatch.setattr(ImapConnection, "mark_seen", refuse)

    async def act(listener: Listener, address: str) -> None:
        for number in range(3):
            await asyncio.to_thread(mail.write, address, f"m{number}")
        await listener.wait_texts("m0", "m1", "m2")

    listen(mail, act)
    assert len(refused) == 1


def test_folder_that_is_gone_pauses_the_account(mail: MailServers) -> None:
    adapter = new_adapter(mail, mail.add_mailbox(), folder="Nowhere")

    async def receive(update: Update) -> None:
        return

    async def run() -> None:
        async with asyncio.timeout(60):
            await adapter.listen(receive)

    with pytest.raises(AccountProblem, match="SELECT"):
        asyncio.run(run())


# -- threads


def test_thread_is_found_by_the_parent_in_the_folder(mail: MailServers) -> None:
    """Some programs name only the mail they reply to, and this process never saw it."""
    address = mail.add_mailbox()
    first = mail.write(address, "one")
    second = mail.write(address, "two", replies_to=first)
    listener = Listener(new_adapter(mail, address))

    async def run() -> None:
        await listener.start()
        await asyncio.to_thread(
            lambda: mail.write(address, "three", In_Reply_To=str(second["Message-ID"]))
        )
        await listener.wait_texts("three")
        await listener.stop()

    asyncio.run(run())
    (message,) = listener.messages
    assert message.source.thread_id == str(first["Message-ID"])


def test_parent_that_cannot_be_read_does_not_stop_its_reply(mail: MailServers) -> None:
    parent = b"From: a@example.com\r\nFrom: b@example.com\r\nMessage-ID: <p@x.example>\r\n\r\ntwo"

    async def act(listener: Listener, address: str) -> None:
        await asyncio.to_thread(mail.deliver, address, parent)
        await asyncio.to_thread(lambda: mail.write(address, "reply", In_Reply_To="<p@x.example>"))
        await listener.wait_texts("reply")

    (message,) = listen(mail, act).messages
    assert message.source.thread_id == "<p@x.example>"


def test_answer_is_sent_although_its_thread_cannot_be_looked_up(mail: MailServers) -> None:
    adapter = new_adapter(mail, mail.add_mailbox(), imap_url="imap://127.0.0.1:9")
    asyncio.run(adapter.send(outgoing(thread_id="<root@x.example>")))
    (sent,) = mail.wait_sent(1)
    assert sent.message["References"] == "<root@x.example>"


def test_threads_and_senders_that_are_remembered_are_limited(
    mail: MailServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adapter_module, "_MAX_THREADS", 3)

    async def act(listener: Listener, address: str) -> None:
        for number in range(6):
            await asyncio.to_thread(
                lambda: mail.write(address, "hola", sender=f"p{number}@example.com")  # noqa: B023
            )
            await listener.adapter.send(outgoing(delivery=f"d{number}"))
        await listener.until(lambda: len(listener.messages) == 6)
        adapter = listener.adapter
        assert (len(adapter._threads), len(adapter._roots)) == (3, 3)
        assert len(adapter._recent) <= 4

    listen(mail, act)


def test_connections_beside_listening_are_limited(
    mail: MailServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A provider refuses a mailbox that connects too often at once."""
    adapter = new_adapter(mail, mail.add_mailbox())
    connected: list[int] = []
    open_now = 0

    @asynccontextmanager
    async def connect() -> AsyncIterator[Any]:
        nonlocal open_now
        open_now += 1
        connected.append(open_now)
        await asyncio.sleep(0.01)
        open_now -= 1
        if connected:
            raise PlatformError("no more", hint="later")
        yield

    monkeypatch.setattr(adapter, "_connect", connect)

    async def fetch() -> None:
        async for _ in adapter.fetch(Media(source="1/1/1/7bit")):
            pass

    async def run() -> None:
        works = [*(fetch() for _ in range(10)), *(adapter._look_up("<r@x>") for _ in range(10))]
        await asyncio.gather(*works, return_exceptions=True)

    asyncio.run(run())
    assert (len(connected), max(connected)) == (20, 4)


# -- servers that say strange things


def test_mail_beyond_the_limit_of_the_server_is_not_begun(
    mail: MailServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    greet = smtp_module.SmtpConnection._greet

    async def greet_with_a_limit(smtp: smtp_module.SmtpConnection) -> None:
        await greet(smtp)
        smtp._extensions["SIZE"] = "100"

    monkeypatch.setattr(smtp_module.SmtpConnection, "_greet", greet_with_a_limit)
    tries = mail.smtp.tries
    with pytest.raises(TooLarge, match="100 bytes"):
        asyncio.run(new_adapter(mail, mail.add_mailbox()).send(outgoing()))
    assert mail.smtp.tries == tries


@asynccontextmanager
async def scripted_server(*lines: bytes) -> AsyncIterator[int]:
    """Run a server that says a line at the beginning and after each line that it reads."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for line in lines:
            writer.write(line)
            if not await reader.readline():
                break
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        await asyncio.sleep(0.01)


IMAP_LOGIN = (b"* OK hi\r\n", b"* CAPABILITY IMAP4rev1\r\nT1 OK\r\n", b"T2 OK\r\n", b"T3 OK\r\n")


@pytest.mark.parametrize(
    "lines",
    [
        (b"* BYE too busy\r\n",),
        (b"* OK hi\r\n", b"T1 BAD\r\n"),
        (*IMAP_LOGIN, b"* OK [UIDVALIDITY 99999999999999999999]\r\nT4 OK\r\n",
         b"* SEARCH \xb2 7 99999999999999999999\r\nT5 OK\r\n"),
        (*IMAP_LOGIN, b"T4 OK\r\n", b"* SEARCH " + b"9" * 5000 + b"\r\nT5 OK\r\n"),
        (*IMAP_LOGIN, b"T4 OK\r\n", b"* SEARCH 7\r\nT5 OK\r\n", b"* 1 FETCH (UID\r\nT6 OK\r\n"),
        (*IMAP_LOGIN, b"T4 OK\r\n", b"* SEARCH 7\r\nT5 OK\r\n", b"* BYE\r\n"),
        (*IMAP_LOGIN, b"T4 NO [INUSE] later\r\n"),
    ],
)  # fmt: skip
def test_imap_server_that_says_anything_is_no_bug(
    mail: MailServers, lines: Sequence[bytes]
) -> None:
    async def run() -> None:
        async with scripted_server(*lines) as port, asyncio.timeout(60):
            url = f"imap://127.0.0.1:{port}"
            with suppress(PlatformError):
                await new_adapter(mail, mail.add_mailbox(), imap_url=url).identify()

    asyncio.run(run())


@pytest.mark.parametrize(
    ("lines", "error", "text"),
    [
        ((*IMAP_LOGIN[:2], b"T2 NO [UNAVAILABLE] later\r\n"), PlatformUnavailable, "now"),
        ((*IMAP_LOGIN[:2], b"T2 NO [LIMIT] later\r\n"), PlatformUnavailable, "now"),
        ((*IMAP_LOGIN[:2], b"T2 NO no\r\n"), AccountProblem, "password"),
        ((*IMAP_LOGIN, b"T4 NO [INUSE] later\r\n"), PlatformUnavailable, "now (INUSE)"),
        ((*IMAP_LOGIN, b"T4 NO [NONEXISTENT] gone\r\n"), AccountProblem, "SELECT"),
        ((*IMAP_LOGIN, b"* BYE restarting\r\n", b""), PlatformUnavailable, "closed the conn"),
        ((*IMAP_LOGIN[:2], b"* BYE restarting\r\n", b""), PlatformUnavailable, "closed the conn"),
    ],
)
def test_refusals_of_the_imap_server_are_told_apart(
    mail: MailServers, lines: Sequence[bytes], error: type[PlatformError], text: str
) -> None:
    """What is over in a while does not pause the account, and a goodbye is not waited out."""

    async def run() -> None:
        async with scripted_server(*lines) as port, asyncio.timeout(60):
            url = f"imap://127.0.0.1:{port}"
            with pytest.raises(error) as caught:
                await new_adapter(mail, mail.add_mailbox(), imap_url=url).identify()
            assert type(caught.value) is error
            assert text in caught.value.message

    asyncio.run(run())


def test_goodbye_while_waiting_for_mails_ends_the_connection() -> None:
    lines = (b"", b"+ idling\r\n* BYE restarting\r\n", b"")

    async def run() -> None:
        async with scripted_server(*lines) as port, asyncio.timeout(60):
            wire = await Wire.open(MailServerAddress("imap", "127.0.0.1", port, False))
            imap = ImapConnection(wire)
            with pytest.raises(PlatformUnavailable, match="closed the connection"):
                await imap.idle(600)
            imap.close()

    asyncio.run(run())


@pytest.mark.parametrize(
    "lines",
    [
        ("²²² hola\r\n".encode(),),
        (b"999 hola\r\n",),
        (b"220 hola\r\n", "250-hola\r\n250 SIZE ²\r\n".encode(), b"554 no\r\n"),
        (b"220 hola\r\n", b"250-hola\r\n250 SIZE " + b"9" * 5000 + b"\r\n", b"554 no\r\n"),
        (b"220 hola\r\n", b"250 hola\r\n", b"250 ok\r\n", b"250 ok\r\n", b"250 no 354\r\n"),
        (b"220-hola\r\n" * 2000,),
        (b"554 nobody\r\n",),
        (b"220 hola\r\n", b"500 no EHLO\r\n"),
        (b"220 hola\r\n", b"250-hola\r\n250 AUTH XOAUTH2\r\n"),
    ],
)
def test_smtp_server_that_says_anything_is_no_bug(
    mail: MailServers, lines: Sequence[bytes]
) -> None:
    async def run() -> None:
        async with scripted_server(*lines) as port, asyncio.timeout(60):
            url = f"smtp://127.0.0.1:{port}"
            adapter = new_adapter(mail, mail.add_mailbox(), smtp_url=url)
            with pytest.raises(PlatformError) as caught:
                await adapter.send(outgoing())
            # Nothing of the mail was sent, so that it may be sent again.
            assert not isinstance(caught.value, OutcomeUnknown)

    asyncio.run(run())


def test_smtp_server_that_answers_without_end_is_left(mail: MailServers) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while True:
                writer.write(b"220-hola\r\n" * 100)
                await writer.drain()

    async def run() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        url = f"smtp://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with asyncio.timeout(60):
            with pytest.raises(PlatformUnavailable):
                await new_adapter(mail, mail.add_mailbox(), smtp_url=url).send(outgoing())
        server.close()
        await asyncio.sleep(0.01)

    asyncio.run(run())


def test_smtp_server_that_trusts_its_network_needs_no_login(mail: MailServers) -> None:
    async def run() -> None:
        async with scripted_server(b"220 hola\r\n", b"250 hola\r\n") as port, asyncio.timeout(60):
            address = MailServerAddress("smtp", "127.0.0.1", port, False)
            connection = await smtp_module.SmtpConnection.open(address, "user", "password")
            connection.close()

    asyncio.run(run())


def test_letters_that_the_server_does_not_take_are_refused(mail: MailServers) -> None:
    async def run() -> None:
        lines = (b"220 hola\r\n", b"250 hola\r\n", b"250 ok\r\n", b"250 ok\r\n")
        async with scripted_server(*lines) as port, asyncio.timeout(60):
            url = f"smtp://127.0.0.1:{port}"
            adapter = new_adapter(mail, mail.add_mailbox(), smtp_url=url)
            with pytest.raises(Refused, match="plain letters"):
                await adapter.send(outgoing(chat_id="josé@example.com"))

    asyncio.run(run())


@pytest.mark.parametrize("protocol", ["imap", "smtp"])
def test_answer_from_before_the_encryption_does_not_count(
    mail: MailServers, monkeypatch: pytest.MonkeyPatch, protocol: str
) -> None:
    """Who sits in between could add answers to that to STARTTLS, also the mails of a mailbox."""
    monkeypatch.setattr(wire_module, "_is_loopback", lambda host: False)
    monkeypatch.setenv("SSL_CERT_FILE", mail.certificate)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(mail.certificate, mail.certificate.replace("certificate", "key"))
    greeting, abilities, begin = {
        "imap": (b"* OK hi", b"* CAPABILITY IMAP4rev1 STARTTLS\r\nT1 OK", b"T2 OK\r\nT3 OK"),
        "smtp": (b"220 hi", b"250-hi\r\n250 STARTTLS", b"220 go\r\n250 hi"),
    }[protocol]
    secret_lines: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for line in (greeting, abilities, begin):
            writer.write(line + b"\r\n")
            if line is not begin:
                await reader.readline()
        with suppress(OSError):
            await writer.start_tls(tls)
            secret_lines.extend([line async for line in reader])
        writer.close()

    async def run() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        url = f"{protocol}://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        adapter = new_adapter(mail, mail.add_mailbox(), **{f"{protocol}_url": url})
        work = adapter.identify() if protocol == "imap" else adapter.send(outgoing())
        async with asyncio.timeout(60):
            with pytest.raises(PlatformUnavailable, match="before the encryption"):
                await work
        server.close()
        await asyncio.sleep(0.05)

    asyncio.run(run())
    assert secret_lines == []


def test_abilities_of_the_server_are_asked_for_again_after_the_encryption(
    mail: MailServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was said before may come from somebody in between."""
    monkeypatch.setattr(wire_module, "_is_loopback", lambda host: False)
    monkeypatch.setenv("SSL_CERT_FILE", mail.certificate)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(mail.certificate, mail.certificate.replace("certificate", "key"))
    lines: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for line in (b"* OK hi\r\n", b"* CAPABILITY STARTTLS AUTH=PLAIN\r\nT1 OK\r\n"):
            writer.write(line)
            await reader.readline()
        writer.write(b"T2 OK\r\n")
        await writer.start_tls(tls)
        lines.append(await reader.readline())
        writer.write(b"* CAPABILITY IMAP4rev1\r\nT3 OK\r\n")
        lines.append(await reader.readline())
        writer.close()

    async def run() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        url = f"imap://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with asyncio.timeout(60):
            with pytest.raises(PlatformUnavailable):
                await new_adapter(mail, mail.add_mailbox(), imap_url=url).identify()
        server.close()
        await asyncio.sleep(0.05)

    asyncio.run(run())
    assert [line.split()[1] for line in lines] == [b"CAPABILITY", b"LOGIN"]

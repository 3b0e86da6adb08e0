"""The adapter of a mailbox against real servers: every promise, and what happened to others."""

from __future__ import annotations

import asyncio
import base64
import logging
import time
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from email.policy import SMTP
from traceback import format_exception

import pytest

from tertulia.core.media import Media
from tertulia.errors import (
    AccountProblem,
    PlatformError,
    PlatformUnavailable,
    RateLimited,
    Refused,
    StoreUnavailable,
)
from tertulia.platforms.base import Outgoing, Passed, Update
from tertulia.platforms.email import adapter as adapter_module
from tertulia.platforms.email import imap as imap_module
from tertulia.platforms.email import smtp as smtp_module
from tertulia.platforms.email import wire as wire_module
from tertulia.platforms.email.adapter import EmailAdapter
from tertulia.testing.adapter_contract import AdapterContract, AdapterFixture, SendFailure
from tests.platforms.email.mail_gateway import Listener, listen, new_adapter
from tests.servers.mail import ANA, AUTH_SERVER, PASSWORD, LossyLine, MailServers, new_mail
from tests.servers.ports import free_port

pytestmark = pytest.mark.check


class EmailScene(AdapterFixture):
    chat = ANA
    mishaps = ("unavailable", "rate_limited", "refused", "too_large", "unknown")

    def __init__(self, mail: MailServers, line: LossyLine) -> None:
        self.mail = mail
        self.line = line
        self.address = mail.add_mailbox()
        self.adapter = adapter = new_adapter(mail, self.address, imap_url=line.url)
        self._ids: dict[str, str] = {}
        self._rejected = 0
        pause = adapter._pause

        async def count_and_pause(reason: str, attempts: int) -> None:
            self._rejected += 1
            await pause(reason, attempts)

        adapter._pause = count_and_pause  # type: ignore[method-assign]

    async def write(self, text: str, message_id: str) -> bool:
        while not self.adapter.state.listening:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        rejected = self._rejected
        if message_id not in self._ids:
            mail = await asyncio.to_thread(self.mail.write, self.address, text)
            self._ids[message_id] = str(mail["Message-ID"])
        while not await asyncio.to_thread(self._is_seen, self._ids[message_id]):
            if self._rejected > rejected:
                return False
            await asyncio.sleep(0.01)
        return True

    def _is_seen(self, message_id: str) -> bool:
        return self.mail.is_seen(self.address, message_id)

    async def arrived(self, count: int) -> list[str]:
        sent = await asyncio.to_thread(self.mail.wait_sent, count)
        return [message.text for message in sent]

    def spoil(self, mishap: SendFailure) -> None:
        smtp = self.mail.smtp
        if mishap == "unavailable":
            smtp.refuse()
            smtp.tries = 0
            return
        station, answer = {
            "rate_limited": ("RCPT", "451 4.7.1 Greylisted, please come back"),
            "refused": ("RCPT", "550 5.1.1 No such user"),
            "too_large": ("DATA", "552 5.3.4 Message too big"),
            "unknown": ("DATA", "cut"),
        }[mishap]
        smtp.spoil(station, answer)

    def tries(self) -> int:
        return self.mail.smtp.tries

    secrets = (PASSWORD, base64.b64encode(PASSWORD.encode()).decode().rstrip("="))

    def another_adapter(self) -> EmailAdapter:
        return new_adapter(self.mail, self.address, imap_url=self.line.url)

    async def revoke(self) -> None:
        await asyncio.to_thread(self.mail.revoke, self.address)

    async def disconnect(self) -> None:
        self.line.refuse()

    async def reconnect(self) -> None:
        self.line.open()

    async def attach(self, content: bytes) -> None:
        files = (("a.bin", "application/octet-stream", content),)
        await asyncio.to_thread(lambda: self.mail.write(self.address, "see", files=files))

    async def write_as_agent(self, text: str) -> None:
        await asyncio.to_thread(lambda: self.mail.write(self.address, text, sender=self.address))

    async def write_as_program(self, text: str) -> None:
        fields = {"Auto_Submitted": "auto-replied"}
        await asyncio.to_thread(lambda: self.mail.write(self.address, text, **fields))

    async def write_nonsense(self) -> None:
        for content in (b"nonsense", b"From: \xff\r\nContent-Type: multipart/x\r\n\r\n--"):
            await asyncio.to_thread(self.mail.deliver, self.address, content)


class TestEmailAdapter(AdapterContract):
    @pytest.fixture(autouse=True)
    def _servers(self, mail: MailServers) -> None:
        self.mail = mail

    @asynccontextmanager
    async def scene(self) -> AsyncIterator[AdapterFixture]:
        try:
            with LossyLine(self.mail.dovecot.port) as line:
                yield EmailScene(self.mail, line)
        finally:
            if self.mail.smtp._listener is None:
                self.mail.smtp.open()


# -- receiving


def test_old_mails_are_not_handed_over_and_later_ones_are(mail: MailServers) -> None:
    address = mail.add_mailbox()
    mail.write(address, "from long ago")
    listener = Listener(new_adapter(mail, address))

    async def run() -> None:
        await listener.start()
        await listener.stop()
        # What comes while nobody listens waits, and comes in order.
        for number in range(3):
            await asyncio.to_thread(mail.write, address, f"m{number}")
        await listener.start()
        await listener.wait_texts("m0", "m1", "m2")
        await listener.stop()

    asyncio.run(run())
    assert all(update.cursor for update in listener.updates)


def test_first_position_is_stored_before_the_first_mail(mail: MailServers) -> None:
    """Else a gateway that dies before its first mail begins at a later one."""

    async def act(listener: Listener, address: str) -> None:
        (passed,) = listener.updates
        assert isinstance(passed, Passed)

    listen(mail, act)


def test_mail_that_cannot_be_stored_is_read_again(mail: MailServers) -> None:
    async def act(listener: Listener, address: str) -> None:
        listener.failures = [StoreUnavailable("locked", hint="wait") for _ in range(3)]
        for number in range(3):
            await asyncio.to_thread(mail.write, address, f"m{number}")
        await listener.wait_texts("m0", "m1", "m2")

    listen(mail, act)


def test_silent_connection_is_dropped(mail: MailServers, monkeypatch: pytest.MonkeyPatch) -> None:
    """Deaf for hours while the status said connected: IDLE ends, and its end must be answered."""
    monkeypatch.setattr(adapter_module, "_IDLE_SECONDS", 0.2)
    monkeypatch.setattr(imap_module, "REPLY_SECONDS", 5.0)
    entered: list[float] = []
    wait_line = wire_module.Wire.wait_line

    async def note_wait(wire: wire_module.Wire, seconds: float) -> bytes | None:
        entered.append(seconds)
        return await wait_line(wire, seconds)

    monkeypatch.setattr(wire_module.Wire, "wait_line", note_wait)
    with LossyLine(mail.dovecot.port) as line:

        async def act(listener: Listener, address: str) -> None:
            await asyncio.to_thread(mail.write, address, "before")
            await listener.wait_texts("before")
            waits = len(entered)
            await listener.until(lambda: len(entered) > waits)
            line.silence()
            await asyncio.to_thread(mail.write, address, "after")
            await listener.until(lambda: "after" in listener.texts)
            # On a busy machine the line may be dropped before too; the store knows a mail again.
            assert list(dict.fromkeys(listener.texts)) == ["before", "after"]
            assert line.connections > 1

        listen(mail, act, imap_url=line.url)


def test_cut_connection_is_made_anew(mail: MailServers) -> None:
    with LossyLine(mail.dovecot.port) as line:

        async def act(listener: Listener, address: str) -> None:
            for number in range(3):
                line.cut()
                await asyncio.to_thread(mail.write, address, f"m{number}")
            await listener.wait_texts("m0", "m1", "m2")
            assert listener.adapter.state.listening

        listen(mail, act, imap_url=line.url)


def test_server_without_idle_is_asked_from_time_to_time(
    mail: MailServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adapter_module, "_POLL_SECONDS", 0.05)
    read = imap_module.ImapConnection._read_capabilities

    async def without_idle(imap: imap_module.ImapConnection) -> None:
        await read(imap)
        imap.capabilities -= {"IDLE"}

    monkeypatch.setattr(imap_module.ImapConnection, "_read_capabilities", without_idle)

    async def act(listener: Listener, address: str) -> None:
        await asyncio.to_thread(mail.write, address, "hola")
        await listener.wait_texts("hola")

    listen(mail, act)


@pytest.mark.parametrize(
    ("more_validity", "last_uid"),
    [(7, 500), (7, 0), (0, 500)],
    ids=["other numbers", "other numbers from 1", "the same numbering from 1"],
)
def test_new_numbers_of_the_folder_lose_nothing(
    mail: MailServers, more_validity: int, last_uid: int
) -> None:
    """A restored backup has another UIDVALIDITY, and other UIDs."""
    address = mail.add_mailbox()
    listener = Listener(new_adapter(mail, address))

    async def run() -> None:
        await listener.start()
        await asyncio.to_thread(mail.write, address, "before")
        await listener.wait_texts("before")
        await listener.stop()
        validity, _, moment = str(listener.adapter.cursor).split(":")
        # As if the last mail were an hour old: nothing older is handed over again.
        before = f"{int(validity) + more_validity}:{last_uid}:{int(moment) + 3600}"
        listener.adapter.cursor = before
        later = time.time() + 3700
        content = new_mail(address, "after").as_bytes(policy=SMTP)
        await asyncio.to_thread(mail.deliver, address, content, later)
        await listener.start()
        await listener.wait_texts("before", "after")
        await listener.stop()
        assert str(listener.adapter.cursor).split(":")[0] == validity

    asyncio.run(run())


# Larger than everything that is taken of a mail at once.
HUGE_HEADER = (
    b"From: ana@example.com\r\nMessage-ID: <huge@example.com>\r\n"
    + b"X-Padding: %s\r\n" % (b"x" * 900) * 10_000
    + b"\r\nhuge"
)


def test_huge_header_does_not_stop_the_answers_to_it(mail: MailServers) -> None:
    async def act(listener: Listener, address: str) -> None:
        await asyncio.to_thread(mail.deliver, address, HUGE_HEADER)
        await asyncio.to_thread(
            lambda: mail.write(address, "reply", In_Reply_To="<huge@example.com>")
        )
        await asyncio.to_thread(mail.write, address, "after it")
        await listener.until(lambda: "after it" in listener.texts)
        assert "reply" in listener.texts
        # The thread of an answer is looked up as well, and so are the newest mails.
        other = new_adapter(mail, address)
        message = Outgoing(delivery="d", chat_id=ANA, text="a", thread_id="<huge@example.com>")
        await other.send(message)
        await other.identify()

    listen(mail, act)


BAD_MAILS = [
    b"",
    b"\r\n\r\n",
    b"no header at all",
    b"From: ana@example.com\r\nFrom: eve@evil.example\r\n\r\ntwo authors",
    b"From: \xff\xfe\x00@\r\n\r\nno author",
    b"From: <>\r\n\r\nempty",
    b"Subject: " + b"x" * 300_000 + b"\r\n\r\nlong",
    b"From: ana@example.com\r\nContent-Type: multipart/mixed\r\n\r\nno boundary",
    b"From: ana@example.com\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n"
    + b"--b\r\n" * 500,
    b"From: ana@example.com\r\nContent-Type: multipart/report; boundary=b\r\n\r\n--b\r\n\r\nx",
    b"From: ana@example.com\r\nMessage-ID: <>\r\nReferences: <<<>>> <a b>\r\n\r\nids",
    b"Received: x\r\n" * 5000 + b"From: ana@example.com\r\n\r\nhops",
]


def test_bad_mails_do_not_stop_those_after_them(
    mail: MailServers, caplog: pytest.LogCaptureFixture
) -> None:
    secret = b"a text that nobody may read in a log"

    async def act(listener: Listener, address: str) -> None:
        for content in BAD_MAILS:
            await asyncio.to_thread(mail.deliver, address, content + secret)
        await asyncio.to_thread(mail.write, address, "after all of them")
        await listener.until(lambda: "after all of them" in listener.texts)

    caplog.set_level(logging.DEBUG, "tertulia")
    listen(mail, act)
    assert "not understood" in caplog.text
    assert secret.decode() not in caplog.text


@pytest.mark.parametrize(
    ("content_type", "encoding", "body", "text"),
    [
        ("text/plain; charset=nonsense", "8bit", "año".encode(), "año"),
        ("text/plain; charset=utf-8", "8bit", b"a\xf1o", "año"),
        ("text/plain; charset=iso-8859-15", "quoted-printable", b"10 =A4", "10 €"),
        ("text/plain; charset=utf-8", "base64", b"a\xc3\xb1o", "a"),
        ("text/plain; charset=utf-8", "base64", b"aG9sYQ==", "hola"),
        ("text/plain; charset=utf-8", "x-unknown", b"hola", "hola"),
        ("text/html; charset=utf-8", "7bit", b"<p>one<p>two", "one\ntwo"),
        ("text/plain; charset=utf-16", "base64", b"/v8AaABvAGwAYQ==", "hola"),
    ],
)
def test_strange_charsets_and_encodings_are_read(
    mail: MailServers, content_type: str, encoding: str, body: bytes, text: str
) -> None:
    async def act(listener: Listener, address: str) -> None:
        fields = [*new_mail(address).items()]
        keep = [f"{name}: {value}" for name, value in fields if not name.startswith("Content-")]
        head = [*keep, f"Content-Type: {content_type}", f"Content-Transfer-Encoding: {encoding}"]
        content = "\r\n".join([*head, "", ""]).encode("utf-8") + body
        await asyncio.to_thread(mail.deliver, address, content)
        await listener.until(lambda: listener.messages)

    listener = listen(mail, act)
    if text != "a":  # the bytes are no base64: anything readable will do
        assert (listener.texts[0] or "").replace("\n\n", "\n") == text


def test_huge_mail_is_not_loaded_as_a_whole(mail: MailServers) -> None:
    async def act(listener: Listener, address: str) -> None:
        big = bytes(12 * 2**20)
        await asyncio.to_thread(
            lambda: mail.write(address, "x" * 2**20, files=(("big.bin", "a/b", big),))
        )
        tracemalloc.start()
        try:
            await listener.until(lambda: listener.messages)
            (message,) = listener.messages
            assert len(message.text or "") < 300_000
            (file,) = message.media
            assert file.size is not None
            assert abs(file.size - len(big)) < 0.05 * len(big)
            size = 0
            async for piece in listener.adapter.fetch(file):
                size += len(piece)
            assert size == len(big)
            assert tracemalloc.get_traced_memory()[1] < 8 * 2**20
        finally:
            tracemalloc.stop()

    listen(mail, act)


def test_file_of_a_deleted_mail_is_gone(mail: MailServers) -> None:
    async def act(listener: Listener, address: str) -> None:
        await asyncio.to_thread(lambda: mail.write(address, "see", files=(("a", "a/b", b"x"),)))
        await listener.until(lambda: listener.messages)
        (file,) = listener.messages[0].media
        await asyncio.to_thread(mail.delete_all, address)
        for media in (file, Media(source="1/2/3/x"), Media(source="nonsense"), Media()):
            with pytest.raises(Refused):
                async for _ in listener.adapter.fetch(media):
                    pass

    listen(mail, act)


def test_address_that_sends_like_a_program_counts_as_one(mail: MailServers) -> None:
    async def act(listener: Listener, address: str) -> None:
        for number in range(23):
            content = new_mail(address, f"m{number}").as_bytes(policy=SMTP)
            await asyncio.to_thread(mail.deliver, address, content)
        await listener.until(lambda: len(listener.messages) == 23)

    listener = listen(mail, act)
    assert [message.is_bot for message in listener.messages] == [False] * 20 + [True] * 3


# -- the account


def test_wrong_password_is_the_accounts_trouble(mail: MailServers) -> None:
    address = mail.add_mailbox()
    adapter = new_adapter(mail, address, password="wrong")
    message = Outgoing(delivery="d", chat_id=ANA, text="hola")

    async def receive(update: Update) -> None:
        pass

    async def run() -> None:
        for work in (adapter.identify(), adapter.listen(receive), adapter.send(message)):
            with pytest.raises(AccountProblem):
                await work
        with pytest.raises(AccountProblem):
            async for _ in adapter.fetch(Media(source="1/1/1/7bit")):
                pass
        assert not adapter.state.listening

    asyncio.run(run())


def test_folder_that_is_not_there_is_the_accounts_trouble(mail: MailServers) -> None:
    adapter = new_adapter(mail, mail.add_mailbox(), folder="Nowhere")
    with pytest.raises(AccountProblem, match="SELECT"):
        asyncio.run(adapter.identify())


@pytest.mark.parametrize(
    ("station", "answer", "error"),
    [
        ("MAIL", "553 5.7.1 Sender address rejected: not owned by user", AccountProblem),
        ("MAIL", "451 4.3.0 Try later", PlatformUnavailable),
        ("RCPT", "450 4.2.0 Mailbox busy", PlatformUnavailable),
        ("RCPT", "421 4.7.28 Too many mails", RateLimited),
        ("RCPT", "530 5.7.0 Authentication required", AccountProblem),
        ("DATA", "554 5.7.1 Looks like spam", Refused),
        ("DATA", "452 4.3.1 No space", PlatformUnavailable),
        ("AUTH", "454 4.7.0 Temporary failure", PlatformUnavailable),
    ],
)
def test_answers_of_the_server_are_told_apart(
    mail: MailServers, station: str, answer: str, error: type[PlatformError]
) -> None:
    adapter = new_adapter(mail, mail.add_mailbox())
    mail.smtp.spoil(station, answer)
    with pytest.raises(PlatformError) as caught:
        asyncio.run(adapter.send(Outgoing(delivery="d", chat_id=ANA, text="hola")))
    assert type(caught.value) is error
    assert caught.value.hint
    assert mail.sent == []


def test_one_refused_recipient_of_a_group_does_not_stop_the_mail(mail: MailServers) -> None:
    adapter = new_adapter(mail, mail.add_mailbox())
    chat = f"{ANA},nobody@example.com"
    asyncio.run(adapter.send(Outgoing(delivery="d", chat_id=chat, text="hola")))
    assert mail.sent[0].recipients == [ANA]


@pytest.mark.parametrize(
    "chat", [None, "", "nobody", "{own}", f"{ANA},{{own}}", f"{ANA},nobody", "a b@example.com"]
)
def test_mail_goes_only_to_addresses_of_others(mail: MailServers, chat: str | None) -> None:
    address = mail.add_mailbox()
    adapter = new_adapter(mail, address)
    target = None if chat is None else chat.format(own=address)
    with pytest.raises(Refused):
        asyncio.run(adapter.send(Outgoing(delivery="d", chat_id=target, text="hola")))
    assert mail.sent == []


def test_lines_that_smtp_would_read_as_its_own_arrive(mail: MailServers) -> None:
    """A line with a dot alone ends a mail; what follows would be commands."""
    text = "first\n.\nMAIL FROM:<eve@evil.example>\n..two\n.\n\n.three"
    adapter = new_adapter(mail, mail.add_mailbox())
    asyncio.run(adapter.send(Outgoing(delivery="d", chat_id=ANA, text=text)))
    (sent,) = mail.sent
    assert sent.text == text


def test_same_delivery_has_the_same_id(mail: MailServers) -> None:
    address = mail.add_mailbox()
    message = Outgoing(delivery="d1", chat_id=ANA, text="hola")
    ids = {asyncio.run(new_adapter(mail, address).send(message)) for _ in range(2)}
    assert len(ids) == 1
    assert {sent.id for sent in mail.sent} == ids


@pytest.mark.parametrize("scheme", ["direct", "starttls"])
def test_connections_are_encrypted(
    mail: MailServers, monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    """As on any machine but this one: no password goes over a plain connection."""
    monkeypatch.setattr(wire_module, "_is_loopback", lambda host: False)
    address = mail.add_mailbox()
    urls = {"imap_url": mail.imap_url, "smtp_url": mail.smtp_url}
    if scheme == "direct":
        urls = {
            "imap_url": f"imaps://127.0.0.1:{mail.dovecot.tls_port}",
            "smtp_url": f"smtps://127.0.0.1:{mail.smtp.tls_port}",
        }
    with pytest.raises(PlatformUnavailable, match="certificate"):
        asyncio.run(new_adapter(mail, address, **urls).identify())
    monkeypatch.setenv("SSL_CERT_FILE", mail.certificate)
    adapter = new_adapter(mail, address, **urls)
    assert address in asyncio.run(adapter.identify())
    asyncio.run(adapter.send(Outgoing(delivery="d", chat_id=ANA, text="hola")))
    assert len(mail.sent) == 1


def test_no_password_goes_to_a_server_without_encryption(
    mail: MailServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire_module, "_is_loopback", lambda host: False)
    read = imap_module.ImapConnection._read_capabilities

    async def without_tls(imap: imap_module.ImapConnection) -> None:
        await read(imap)
        imap.capabilities -= {"STARTTLS"}

    greet = smtp_module.SmtpConnection._greet

    async def greet_without_tls(smtp: smtp_module.SmtpConnection) -> None:
        await greet(smtp)
        smtp._extensions.pop("STARTTLS", None)

    adapter = new_adapter(mail, mail.add_mailbox())
    with monkeypatch.context() as patch:
        patch.setattr(imap_module.ImapConnection, "_read_capabilities", without_tls)
        with pytest.raises(AccountProblem, match="IMAP server offers no encryption"):
            asyncio.run(adapter.identify())
    monkeypatch.setattr(smtp_module.SmtpConnection, "_greet", greet_without_tls)
    with pytest.raises(AccountProblem, match="SMTP server offers no encryption"):
        asyncio.run(adapter.send(Outgoing(delivery="d", chat_id=ANA, text="hola")))


@pytest.mark.parametrize("host", ["a" * 64 + ".example", "..", "x..y"])
def test_name_that_cannot_be_looked_up_is_unreachable(mail: MailServers, host: str) -> None:
    adapter = new_adapter(mail, mail.add_mailbox(), imap_url=f"imap://{host}")
    with pytest.raises(PlatformUnavailable, match="IMAP server cannot be reached"):
        asyncio.run(adapter.identify())


@pytest.mark.parametrize("protocol", ["imap", "smtp"])
@pytest.mark.parametrize(
    ("mistake", "reason", "hint"),
    [
        ("host", "no such host", "Check {}_url"),
        ("port", "nothing listens on this port", "Check {}_url"),
        ("tls", "there is no TLS on this port", "{}:// is for STARTTLS"),
        ("other server", "as an {} server does", "the port of {}_url"),
    ],
)
def test_mistake_in_an_address_is_named(
    mail: MailServers, protocol: str, mistake: str, reason: str, hint: str
) -> None:
    """What a person sees who has just typed the address of a server."""
    ports = {"imap": mail.dovecot.port, "smtp": mail.smtp.port}
    other = ports["smtp" if protocol == "imap" else "imap"]
    url = {
        "host": f"{protocol}://mail.host-that-is-not.invalid",
        "port": f"{protocol}://127.0.0.1:{free_port()}",
        "tls": f"{protocol}s://127.0.0.1:{ports[protocol]}",
        "other server": f"{protocol}://127.0.0.1:{other}",
    }[mistake]
    adapter = new_adapter(mail, mail.add_mailbox(), **{f"{protocol}_url": url})
    with pytest.raises(PlatformUnavailable) as caught:
        asyncio.run(adapter.identify())
    assert reason.format(protocol.upper()) in caught.value.message
    assert hint.format(protocol) in str(caught.value.hint)


def test_password_is_in_no_error_log_or_cursor(
    mail: MailServers, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "tertulia")
    caplog.set_level(logging.DEBUG, "asyncio")
    adapter = new_adapter(mail, mail.add_mailbox())
    texts = [repr(adapter), str(vars(adapter).get("state"))]

    async def run() -> None:
        message = Outgoing(delivery="d", chat_id=ANA, text="hola")
        for station, answer in (("AUTH", "535 5.7.8 No"), ("DATA", "cut"), ("RCPT", "550 No")):
            mail.smtp.spoil(station, answer)
            try:
                await adapter.send(message)
            except PlatformError as problem:
                texts.extend((str(problem), repr(problem), "".join(format_exception(problem))))
            mail.smtp.mend()
        await adapter.identify()

    asyncio.run(run())

    async def act(listener: Listener, address: str) -> None:
        await asyncio.to_thread(mail.write, address, "hola")
        await listener.wait_texts("hola")

    listener = listen(mail, act)
    texts += [caplog.text, *(str(update) for update in listener.updates)]
    secrets = (PASSWORD, base64.b64encode(PASSWORD.encode()).decode().rstrip("="))
    assert not [text for text in texts for secret in secrets if secret in text]


def test_check_names_the_server_of_the_newest_mails(mail: MailServers) -> None:
    address = mail.add_mailbox()
    mail.write(address, "hola")
    assert AUTH_SERVER not in asyncio.run(new_adapter(mail, address).identify())
    line = asyncio.run(new_adapter(mail, address, auth_server="mx.wrong.example").identify())
    assert line.endswith(f"but {AUTH_SERVER}")

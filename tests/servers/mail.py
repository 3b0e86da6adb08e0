"""Mail servers on loopback: a real Dovecot for IMAP, and aiosmtpd for SMTP, which can be spoiled.

    with MailServers() as mail:
        address = mail.add_mailbox()
        mail.write(address, "hello")
        mail.wait_sent(1)

Mails come into the mailbox with the field that a receiving server adds about their sender.
"""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import imaplib
import ipaddress
import itertools
import os
import pwd
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.message import EmailMessage
from email.parser import BytesParser
from email.policy import SMTP, default
from email.utils import formatdate
from pathlib import Path
from typing import Any, NamedTuple, Self

import pytest
from aiosmtpd.smtp import SMTP as SmtpProtocol
from aiosmtpd.smtp import AuthResult, Envelope, Session
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.servers.no_delay import send_at_once
from tests.servers.ports import free_port

ANA = "ana@example.com"
PASSWORD = "a-password-that-nobody-may-ever-see"
AUTH_SERVER = "mx.example.org"
MISSING = (
    "The tests of e-mail need Dovecot, an IMAP server, and there is none. Install it:"
    " apt-get install dovecot-imapd (Debian, Ubuntu), dnf install dovecot (Fedora),"
    " brew install dovecot (macOS); or name its program in TEST_DOVECOT."
)
_START_SECONDS = 60.0
_PORT_TRIES = 3
_numbers = itertools.count(1)


def program() -> str | None:
    """Return the path of Dovecot, or None."""
    named = os.environ.get("TEST_DOVECOT")
    if named == "none":
        pytest.skip("TEST_DOVECOT is none: there is no IMAP server")
    if named:
        return named
    return shutil.which("dovecot", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")


def write_certificate(folder: Path) -> None:
    """Write a certificate for 127.0.0.1, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "mail of the tests")])
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=7))
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    encoding = serialization.Encoding.PEM
    (folder / "certificate.pem").write_bytes(certificate.public_bytes(encoding))
    private = key.private_bytes(
        encoding, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / "key.pem").write_bytes(private)


class SentMail(NamedTuple):
    """A mail that the SMTP server accepted."""

    sender: str
    recipients: list[str]
    message: EmailMessage

    @property
    def text(self) -> str:
        part = self.message.get_body(("plain",))
        assert part is not None
        return str(part.get_content()).replace("\r\n", "\n").rstrip("\n")

    @property
    def id(self) -> str:
        return str(self.message["Message-ID"])


class Dovecot:
    """A Dovecot of its own, in a folder, with mailboxes that tests add."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = 0
        self.tls_port = 0
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        binary = program()
        if binary is None:
            raise RuntimeError(MISSING)
        for attempt in range(1, _PORT_TRIES + 1):
            self.port, self.tls_port = free_port(), free_port()
            try:
                self._run(binary)
            except RuntimeError:
                # Somebody may have taken a port meanwhile.
                if attempt == _PORT_TRIES:
                    raise
            else:
                return

    def _run(self, binary: str) -> None:
        (self.folder / "denied").touch()
        os.chmod(self.folder, 0o755)
        (self.folder / "dovecot.conf").write_text(self._configuration())
        self._process = subprocess.Popen(
            [binary, "-F", "-c", str(self.folder / "dovecot.conf")],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        )  # fmt: skip
        deadline = time.monotonic() + _START_SECONDS
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"Dovecot did not start: {self._complaint()}")
            time.sleep(0.02)

    def stop(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait(30)
            assert self._process.stderr is not None
            self._process.stderr.close()
            self._process = None

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), 5) as probe:
                return probe.recv(4) == b"* OK"
        except OSError:
            return False

    def _complaint(self) -> str:
        assert self._process is not None
        assert self._process.stderr is not None
        self._process.kill()
        log = self.folder / "log"
        text = log.read_text() if log.exists() else ""
        complaint = self._process.communicate()[1].decode()
        return f"{complaint[-1000:]} {text[-1000:]}"

    def _configuration(self) -> str:
        # A server of its own user needs no other users; root's drops its rights to them.
        owner = getpass.getuser()
        is_root = os.geteuid() == 0
        mail_user = pwd.getpwnam("nobody") if is_root else pwd.getpwuid(os.geteuid())
        users = "" if is_root else f"default_internal_user = {owner}\ndefault_login_user = {owner}"
        mails = self.folder / "mails"
        mails.mkdir(exist_ok=True)
        if is_root:
            os.chown(mails, mail_user.pw_uid, mail_user.pw_gid)
        return f"""
base_dir = {self.folder}/run
state_dir = {self.folder}/run
log_path = {self.folder}/log
protocols = imap
listen = 127.0.0.1
ssl = yes
ssl_cert = <{self.folder}/certificate.pem
ssl_key = <{self.folder}/key.pem
disable_plaintext_auth = no
{users}
first_valid_uid = 1
first_valid_gid = 1
mail_location = maildir:~/Maildir
mail_fsync = never
mail_max_userip_connections = 1000
auth_failure_delay = 0
imap_idle_notify_interval = 2 mins
service imap-login {{
  chroot =
  inet_listener imap {{
    address = 127.0.0.1
    port = {self.port}
  }}
  inet_listener imaps {{
    address = 127.0.0.1
    port = {self.tls_port}
    ssl = yes
  }}
}}
service anvil {{
  chroot =
  unix_listener anvil-auth-penalty {{
    mode = 0
  }}
}}
passdb {{
  driver = passwd-file
  deny = yes
  args = username_format=%u {self.folder}/denied
}}
passdb {{
  driver = static
  args = password={PASSWORD}
}}
userdb {{
  driver = static
  args = uid={mail_user.pw_uid} gid={mail_user.pw_gid} home={mails}/%u allow_all_users=yes
}}
"""


class MailServers:
    """Both servers, the mailboxes, and what was sent."""

    def __init__(self) -> None:
        if program() is None:
            raise RuntimeError(MISSING)
        self._folder = Path(tempfile.mkdtemp(prefix="mail-"))
        write_certificate(self._folder)
        self.dovecot = Dovecot(self._folder)
        self.smtp = SmtpServer(self._folder)

    def __enter__(self) -> Self:
        self.smtp.start()
        try:
            self.dovecot.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.smtp.stop()
        self.dovecot.stop()
        subprocess.run(["rm", "-rf", self._folder], check=False)

    @property
    def imap_url(self) -> str:
        return f"imap://127.0.0.1:{self.dovecot.port}"

    @property
    def smtp_url(self) -> str:
        return f"smtp://127.0.0.1:{self.smtp.port}"

    @property
    def certificate(self) -> str:
        """The certificate of both servers, which is its own authority."""
        return str(self._folder / "certificate.pem")

    # -- mailboxes

    def add_mailbox(self) -> str:
        """Return the address of a new mailbox. Every account has the same password."""
        address = f"agent{next(_numbers)}@example.org"
        self.smtp.accounts.add(address)
        return address

    def revoke(self, address: str) -> None:
        """Refuse an account at both servers from now on."""
        self.smtp.accounts.discard(address)
        self._deny(f"{address}:\n")
        self._wait_until(lambda: not self._lets_in(address))

    def restore(self, address: str) -> None:
        """Accept an account again."""
        self.smtp.accounts.add(address)
        self._deny("")
        self._wait_until(lambda: self._lets_in(address))

    def _deny(self, lines: str) -> None:
        (self._folder / "new").write_text(lines)
        (self._folder / "new").rename(self._folder / "denied")

    def _lets_in(self, address: str) -> bool:
        try:
            self.client(address).logout()
        except imaplib.IMAP4.error:
            return False
        return True

    def _wait_until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 60
        while not condition():
            assert time.monotonic() < deadline
            time.sleep(0.05)

    def client(self, address: str) -> imaplib.IMAP4:
        """Return a connection to a mailbox, as a mail program has it."""
        client = imaplib.IMAP4("127.0.0.1", self.dovecot.port, timeout=60)
        try:
            client.login(address, PASSWORD)
            client.select()
        except BaseException:
            client.shutdown()
            raise
        return client

    def deliver(self, address: str, content: bytes, moment: float | None = None) -> None:
        """Put a mail into a mailbox, as it is; `moment` is when it came in."""
        client = self.client(address)
        received_at = imaplib.Time2Internaldate(time.time() if moment is None else moment)
        try:
            status, _ = client.append("INBOX", "", received_at, content)
            assert status == "OK"
        finally:
            client.logout()

    def write(self, address: str, text: str | None = "hola", **options: Any) -> EmailMessage:
        """Write a mail to a mailbox as a person, and return it; see `new_mail`."""
        mail = new_mail(address, text, **options)
        # The library would encode ids that are longer than a line, which no mail program does.
        self.deliver(address, mail.as_bytes(policy=SMTP.clone(max_line_length=900)))
        return mail

    def is_seen(self, address: str, message_id: str) -> bool:
        """Return whether a mail is marked as read."""
        client = self.client(address)
        try:
            _, (uids,) = client.search(None, "SEEN", "HEADER", "Message-ID", f'"{message_id}"')
            return bool(uids)
        finally:
            client.logout()

    def delete_all(self, address: str) -> None:
        """Delete the mails of a mailbox."""
        client = self.client(address)
        client.store("1:*", "+FLAGS", r"\Deleted")
        client.expunge()
        client.logout()

    # -- sent mails

    @property
    def sent(self) -> list[SentMail]:
        return self.smtp.sent

    def wait_sent(self, count: int) -> list[SentMail]:
        """Wait until so many mails were sent, and return them."""
        self.smtp.wait(lambda: len(self.smtp.sent) >= count)
        return list(self.smtp.sent)


def new_mail(
    address: str,
    text: str | None = "hola",
    *,
    sender: str = f"Ana Díaz <{ANA}>",
    subject: str | None = "A question",
    replies_to: SentMail | EmailMessage | None = None,
    results: str | None = "dkim=pass header.d={domain}; spf=pass smtp.mailfrom={domain}",
    files: tuple[tuple[str, str, bytes], ...] = (),
    html: str | None = None,
    **fields: str,
) -> EmailMessage:
    """Return a mail of a person. `results` are what the receiving server says about its sender.

    In `fields` an underscore stands for a hyphen: `List_Id`.
    """
    mail = EmailMessage(policy=default)
    domain = sender.rstrip(">").rpartition("@")[2]
    if results is not None:
        mail["Authentication-Results"] = f"{AUTH_SERVER}; {results.format(domain=domain)}"
    mail["From"] = sender
    mail["To"] = address
    mail["Date"] = formatdate()
    mail["Message-ID"] = f"<{next(_numbers)}.{time.time_ns()}@example.com>"
    if subject is not None:
        mail["Subject"] = subject
    if replies_to is not None:
        message = replies_to.message if isinstance(replies_to, SentMail) else replies_to
        before = f"{message['References'] or ''} {message['Message-ID']}".split()
        mail["In-Reply-To"] = before[-1]
        mail["References"] = " ".join(before)
    for name, value in fields.items():
        del mail[name.replace("_", "-")]
        mail[name.replace("_", "-")] = value
    if text is not None:
        mail.set_content(text)
    if html is not None:
        (mail.set_content if text is None else mail.add_alternative)(html, subtype="html")
    for name, media_type, content in files:
        main, _, sub = media_type.partition("/")
        mail.add_attachment(content, maintype=main, subtype=sub, filename=name)
    return mail


# -- SMTP


class _Protocol(SmtpProtocol):
    """aiosmtpd's server, which tells its owner about its connection."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.event_handler.transports.add(transport)

    def connection_lost(self, error: Exception | None) -> None:
        self.event_handler.transports.discard(self.transport)
        super().connection_lost(error)


class SmtpServer:
    """aiosmtpd in a thread of its own. `spoil` lets it refuse, cut or be silent."""

    def __init__(self, folder: Path) -> None:
        self.port = 0
        self.tls_port = 0
        self._tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._tls.load_cert_chain(folder / "certificate.pem", folder / "key.pem")
        self.sent: list[SentMail] = []
        self.accounts: set[str] = set()
        self.connections = 0
        self.tries = 0
        self.changed = threading.Condition()
        self.transports: set[Any] = set()
        self._faults: dict[str, str] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._listener: asyncio.Server | None = None
        self._tls_listener: asyncio.Server | None = None

    def start(self) -> None:
        self._thread.start()
        self.open()

    def stop(self) -> None:
        self.refuse()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def open(self) -> None:
        """Accept connections, on the same port as before."""
        self._run(self._open())

    def refuse(self) -> None:
        """Close every connection and accept no new one."""
        self._run(self._close())

    def spoil(self, station: str, answer: str) -> None:
        """Answer so at a station (AUTH, MAIL, RCPT, DATA) from now on.

        At DATA, "cut" takes the mail and cuts the connection; "never" takes it and says nothing.
        """
        self._faults[station] = answer
        self.tries = 0

    def mend(self) -> None:
        """Forget all faults."""
        self._faults.clear()

    def wait(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition on what was sent holds."""
        with self.changed:
            assert self.changed.wait_for(condition, 60), "the mail server waited in vain"

    # -- what aiosmtpd calls

    async def handle_MAIL(
        self, server: Any, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        self.tries += 1
        if not session.authenticated:
            return "530 5.7.0 Authentication required"
        if "MAIL" in self._faults:
            return self._faults["MAIL"]
        envelope.mail_from = address
        envelope.mail_options.extend(options)
        return "250 OK"

    async def handle_RCPT(
        self, server: Any, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        if "RCPT" in self._faults:
            return self._faults["RCPT"]
        if address.startswith("nobody@"):
            return "550 5.1.1 No such user"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: Any, session: Session, envelope: Envelope) -> str:
        fault = self._faults.get("DATA")
        if fault is not None and fault[:1].isdigit():
            return fault
        assert isinstance(envelope.content, bytes)
        message = BytesParser(policy=default).parsebytes(envelope.content)
        assert isinstance(message, EmailMessage)
        with self.changed:
            sent = SentMail(envelope.mail_from or "", list(envelope.rcpt_tos), message)
            self.sent.append(sent)
            self.changed.notify_all()
        if fault == "cut":
            server.transport.abort()
        elif fault == "never":
            await asyncio.sleep(3600)
        return "250 OK"

    def _authenticate(
        self, server: Any, session: Session, envelope: Envelope, mechanism: str, data: Any
    ) -> AuthResult:
        user, password = data.login.decode(), data.password.decode()
        is_right = user in self.accounts and password == PASSWORD and "AUTH" not in self._faults
        message = self._faults.get("AUTH") or "535 5.7.8 Authentication credentials invalid"
        return AuthResult(success=is_right, handled=False, message=None if is_right else message)

    async def _open(self) -> None:
        self.port, self.tls_port = self.port or free_port(), self.tls_port or free_port()
        self._listener = await self._loop.create_server(self._protocol, "127.0.0.1", self.port)
        self._tls_listener = await self._loop.create_server(
            self._protocol, "127.0.0.1", self.tls_port, ssl=self._tls
        )

    def _protocol(self) -> _Protocol:
        self.connections += 1
        return _Protocol(
            self, hostname="smtp.example.org", authenticator=self._authenticate,
            auth_require_tls=False, enable_SMTPUTF8=True, loop=self._loop, tls_context=self._tls,
        )  # fmt: skip

    async def _close(self) -> None:
        for listener in (self._listener, self._tls_listener):
            if listener is not None:
                listener.close()
        self._listener = self._tls_listener = None
        for transport in list(self.transports):
            transport.abort()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await asyncio.sleep(0)

    def _run(self, work: Any) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(60)


class LossyLine:
    """A proxy before the IMAP server. Its connections can be cut, or go silent and stay open."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._port = free_port()
        self._listener = socket.create_server(("127.0.0.1", self._port))
        self._ends: list[socket.socket] = []
        self._is_silent: set[socket.socket] = set()
        self.connections = 0
        self._start()

    @property
    def url(self) -> str:
        return f"imap://127.0.0.1:{self._port}"

    def _start(self) -> None:
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def refuse(self) -> None:
        """Cut the connections and accept none."""
        _shut(self._listener)
        self.cut()

    def open(self) -> None:
        """Accept connections again, on the same port."""
        self._listener = socket.create_server(("127.0.0.1", self._port))
        self._start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.cut()
        _shut(self._listener)

    def silence(self) -> None:
        """Pass nothing on in the connections of now; later ones work."""
        self._is_silent.update(self._ends)

    def cut(self) -> None:
        """Cut the connections of now."""
        ends, self._ends = self._ends, []
        for end in ends:
            _shut(end)

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                server = socket.create_connection(("127.0.0.1", self._target))
                send_at_once(client, server)
                self.connections += 1
                self._ends += [client, server]
                for pair in ((client, server), (server, client)):
                    threading.Thread(target=self._pass, args=pair, daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if source not in self._is_silent:
                    target.sendall(data)
        _shut(source)
        _shut(target)


def _shut(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()

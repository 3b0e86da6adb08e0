"""Sending one mail over SMTP (RFC 5321), and what the answers of the server mean.

A mail is accepted when the server says so after its last line. Before that line was sent, it was
certainly not; after it, without an answer, nobody can know.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from tertulia.errors import (
    AccountProblem,
    OutcomeUnknown,
    PlatformError,
    PlatformUnavailable,
    RateLimited,
    Refused,
    TooLarge,
)
from tertulia.platforms.email.wire import MailConnection, Wire

# Servers may take minutes to look at a mail before they answer; RFC 5321 asks for ten.
_ACCEPT_SECONDS: Final = 300.0
# The pause after "later" that names none; servers that defer strangers want some minutes.
_DEFERRED_SECONDS: Final = 300.0
_CLIENT_NAME: Final = "localhost"
_CHUNK: Final = 65536
_CODE = re.compile(r"[2-5][0-9]{2}")
_SIZE = re.compile(r"[0-9]{1,18}")
_ENHANCED = re.compile(r"([245]\.\d{1,3}\.\d{1,3})\b")
# A line of a mail that begins with a dot gets another one.
_DOTS = re.compile(rb"^\.", re.M)


class Answer(NamedTuple):
    """The answer to a command: its code, the enhanced code (5.1.1) if there is one, its lines."""

    code: int
    detail: str
    lines: list[str]

    @property
    def is_ok(self) -> bool:
        return 200 <= self.code < 400

    def __str__(self) -> str:
        """Return the codes; texts of servers are not shown, they may repeat what was sent."""
        return f"{self.code} {self.detail}".strip()


class SmtpConnection(MailConnection):
    """A connection that has introduced itself, and logged in if there is a password."""

    def __init__(self, wire: Wire) -> None:
        super().__init__(wire)
        self._extensions: dict[str, str] = {}

    async def send(self, sender: str, recipients: Sequence[str], content: bytes) -> list[str]:
        """Send a mail; return the recipients that were refused while others were accepted."""
        self._check_size(len(content))
        options = self._options([sender, *recipients], len(content))
        answer = await self._ask(f"MAIL FROM:<{sender}>{options}")
        if not answer.is_ok:
            raise _sender_error(answer)
        refused, first = [], None
        for recipient in recipients:
            answer = await self._ask(f"RCPT TO:<{recipient}>")
            if not answer.is_ok:
                refused.append(recipient)
                first = first or answer
        if first is not None and len(refused) == len(recipients):
            raise _error_of(first, "the recipient")
        answer = await self._ask("DATA")
        if answer.code != 354:
            raise _error_of(answer, "the mail")
        await self._write_content(content)
        with suppress(PlatformUnavailable):
            await self._wire.write(b"QUIT\r\n")  # out of politeness: the mail is accepted
        return refused

    async def _write_content(self, content: bytes) -> None:
        body = _DOTS.sub(b"..", content)
        if not body.endswith(b"\r\n"):
            body += b"\r\n"
        for start in range(0, len(body), _CHUNK):
            await self._wire.write(body[start : start + _CHUNK])
        try:
            await self._wire.write(b".\r\n")
            answer = await self._read_answer(_ACCEPT_SECONDS)
        except PlatformUnavailable as problem:
            message = problem.message
        else:
            if answer.is_ok:
                return
            raise _error_of(answer, "the mail")
        raise OutcomeUnknown(
            f"{message} The mail was complete by then.",
            hint="Ask the recipient whether it arrived.",
        )

    async def _log_in(self, user: str, password: str) -> None:
        answer = await self._read_answer()
        if not answer.is_ok:
            raise _later(f"The SMTP server accepts nobody now ({answer}).")
        await self._greet()
        if self._wire.address.needs_starttls:
            if "STARTTLS" not in self._extensions:
                raise AccountProblem(
                    "The SMTP server offers no encryption, so no password is sent to it.",
                    hint='Use its address with TLS: smtp_url = "smtps://…"',
                )
            await self._require("STARTTLS")
            await self._wire.start_tls()
            await self._greet()
        if password:
            await self._authenticate(user, password)

    async def _greet(self) -> None:
        answer = await self._ask(f"EHLO {_CLIENT_NAME}")
        if not answer.is_ok:
            raise _later(f"The SMTP server does not know EHLO ({answer}).")
        words = (line.partition(" ") for line in answer.lines[1:])
        self._extensions = {name.upper(): rest.upper() for name, _, rest in words}

    async def _authenticate(self, user: str, password: str) -> None:
        methods = self._extensions.get("AUTH", "").split()
        if "PLAIN" in methods:
            secret = base64.b64encode(f"\0{user}\0{password}".encode()).decode()
            answer = await self._ask(f"AUTH PLAIN {secret}")
        elif "LOGIN" in methods:
            answer = await self._ask("AUTH LOGIN")
            for text in (user, password):
                if answer.code == 334:
                    answer = await self._ask(base64.b64encode(text.encode()).decode())
        elif "AUTH" not in self._extensions:
            return  # a server that trusts its network
        else:
            raise AccountProblem(
                "The SMTP server wants a way to log in that is not supported.",
                hint="PLAIN and LOGIN are; many providers give out a password for programs.",
            )
        if answer.code == 235:
            return
        if answer.code < 500:
            raise _later(f"The SMTP server cannot log anybody in now ({answer}).")
        raise AccountProblem(
            f"The SMTP server refused the user or the password ({answer}).",
            hint="Check user and password; many providers want a password for this program alone.",
        )

    def _check_size(self, size: int) -> None:
        limit = self._extensions.get("SIZE", "")
        if _SIZE.fullmatch(limit) and 0 < int(limit) < size:
            raise TooLarge(
                f"The SMTP server takes mails of at most {int(limit):,} bytes.", hint="Send less."
            )

    def _options(self, addresses: Sequence[str], size: int) -> str:
        options = f" SIZE={size}" if "SIZE" in self._extensions else ""
        if all(address.isascii() for address in addresses):
            return options
        if "SMTPUTF8" not in self._extensions:
            raise Refused(
                "The SMTP server takes only addresses of plain letters.",
                hint="Write to another address of this person.",
            )
        return f"{options} SMTPUTF8"

    async def _require(self, command: str) -> None:
        answer = await self._ask(command)
        if not answer.is_ok:
            raise _later(f"The SMTP server refused {command} ({answer}).")

    async def _ask(self, command: str) -> Answer:
        await self._wire.write(f"{command}\r\n".encode())
        return await self._read_answer()

    async def _read_answer(self, seconds: float | None = None) -> Answer:
        lines: list[str] = []
        while True:
            raw = await (self._wire.read_line(seconds) if seconds else self._wire.read_line())
            line = raw.decode("utf-8", "replace").rstrip("\r\n")
            if not _CODE.match(line) or len(lines) > 1000:
                raise PlatformUnavailable(
                    "The server does not answer as an SMTP server does.",
                    hint="Check the host and the port of smtp_url.",
                )
            lines.append(line[4:])
            if line[3:4] != "-":
                match = _ENHANCED.match(line[4:])
                return Answer(int(line[:3]), match[1] if match else "", lines)


def _error_of(answer: Answer, subject: str) -> PlatformError:
    """Return the error of a refusal: later, never, too large, or the account's."""
    message = f"The SMTP server refused {subject} ({answer})."
    if answer.code in (530, 535) or answer.detail.startswith("5.7.8"):
        return AccountProblem(message, hint="Check user and password.")
    if answer.code == 552 or answer.detail in ("5.3.4", "5.2.3"):
        return TooLarge(message, hint="Send less.")
    if 500 <= answer.code < 600:
        return Refused(message, hint="Check the address; the recipient may not want it.")
    if answer.detail.startswith("4.7."):
        # It defers senders that it does not know, or too many mails: a pause that it asks for.
        return RateLimited(message, hint="It is sent later.", retry_after=_DEFERRED_SECONDS)
    return _later(message)


def _sender_error(answer: Answer) -> PlatformError:
    if 500 <= answer.code < 600 and answer.code != 552:
        return AccountProblem(
            f"The SMTP server refused our own address ({answer}).",
            hint="Check address, user and password: they must belong together.",
        )
    return _error_of(answer, "the mail")


def _later(message: str) -> PlatformUnavailable:
    return PlatformUnavailable(message, hint="It is tried again.")

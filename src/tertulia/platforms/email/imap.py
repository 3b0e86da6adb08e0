"""A connection to an IMAP server (RFC 9051 and 3501): log in, select, search, fetch, wait.

Only what the adapter needs (decision 0028). A reply becomes a list of tokens: an atom is a `str`, a
string or a literal is `bytes`, NIL is None, and a list in parentheses is a `list`.
"""

from __future__ import annotations

import asyncio
import base64
import re
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from tertulia.errors import AccountProblem, PlatformError, PlatformUnavailable, Refused
from tertulia.platforms.email.wire import REPLY_SECONDS, MailConnection, Wire

# The largest piece of a mail that is taken at once; longer texts are cut, files come in pieces.
MAX_LITERAL: Final = 8 * 2**20
# Replies to one command; a server that sends more than this is broken.
_MAX_REPLIES: Final = 200_000
_UID = re.compile(r"[0-9]{1,10}")
_EXISTS = re.compile(rb"\* \d+ EXISTS", re.I)
_LITERAL = re.compile(rb"\{(\d{1,10})\+?\}\r?\n\Z")
_STATUS = re.compile(rb"(OK|NO|BAD|BYE|PREAUTH)(?: \[([A-Z-]+)(?: ([^\]]*))?\])?", re.I)
_ATOM = re.compile(rb"[^\s()\"\x00\[]*(?:\[[^\]]*\]?[^\s()\"\x00\[]*)*")
_MARK: Final = b"\x00"  # stands for a literal; the protocol has no NUL outside of literals
_LATER_CODES: Final = frozenset({"UNAVAILABLE", "INUSE", "LIMIT", "SERVERBUG", "CONTACTADMIN"})


class UntaggedReply(NamedTuple):
    """An untagged reply: its line without literals, and its tokens."""

    line: bytes
    tokens: list[Any]


class Folder(NamedTuple):
    """A selected folder."""

    validity: int
    next_uid: int


class CommandRefused(PlatformError):
    """The server refused a command; `status` is its response code, or its status."""

    code = "command_refused"

    def __init__(self, command: str, status: str) -> None:
        super().__init__(
            f"The IMAP server refused {command} ({status}).", hint="Check folder and the account."
        )
        self.status = status


class ImapConnection(MailConnection):
    """A connection with a logged-in account. After any error it can only be closed."""

    def __init__(self, wire: Wire) -> None:
        super().__init__(wire)
        self._count = 0
        self._has_news = False
        self.capabilities: frozenset[str] = frozenset()

    # -- logging in

    async def _log_in(self, user: str, password: str) -> None:
        _, greeting = await self._read(REPLY_SECONDS)
        status = None if greeting is None else _STATUS.match(greeting.line)
        if status is None:
            raise PlatformUnavailable(
                "The server does not greet as an IMAP server does.",
                hint="Check the host and the port of imap_url.",
            )
        if status[1].upper() != b"OK":
            raise _lost("The IMAP server does not accept connections now.")
        await self._read_capabilities()
        if self._wire.address.needs_starttls:
            if "STARTTLS" not in self.capabilities:
                raise AccountProblem(
                    "The IMAP server offers no encryption, so no password is sent to it.",
                    hint='Use its address with TLS: imap_url = "imaps://…"',
                )
            await self.command("STARTTLS")
            await self._wire.start_tls()
            await self._read_capabilities()
        await self._authenticate(user, password)
        await self._read_capabilities()

    async def _read_capabilities(self) -> None:
        for reply in await self.command("CAPABILITY"):
            if reply.tokens[:1] == ["CAPABILITY"]:
                self.capabilities = frozenset(str(token).upper() for token in reply.tokens[1:])

    async def _authenticate(self, user: str, password: str) -> None:
        try:
            if "AUTH=PLAIN" in self.capabilities:
                secret = base64.b64encode(f"\0{user}\0{password}".encode())
                await self.command("AUTHENTICATE PLAIN", continuation=secret)
            else:
                await self.command(f"LOGIN {quoted(user)} {quoted(password)}", name="LOGIN")
        except CommandRefused as refusal:
            status = refusal.status
        else:
            return
        raise AccountProblem(
            f"The IMAP server refused the user or the password ({status}).",
            hint="Check user and password; many providers want a password for this program alone.",
        )

    # -- commands

    async def command(
        self, text: str, *, name: str | None = None, continuation: bytes | None = None
    ) -> list[UntaggedReply]:
        """Send a command and return the untagged replies to it.

        Raises `CommandRefused`, or `PlatformUnavailable` if the connection is lost. `continuation`
        is sent when the server asks for more. `name` stands for the command in an error.
        """
        tag = self._next_tag()
        await self._wire.write(f"{tag} {text}\r\n".encode())
        replies: list[UntaggedReply] = []
        while True:
            line, reply = await self._read(REPLY_SECONDS)
            if line.startswith(b"+") and continuation is not None:
                await self._wire.write(continuation + b"\r\n")
                continuation = None
            elif line.startswith(tag.encode() + b" "):
                _require_ok(line[len(tag) + 1 :], name or _shown(text))
                return replies
            elif reply is not None:
                replies.append(reply)
            if len(replies) > _MAX_REPLIES:
                raise _lost("The IMAP server sends replies without end.")

    async def select(self, folder: str) -> Folder:
        """Select a folder and return what its UIDs are."""
        replies = await self.command(f"SELECT {quoted(encode_folder(folder))}", name="SELECT")
        codes = {}
        for reply in replies:
            if match := re.search(rb"\[(UIDVALIDITY|UIDNEXT) (\d{1,10})\]", reply.line, re.I):
                codes[match[1].upper()] = int(match[2])
        next_uid = codes.get(b"UIDNEXT")
        if next_uid is None:
            next_uid = max(await self.search("ALL"), default=0) + 1
        return Folder(codes.get(b"UIDVALIDITY", 0), next_uid)

    async def search(self, criteria: str) -> list[int]:
        """Return the UIDs of the mails that fit, in ascending order."""
        self._has_news = False
        uids: set[int] = set()
        for reply in await self.command(f"UID SEARCH {criteria}", name="SEARCH"):
            if reply.tokens[:1] == ["SEARCH"]:
                uids.update(map(int, filter(_UID.fullmatch, map(str, reply.tokens[1:]))))
        return sorted(uids)

    async def fetch(self, uid: int, items: Sequence[str]) -> dict[str, Any] | None:
        """Return the items of a mail by name, or None if the mail is gone."""
        for reply in await self.command(f"UID FETCH {uid} ({' '.join(items)})", name="FETCH"):
            if reply.tokens[1:2] != ["FETCH"] or not isinstance(reply.tokens[-1], list):
                continue
            values = reply.tokens[-1]
            pairs = zip(values[::2], values[1::2], strict=False)
            fields = {str(name).upper().partition("<")[0]: value for name, value in pairs}
            if fields.get("UID") == str(uid):
                return fields
        return None

    async def mark_seen(self, uid: int) -> None:
        """Mark a mail as read."""
        await self.command(rf"UID STORE {uid} +FLAGS.SILENT (\Seen)", name="STORE")

    async def idle(self, seconds: float) -> None:
        """Wait until the server reports a new mail, at most so long.

        A mail that it has reported since the last search counts: it reports each only once.
        """
        if self._has_news:
            return
        tag = self._next_tag()
        await self._wire.write(f"{tag} IDLE\r\n".encode())
        while not (line := (await self._read(REPLY_SECONDS))[0]).startswith(b"+"):
            if line.startswith(tag.encode() + b" "):
                _require_ok(line[len(tag) + 1 :], "IDLE")
                return
        ends_at = asyncio.get_running_loop().time() + seconds
        change: bytes | None = b""
        while change is not None and not self._has_news:
            change = await self._wire.wait_line(ends_at - asyncio.get_running_loop().time())
            if change is not None and change.upper().startswith(b"* BYE"):
                raise _lost("The IMAP server closed the connection.")
            self._has_news |= change is not None and _EXISTS.match(change) is not None
        await self._wire.write(b"DONE\r\n")
        while not (line := (await self._read(REPLY_SECONDS))[0]).startswith(tag.encode() + b" "):
            pass
        _require_ok(line[len(tag) + 1 :], "IDLE")

    # -- replies

    def _next_tag(self) -> str:
        self._count += 1
        return f"T{self._count}"

    async def _read(self, seconds: float) -> tuple[bytes, UntaggedReply | None]:
        """Return the next line, and the untagged reply in it."""
        line, literals = b"", []
        while True:
            piece = (await self._wire.read_line(seconds)).replace(_MARK, b"")
            match = _LITERAL.search(piece)
            if match is None:
                line += piece.rstrip(b"\r\n")
                break
            size = int(match[1])
            if size > MAX_LITERAL:
                raise _lost("The IMAP server sent more than was asked for.")
            literals.append(await self._wire.read_bytes(size))
            line += piece[: match.start()] + _MARK
        if not line.startswith(b"* "):
            return line, None
        status = _STATUS.match(line, 2)
        if status is not None and status[1].upper() == b"BYE":
            raise _lost("The IMAP server closed the connection.")
        self._has_news |= _EXISTS.match(line) is not None
        return line, UntaggedReply(line[2:], read_tokens(line[2:], literals))


def read_tokens(line: bytes, literals: Sequence[bytes] = ()) -> list[Any]:
    """Return the tokens of a reply; what is malformed ends the list."""
    tokens: list[Any] = []
    stack, rest, at = [tokens], list(literals), 0
    while at < len(line):
        byte = line[at : at + 1]
        if byte.isspace():
            at += 1
        elif byte == b"(":
            inner: list[Any] = []
            stack[-1].append(inner)
            stack.append(inner)
            at += 1
        elif byte == b")":
            stack = stack[:-1] if len(stack) > 1 else stack
            at += 1
        elif byte == b'"':
            text, at = _read_quoted(line, at)
            stack[-1].append(text)
        elif byte == _MARK:
            stack[-1].append(rest.pop(0) if rest else b"")
            at += 1
        else:
            match = _ATOM.match(line, at)
            atom = match[0] if match is not None and match[0] else byte
            stack[-1].append(None if atom.upper() == b"NIL" else atom.decode("latin-1"))
            at += len(atom)
    return tokens


def _read_quoted(line: bytes, at: int) -> tuple[bytes, int]:
    text, at = bytearray(), at + 1
    while at < len(line) and line[at : at + 1] != b'"':
        at += line[at : at + 1] == b"\\"
        text += line[at : at + 1]
        at += 1
    return bytes(text), at + 1


def quoted(text: str) -> str:
    """Return a text as a quoted string; line ends and NULs are left out."""
    clean = re.sub(r"[\r\n\x00]", "", text)
    return '"' + clean.replace("\\", "\\\\").replace('"', '\\"') + '"'


def encode_folder(name: str) -> str:
    """Return the name of a folder as IMAP spells it: modified UTF-7."""

    def encode(match: re.Match[str]) -> str:
        data = base64.b64encode(match[0].encode("utf-16-be")).decode().rstrip("=")
        return f"&{data.replace('/', ',')}-"

    return re.sub(r"[^\x20-\x7e]+", encode, name.replace("&", "&-"))


def _shown(command: str) -> str:
    """Return the word of a command that may stand in an error."""
    return command.partition(" ")[0]


def _require_ok(line: bytes, name: str) -> None:
    match = _STATUS.match(line)
    if match is not None and match[1].upper() == b"OK":
        return
    status = (match[2] or match[1]).decode().upper() if match is not None else "an unclear reply"
    if status in _LATER_CODES:
        raise _lost(f"The IMAP server cannot do {name} now ({status}).")
    raise CommandRefused(name, status)


def _lost(message: str) -> PlatformUnavailable:
    return PlatformUnavailable(message, hint="It is tried again.")


def gone() -> Refused:
    """Return the error of a mail or a file that is not in the folder any more."""
    return Refused("The mail is no longer in the folder.", hint="Somebody moved or deleted it.")

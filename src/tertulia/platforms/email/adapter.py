"""The adapter of a mailbox: new mails by IMAP with IDLE, answers by SMTP.

The cursor is the UID of the last mail that was handed over, with the UIDVALIDITY of the folder and
the time of that mail. If the server numbers the folder anew, listening goes on by that time; a mail
that is handed over twice has the same id.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from tertulia.core.backoff import JITTER, Backoff
from tertulia.core.media import Media
from tertulia.core.source import Source
from tertulia.core.text.spans import FormattedText
from tertulia.errors import AccountProblem, Error, PlatformError, Refused
from tertulia.platforms.base import (
    MALFORMED,
    Adapter,
    Incoming,
    Outgoing,
    Passed,
    Receive,
    Settled,
    Update,
)
from tertulia.platforms.email import EmailSettings
from tertulia.platforms.email.compose import (
    MailIds,
    MailToSend,
    compose,
    reply_subject,
    title_of,
)
from tertulia.platforms.email.headers import (
    all_fields,
    normal_address,
    parse_header,
    read_header,
)
from tertulia.platforms.email.imap import CommandRefused, Folder, ImapConnection, quoted
from tertulia.platforms.email.mailbox import (
    HEADER_ITEM,
    BounceReport,
    ReceivedMail,
    fetch_file,
    fetch_mail,
    read_time,
)
from tertulia.platforms.email.smtp import SmtpConnection
from tertulia.platforms.email.wire import MailServerAddress

log = logging.getLogger("tertulia.platforms.email")

# A connection without a sign of life for so long is asked for one; RFC 2177 allows 29 minutes.
_IDLE_SECONDS: Final = 45.0
# How often a server without IDLE is asked for new mails.
_POLL_SECONDS: Final = 15.0
_RECONNECT: Final = Backoff(first=1, longest=30)
_MAX_CONNECTIONS: Final = 4  # beside the one that listens
_MAX_THREADS: Final = 5_000
# So many mails of one address within a minute are those of a program.
_MAX_PER_MINUTE: Final = 20
_NEWEST_CHECKED: Final = 5
# In front of an address that may be forged; no address has a colon.
_UNVERIFIED: Final = "unverified:"


class FolderPosition(NamedTuple):
    """Where listening goes on: behind a mail, in a numbering, at a time."""

    validity: int
    uid: int
    time: int

    def __str__(self) -> str:
        return f"{self.validity}:{self.uid}:{self.time}"

    @classmethod
    def parse(cls, cursor: str | None) -> FolderPosition | None:
        """Read a cursor; None if there is none."""
        parts = (cursor or "").split(":")
        is_valid = len(parts) == 3 and all(part.isdigit() for part in parts)
        return cls(*map(int, parts)) if is_valid else None


class _Thread(NamedTuple):
    """The last mail of a thread: its subject and its id."""

    subject: str
    last_id: str


class EmailAdapter(Adapter):
    """The adapter of one mailbox."""

    name = "email"
    listens_alone = True

    def __init__(
        self,
        settings: EmailSettings,
        password: str,
        *,
        imap: MailServerAddress,
        smtp: MailServerAddress,
        account: str = "",
    ) -> None:
        self.account = account
        self._settings = settings
        self._user = settings.user or settings.address
        self._password = password
        self._imap = imap
        self._smtp = smtp
        addresses = (normal_address(text) for text in (settings.address, *settings.aliases))
        self._own = frozenset(address for address in addresses if address is not None)
        self._address = normal_address(settings.address) or settings.address
        self._ids = MailIds(password, self._address.rpartition("@")[2])
        self._room = asyncio.Semaphore(_MAX_CONNECTIONS)
        self._threads: OrderedDict[tuple[str, str], _Thread] = OrderedDict()
        self._roots: OrderedDict[str, str] = OrderedDict()
        self._recent: dict[str, deque[float]] = {}
        self._marks_seen = True

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._address}>"

    # -- listen

    async def listen(self, receive: Receive) -> None:
        """Hand over every new mail until cancelled; raise `AccountProblem` if login is refused."""
        position, attempts = FolderPosition.parse(self.cursor), 0
        try:
            while True:
                try:
                    async with self._connect() as imap:
                        folder = await imap.select(self._settings.folder)
                        position = await self._begin(imap, folder, position, receive)
                        self.mark_listening()
                        attempts = 0
                        while True:
                            position = await self._hand_over_new(imap, position, receive)
                            await self._wait(imap)
                            self.mark_listening()
                except (AccountProblem, asyncio.CancelledError):
                    raise
                except CommandRefused as refusal:
                    raise AccountProblem(refusal.message, hint=refusal.hint) from None
                except _NotStored as failure:
                    position = failure.position
                    attempts += 1
                    await self._pause("a mail could not be stored, asking again", attempts)
                except PlatformError as problem:
                    attempts += 1
                    self.mark_problem(problem.message)
                    await self._pause(problem.message, attempts)
        finally:
            self.mark_problem(self.state.problem)

    async def _begin(
        self,
        imap: ImapConnection,
        folder: Folder,
        position: FolderPosition | None,
        receive: Receive,
    ) -> FolderPosition:
        """Return where to begin in a folder, and store it if nothing was stored yet."""
        now = int(datetime.now(UTC).timestamp())
        is_same = position is not None and position.validity == folder.validity
        if position is not None and is_same and position.uid < folder.next_uid:
            return position
        if position is None:
            start = FolderPosition(folder.validity, folder.next_uid - 1, now)
        else:
            # UIDVALIDITY has changed: mails older than the last one were handed over before.
            log.warning("email: the server has renumbered the folder, continuing by date")
            since = datetime.fromtimestamp(position.time, UTC) - timedelta(days=1)
            uids = await imap.search(f"SINCE {_imap_date(since)}")
            last = folder.next_uid - 1
            for uid in uids:
                fields = await imap.fetch(uid, ["UID", "INTERNALDATE"])
                moment = read_time((fields or {}).get("INTERNALDATE"))
                if fields is not None and moment.timestamp() >= position.time:
                    last = uid - 1
                    break
            start = FolderPosition(folder.validity, last, position.time)
        await self._store(Passed(cursor=str(start)), receive, position or start)
        return start

    async def _hand_over_new(
        self, imap: ImapConnection, position: FolderPosition, receive: Receive
    ) -> FolderPosition:
        # "5:*" contains the last mail even if its number is smaller.
        uids = await imap.search(f"UID {position.uid + 1}:*")
        for uid in uids:
            if uid <= position.uid:
                continue
            update, after = await self._read(imap, uid, position)
            await self._store(update, receive, position)
            position = after
            self.mark_heard()
            if isinstance(update, Incoming):
                await self._acknowledge(imap, uid)
        return position

    async def _store(self, update: Update, receive: Receive, position: FolderPosition) -> None:
        try:
            await receive(update)
        except PlatformError:
            raise
        except Error as problem:
            log.warning("email: a mail could not be stored: %s", problem)
            raise _NotStored(position) from None

    async def _acknowledge(self, imap: ImapConnection, uid: int) -> None:
        """Mark a mail as read, for people who look into the mailbox; some folders refuse it."""
        if self._marks_seen:
            try:
                await imap.mark_seen(uid)
            except CommandRefused:
                self._marks_seen = False

    async def _wait(self, imap: ImapConnection) -> None:
        """Wait for new mails; a connection that gives no sign of life is lost then."""
        if "IDLE" in imap.capabilities:
            await imap.idle(_IDLE_SECONDS)
        else:
            await asyncio.sleep(_POLL_SECONDS)
            await imap.command("NOOP")

    async def _pause(self, reason: str, attempts: int) -> None:
        seconds = _RECONNECT.delay(attempts, JITTER.random())
        log.warning("email: %s Trying again in %.0f s.", reason, seconds)
        await asyncio.sleep(seconds)

    # -- what a mail means

    async def _read(
        self, imap: ImapConnection, uid: int, position: FolderPosition
    ) -> tuple[Update, FolderPosition]:
        """Return the update of a mail, and the position behind it."""
        after = position._replace(uid=uid)
        try:
            mail = await fetch_mail(
                imap, uid, position.validity, own=self._own, server=self._settings.auth_server
            )
        except MALFORMED as problem:
            log.warning(
                "email: mail %d was not understood and is skipped (%s)", uid, type(problem).__name__
            )
            return Passed(cursor=str(after)), after
        if isinstance(mail, ReceivedMail):
            after = after._replace(time=max(after.time, int(mail.received_at.timestamp())))
            incoming = await self._incoming(imap, mail, str(after))
            return incoming or Passed(cursor=str(after)), after
        if isinstance(mail, BounceReport):
            return self._settled(mail, str(after)), after
        return Passed(cursor=str(after)), after

    def _settled(self, report: BounceReport, cursor: str) -> Update:
        """Return the late outcome of a delivery, if the report is about a mail of ours."""
        delivery = self._ids.delivery_of(report.message_id)
        if delivery is None:
            return Passed(cursor=cursor)
        problem = f"The mail could not be delivered ({report.status or 'no reason'})."
        return Settled(
            delivery=delivery, is_sent=False, message_id=report.message_id, problem=problem,
            cursor=cursor,
        )  # fmt: skip

    async def _incoming(
        self, imap: ImapConnection, mail: ReceivedMail, cursor: str
    ) -> Incoming | None:
        """Return the message in a mail, or None if it is not to be answered."""
        header = mail.header
        if header.program is not None:
            log.info("email: mail %d is not answered: %s", mail.uid, header.program)
            return None
        is_group = header.is_named and bool(header.others)
        is_believed = self._settings.senders == "anyone" or mail.trust.method is not None
        if not is_believed and (is_group or self._settings.admission != "everyone"):
            log.warning("email: mail %d is ignored: %s", mail.uid, mail.trust)
            return None
        # Whoever forges an address is another person than the one it belongs to (decision 0061).
        sender = header.sender if is_believed else f"{_UNVERIFIED}{header.sender}"
        chat_id = ",".join(sorted({sender, *header.others})) if is_group else sender
        text = mail.text or header.subject or None
        if text is None and not mail.files:
            return None
        root = await self._root_of(imap, mail)
        self._remember(chat_id, root, mail)
        is_reply_to_us = self._ids.delivery_of(header.reply_to or "") is not None
        return Incoming(
            source=Source(
                "email",
                chat_id,
                account=self.account or "",
                chat_type="group" if is_group else "dm",
                chat_name=header.subject if is_group else None,
                chat_topic=f"{header.subject} ({mail.trust})".strip(),
                user_id=sender,
                user_name=header.sender_name,
                thread_id=root,
            ),
            text=text,
            message_id=header.message_id,
            media=(*mail.files, *_hidden(mail.quoted)),
            is_addressed=not is_group or header.is_direct or is_reply_to_us,
            reply_to=header.reply_to,
            is_bot=self._is_too_frequent(mail),
            cursor=cursor,
        )

    async def _root_of(self, imap: ImapConnection, mail: ReceivedMail) -> str:
        """Return the id of the first mail of a thread."""
        references = mail.header.references
        if not references:
            return mail.header.message_id
        if len(references) > 1 or references[0] in self._roots:
            return self._roots.get(references[0], references[0])
        # Some programs name only the mail they reply to: it may be in the folder, with its thread.
        uids = await imap.search(f"HEADER Message-ID {quoted(references[0])}")
        for uid in uids[-1:]:
            fields = await imap.fetch(uid, ["UID", HEADER_ITEM])
            try:
                data = (fields or {}).get("BODY[HEADER]") or b""
                parent = read_header(parse_header(data), self._own)
            except MALFORMED:
                continue
            return (*parent.references, references[0])[0]
        return references[0]

    def _remember(self, chat_id: str, root: str, mail: ReceivedMail) -> None:
        self._threads.pop((chat_id, root), None)
        self._threads[chat_id, root] = _Thread(mail.header.subject, mail.header.message_id)
        if len(self._threads) > _MAX_THREADS:
            self._threads.popitem(last=False)

    def _is_too_frequent(self, mail: ReceivedMail) -> bool:
        """Return whether an address sends as only a program does, by the times of its mails."""
        now = mail.received_at.timestamp()
        if len(self._recent) > _MAX_THREADS:
            self._recent.clear()
        times = self._recent.setdefault(mail.header.sender, deque(maxlen=_MAX_PER_MINUTE))
        is_full = len(times) == _MAX_PER_MINUTE and now - times[0] < 60
        times.append(now)
        return is_full

    # -- send

    async def send(self, message: Outgoing) -> str | None:
        """Send one mail and return its id; raise a `PlatformError` if it was not accepted."""
        recipients = self._recipients(message.chat_id)
        message_id = self._ids.id_of(message.delivery)
        subject, references = await self._thread_of(message)
        file = None
        if message.media is not None:
            media = message.media
            file = media.name or "file", media.type or "application/octet-stream", message.content
        content = compose(
            MailToSend(
                message_id=message_id,
                sender=self._address,
                sender_name=self._settings.name,
                recipients=recipients,
                subject=subject,
                text=FormattedText(message.text, message.spans),
                date=datetime.now(UTC),
                references=references,
                file=file,
            )
        )
        smtp = await SmtpConnection.open(self._smtp, self._user, self._password)
        try:
            refused = await smtp.send(self._address, recipients, content)
        finally:
            smtp.close()
        if refused:
            log.warning("email: %d of %d recipients were refused", len(refused), len(recipients))
        self._remember_root(message_id, message.thread_id or message_id)
        return message_id

    def _recipients(self, chat_id: str | None) -> list[str]:
        names = (chat_id or "").removeprefix(_UNVERIFIED).split(",")
        addresses = [normal_address(name) for name in names]
        recipients = [address for address in addresses if address is not None]
        if not recipients or len(recipients) < len(addresses) or self._own & {*recipients}:
            raise Refused(
                "The chat of this message is not the address of somebody else.",
                hint="Name one: email:ana@example.org.",
            )
        return recipients

    async def _thread_of(self, message: Outgoing) -> tuple[str, tuple[str, ...]]:
        """Return the subject of an answer, and the mails that it refers to."""
        root = message.thread_id
        if root is None:
            name = message.media.name if message.media is not None else None
            subject = title_of(message.text) or name or "A message"
            return subject, (message.reply_to,) if message.reply_to else ()
        thread = self._threads.get((message.chat_id or "", root)) or await self._look_up(root)
        last_id = message.reply_to or (thread.last_id if thread is not None else root)
        subject = reply_subject(thread.subject if thread is not None else "your mail")
        return subject, tuple(dict.fromkeys((root, last_id)))

    async def _look_up(self, root: str) -> _Thread | None:
        """Return the newest mail of a thread in the folder: another node may have handed it over.

        A mail without its subject is better than no mail, so no failure is passed on.
        """
        key = quoted(root)
        try:
            async with self._room, self._connect() as imap:
                await imap.select(self._settings.folder)
                uids = await imap.search(f"OR HEADER Message-ID {key} HEADER References {key}")
                for uid in uids[-1:]:
                    fields = await imap.fetch(uid, ["UID", HEADER_ITEM])
                    data = (fields or {}).get("BODY[HEADER]") or b""
                    header = read_header(parse_header(data), self._own)
                    return _Thread(header.subject, header.message_id)
        except (PlatformError, ValueError, LookupError, TypeError) as problem:
            log.info("email: a thread could not be looked up: %s", type(problem).__name__)
        return None

    def _remember_root(self, message_id: str, root: str) -> None:
        self._roots[message_id] = root
        if len(self._roots) > _MAX_THREADS:
            self._roots.popitem(last=False)

    # -- the rest

    async def fetch(self, media: Media) -> AsyncGenerator[bytes, None]:
        """Yield the bytes of a file of a mail."""
        async with self._room, self._connect() as imap:
            folder = await imap.select(self._settings.folder)
            async for piece in fetch_file(imap, folder.validity, media.source or ""):
                yield piece

    async def identify(self) -> str:
        """Log in at both servers, and look whether the newest mails name the own server."""
        async with self._connect() as imap:
            try:
                await imap.select(self._settings.folder)
                uids = await imap.search("ALL")
                names = [
                    name for uid in uids[-_NEWEST_CHECKED:] for name in await _servers(imap, uid)
                ]
            except CommandRefused as refusal:
                raise AccountProblem(refusal.message, hint="Check folder.") from None
        smtp = await SmtpConnection.open(self._smtp, self._user, self._password)
        smtp.close()
        count = f"{len(uids)} mail{'' if len(uids) == 1 else 's'}"
        line = f"{self._address} ({count} in {self._settings.folder})"
        return line + self._missing_results(names)

    def _missing_results(self, names: Sequence[str]) -> str:
        """Return what to change so that senders are verified; `names` are servers of late mails."""
        expected = (self._settings.auth_server or "").lower()
        others = ", ".join(dict.fromkeys(names))
        if self._settings.senders == "anyone" or expected in names:
            return ""
        if expected:
            return (
                f"; its newest mails do not name the auth_server {expected}, but {others or 'none'}"
            )
        return f"; no auth_server is set, and its newest mails name {others or 'none'}"

    @asynccontextmanager
    async def _connect(self) -> AsyncIterator[ImapConnection]:
        imap = await ImapConnection.open(self._imap, self._user, self._password)
        try:
            yield imap
        finally:
            imap.close()


class _NotStored(Exception):
    """A mail could not be stored; listening goes on from a position."""

    def __init__(self, position: FolderPosition) -> None:
        super().__init__()
        self.position = position


async def _servers(imap: ImapConnection, uid: int) -> list[str]:
    """Return the names of servers in the Authentication-Results of a mail."""
    fields = await imap.fetch(uid, ["UID", HEADER_ITEM])
    message = parse_header((fields or {}).get("BODY[HEADER]") or b"")
    results = all_fields(message, "Authentication-Results")
    words = [field.split(";")[0].split() for field in results]
    return [parts[0].lower()[:100] for parts in words if parts]


def _hidden(quoted_text: str) -> tuple[Media, ...]:
    """Return the quoted text as part of the message that people see and the model does not."""
    if not quoted_text:
        return ()
    return (Media(type="text/plain", name="quoted text", hidden_text=quoted_text),)


def _imap_date(moment: datetime) -> str:
    months = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
    return f"{moment.day}-{months[moment.month - 1]}-{moment.year}"

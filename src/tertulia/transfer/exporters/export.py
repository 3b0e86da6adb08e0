"""Sessions out of the store, in forms for programs and for people.

    jsonl      one message a line, in the OpenAI chat form, every field kept
    json       the session with its messages and where each stands
    nanobot    as nanobot keeps it, so that nanobot can go on with it
    markdown   a page for people
    html       the same as one file for the browser
    archive    the whole store, to be restored without loss

Whatever the form, a session is written as it is read: neither a store nor a long transcript is ever
in memory.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from typing import IO, Any, Literal, NamedTuple

import msgspec

from tertulia.core.message import Message
from tertulia.core.session import Session
from tertulia.core.text import format
from tertulia.core.text.display_safe import (
    one_line,
    to_json,
)
from tertulia.errors import ConfigError, NotFound
from tertulia.records import iterate
from tertulia.records.iterate import Selection
from tertulia.store import Store
from tertulia.transfer import archive
from tertulia.transfer.atomic_file import (
    Progress,
    new_file,
    new_folder,
)
from tertulia.transfer.exporters import (
    nanobot,
    page,
)
from tertulia.transfer.exporters.redaction import Redaction

Form = Literal["jsonl", "json", "nanobot", "markdown", "html"]

ENDINGS: Mapping[Form, str] = {
    "jsonl": "jsonl",
    "json": "json",
    "nanobot": "jsonl",
    "markdown": "md",
    "html": "html",
}
FORMS = tuple(ENDINGS)
ARCHIVE = "archive"
# To be gone on with elsewhere, these need the ids as they are.
_WITH_REAL_IDS = ("nanobot", ARCHIVE)


class ExportReport(msgspec.Struct, frozen=True):
    """What was written, and where."""

    form: str
    path: str
    sessions: int
    messages: int


class Document:
    """A session in one of the forms: the lines of its file, and how many messages were in them."""

    def __init__(
        self, store: Store, session: Session, form: Form, *, redact: bool = False, key: str = ""
    ) -> None:
        self.messages = 0
        self._store = store
        self._session = session
        self._form = form
        self._key = key
        self._zone = store.context.zone
        self._veil = Redaction(session, store.redactor if redact else None)

    def __iter__(self) -> Iterator[str]:
        self.messages = 0
        makers: Mapping[str, Callable[[], Iterator[str]]] = {
            "jsonl": self._jsonl,
            "json": self._json,
            "nanobot": self._nanobot,
            "markdown": self._markdown,
            "html": self._html,
        }
        return makers[self._form]()

    def write(self, stream: IO[str]) -> None:
        for line in self:
            stream.write(line)
            stream.write("\n")

    def _read(self) -> Iterator[Message]:
        for message in iterate.messages(self._store.context.db, self._session.id):
            self.messages += 1
            yield message

    def _jsonl(self) -> Iterator[str]:
        for message in self._read():
            yield to_json(self._veil.body(message.body), indent=None)

    def _json(self) -> Iterator[str]:
        """One object, a message and a place a line; the places come from a second reading."""
        plain = self._session.to_dict()
        plain["usage"]["total"] = self._session.usage.total
        yield to_json(self._veil.session(plain)).removesuffix("\n}") + ","
        yield '  "messages": ['
        yield from _listed(self._veil.body(message.body) for message in self._read())
        yield '  ],\n  "places": ['
        again = iterate.messages(self._store.context.db, self._session.id)
        # Whatever was said between the two readings has no message above.
        yield from _listed(self._place(message) for message, _ in zip(again, range(self.messages)))  # noqa: B905
        yield "  ]\n}"

    def _place(self, message: Message) -> dict[str, Any]:
        return {
            "seq": message.seq,
            "turn": message.turn,
            "kind": message.kind,
            "at": message.at.isoformat().replace("+00:00", "Z"),
            "author": self._veil.author(message),
        }

    def _nanobot(self) -> Iterator[str]:
        told = iterate.summary(self._store.context.db, self._session.id)
        return nanobot.nanobot(self._session, self._read(), told, zone=self._zone, key=self._key)

    def _markdown(self) -> Iterator[str]:
        from tertulia.transfer.exporters.markdown import markdown

        return markdown(self._page())

    def _html(self) -> Iterator[str]:
        from tertulia.transfer.exporters.html import html_page

        return html_page(self._page())

    def _page(self) -> page.Page:
        count = self._store.transcript(self._session.id).count()
        return page.page_of(self._session, self._read(), count, self._veil, zone=self._zone)


def document(
    store: Store, session_id: str, form: Form = "jsonl", *, redact: bool | None = None
) -> Document:
    """One session in one of the forms; `redact` is as the store's settings say."""
    is_redacted = _is_redacted(store, form, redact)
    return Document(store, store.sessions.require(session_id), form, redact=is_redacted)


def export_to(
    store: Store,
    form: str,
    path: str | os.PathLike[str],
    *,
    selection: Selection | None = None,
    redact: bool | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> ExportReport:
    """Write sessions to a new folder, a file each; an archive is one file with the whole store."""
    chosen = selection or Selection()
    is_redacted = _is_redacted(store, form, redact)
    target = os.fspath(path)
    if form == ARCHIVE:
        if chosen != Selection():
            raise ConfigError(
                "An archive is always of the whole store.",
                hint=f"For some sessions choose another form: {', '.join(FORMS)}.",
                field="form",
            )
        made = archive.write_archive(store, target, force=force, progress=progress)
        return ExportReport(form, target, made.rows("sessions"), made.rows("messages"))
    sessions = _first_known(iterate.sessions(store.context.db, chosen))
    new_folder(target, force=force)
    return _Folder(store, form, target, is_redacted, force).fill(sessions, progress)  # type: ignore[arg-type]


class _Folder(NamedTuple):
    """A folder that is being filled."""

    store: Store
    form: Form
    path: str
    redact: bool
    force: bool

    def fill(self, sessions: Iterator[Session], progress: Progress | None) -> ExportReport:
        counts = [0, 0]
        entries = self._entries(sessions, counts, progress)
        if self.form in ("markdown", "html"):
            self._contents(entries)
        else:
            for _ in entries:
                pass
        return ExportReport(self.form, self.path, *counts)

    def _entries(
        self, sessions: Iterator[Session], counts: list[int], progress: Progress | None
    ) -> Iterator[tuple[str, str, str]]:
        """Writes one session after the other; of each, what a table of contents tells."""
        total = self.store.sessions.count() if progress else 0
        names: set[str] = set()
        for session in sessions:
            file, key = self._named(session, names)
            written = self._write(session, file, key)
            if written is None:
                continue
            counts[0] += 1
            counts[1] += written
            if progress is not None:
                progress(counts[0], max(total, counts[0]))
            veil = Redaction(session, self.store.redactor if self.redact else None)
            stamp = format.stamp(session.updated_at, self.store.context.zone)
            words = f"{format.state_of(session)}, {written} messages, last active {stamp}"
            yield file, one_line(veil.name(format.name_of(session)), 120), words

    def _named(self, session: Session, names: set[str]) -> tuple[str, str]:
        if self.form != "nanobot":
            return f"{session.id}.{ENDINGS[self.form]}", ""
        key = nanobot.key_of(session)
        if nanobot.file_name(key) in names:
            key = f"{key}#{session.id}"
        if nanobot.is_too_long(key):
            key = f"{session.origin.platform[:32]}:#{session.id}"
        names.add(nanobot.file_name(key))
        return nanobot.file_name(key), key

    def _write(self, session: Session, file: str, key: str) -> int | None:
        """How many messages there were; None if somebody deleted the session meanwhile."""
        made = Document(self.store, session, self.form, redact=self.redact, key=key)
        try:
            with new_file(os.path.join(self.path, file), force=self.force) as partial:
                _write_lines(partial, iter(made))
        except NotFound:
            return None
        return made.messages

    def _contents(self, entries: Iterator[tuple[str, str, str]]) -> None:
        from tertulia.transfer.exporters import (
            html,
            markdown,
        )

        is_html = self.form == "html"
        make = html.contents if is_html else markdown.contents
        target = os.path.join(self.path, f"index.{ENDINGS[self.form]}")
        with new_file(target, force=self.force) as partial:
            _write_lines(partial, make("Conversations", entries))


def _write_lines(path: str, lines: Iterator[str]) -> None:
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        for line in lines:
            file.write(line)
            file.write("\n")


def _is_redacted(store: Store, form: str, asked: bool | None) -> bool:
    if form not in (*FORMS, ARCHIVE):
        raise ConfigError(
            f"There is no form {form!r}.",
            hint=f"Allowed: {', '.join((*FORMS, ARCHIVE))}.",
            field="form",
        )
    if form not in _WITH_REAL_IDS:
        return store.settings.redact_pii if asked is None else asked
    if asked:
        raise ConfigError(
            f"{form} is for going on with the conversations, and has real ids.",
            hint="Without ids there are jsonl, json, markdown and html.",
            field="redact",
        )
    return False


def _first_known(sessions: Iterator[Session]) -> Iterator[Session]:
    """The same, with the first one found already: a wrong id is told before anything is made."""
    first = next(sessions, None)

    def all_of_them() -> Iterator[Session]:
        if first is not None:
            yield first
            yield from sessions

    return all_of_them()


def _listed(values: Iterator[Any]) -> Iterator[str]:
    """Lines of a JSON list."""
    before = None
    for value in values:
        if before is not None:
            yield f"    {before},"
        before = to_json(value, indent=None)
    if before is not None:
        yield f"    {before}"

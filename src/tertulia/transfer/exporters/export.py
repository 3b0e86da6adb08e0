"""Export sessions in formats for programs and for people.

    jsonl      one message a line, in the OpenAI chat form, with every field
    json       the session with its messages and the position of each
    nanobot    nanobot's own file format, so that nanobot can continue the session
    markdown   a page for people
    html       the same as one file for the browser
    archive    the whole store, to be restored without loss

In every format a session is written while it is read: neither a store nor a long transcript is ever
held in memory.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from typing import IO, Any, Literal, NamedTuple

import msgspec

from tertulia.core.message import Message
from tertulia.core.session import Session
from tertulia.core.text import format
from tertulia.core.text.display_safe import display_json, display_line
from tertulia.errors import ConfigError, NotFound
from tertulia.records import iterate
from tertulia.records.iterate import Selection
from tertulia.store import Store
from tertulia.transfer import archive
from tertulia.transfer.atomic_file import new_file, new_folder
from tertulia.transfer.exporters import nanobot, page
from tertulia.transfer.exporters.redaction import Redaction
from tertulia.transfer.progress_callback import Progress

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
# Another program continues these conversations, so they need the real ids.
_WITH_REAL_IDS = ("nanobot", ARCHIVE)


class ExportReport(msgspec.Struct, frozen=True):
    """The result of an export: format, path and counts."""

    form: str
    path: str
    sessions: int
    messages: int


class Document:
    """A session in one format: iterate over the lines of its file; `messages` counts them."""

    def __init__(
        self, store: Store, session: Session, form: Form, *, redact: bool = False, key: str = ""
    ) -> None:
        self.messages = 0
        self._store = store
        self._session = session
        self._form = form
        self._key = key
        self._zone = store.context.zone
        self._redaction = Redaction(session, store.redactor if redact else None)

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
        """Write every line to a stream."""
        for line in self:
            stream.write(line)
            stream.write("\n")

    def _read(self) -> Iterator[Message]:
        """Yield the messages of the session, and count them."""
        for message in iterate.messages(self._store.context, self._session.id):
            self.messages += 1
            yield message

    def _jsonl(self) -> Iterator[str]:
        for message in self._read():
            yield display_json(self._redaction.body(message.body), indent=None)

    def _json(self) -> Iterator[str]:
        """Yield one object; the positions of the messages come from a second reading."""
        fields = self._session.to_dict()
        fields["usage"]["total"] = self._session.usage.total
        yield display_json(self._redaction.session(fields)).removesuffix("\n}") + ","
        yield '  "messages": ['
        yield from _json_list_lines(self._redaction.body(message.body) for message in self._read())
        yield '  ],\n  "places": ['
        again = iterate.messages(self._store.context, self._session.id)
        # Messages added between the two readings are not in the list above: leave them out.
        pairs = zip(again, range(self.messages))  # noqa: B905
        yield from _json_list_lines(self._position(message) for message, _ in pairs)
        yield "  ]\n}"

    def _position(self, message: Message) -> dict[str, Any]:
        return {
            "seq": message.seq,
            "turn": message.turn,
            "kind": message.kind,
            "at": format.utc_text(message.at),
            "author": self._redaction.author(message),
        }

    def _nanobot(self) -> Iterator[str]:
        summary = iterate.summary(self._store.context, self._session.id)
        return nanobot.nanobot_lines(
            self._session, self._read(), summary, zone=self._zone, key=self._key
        )

    def _markdown(self) -> Iterator[str]:
        from tertulia.transfer.exporters.markdown import markdown_lines

        return markdown_lines(self._page())

    def _html(self) -> Iterator[str]:
        from tertulia.transfer.exporters.html import html_lines

        return html_lines(self._page())

    def _page(self) -> page.SessionPage:
        count = self._store.transcript(self._session.id).count()
        return page.page_of(self._session, self._read(), count, self._redaction, zone=self._zone)


def document(
    store: Store, session_id: str, form: Form = "jsonl", *, redact: bool | None = None
) -> Document:
    """Return one session in one format; `redact` defaults to the store's setting.

    Raise `ConfigError` for an unknown format or one that cannot be redacted, and `NotFound` if
    there is no such session.
    """
    _require_form(form)
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
    """Write sessions to a new folder, a file each; an archive is one file with the whole store.

    Raise `ConfigError` for an unknown format, for options the format does not allow, or if the
    target exists and `force` is not set; `StoreError` if it cannot be written.
    """
    _require_form(form)
    selection = selection or Selection()
    is_redacted = _is_redacted(store, form, redact)
    target = os.fspath(path)
    if form == ARCHIVE:
        if selection != Selection():
            raise ConfigError(
                "An archive always holds the whole store.",
                hint=f"To export some sessions choose another format: {', '.join(FORMS)}.",
                field="form",
            )
        manifest = archive.write_archive(store, target, force=force, progress=progress)
        return ExportReport(form, target, manifest.rows("sessions"), manifest.rows("messages"))
    sessions = _with_first_read(iterate.sessions(store.context, selection))
    new_folder(target, force=force)
    return _ExportFolder(store, form, target, is_redacted, force).write(sessions, progress)  # type: ignore[arg-type]


class _ExportFolder(NamedTuple):
    """Writes a folder of exported sessions."""

    store: Store
    form: Form
    path: str
    redact: bool
    force: bool

    def write(self, sessions: Iterator[Session], progress: Progress | None) -> ExportReport:
        """Write a file for each session, and a table of contents for pages."""
        counts = [0, 0]
        entries = self._entries(sessions, counts, progress)
        if self.form in ("markdown", "html"):
            self._write_contents(entries)
        else:
            for _ in entries:
                pass
        return ExportReport(self.form, self.path, *counts)

    def _entries(
        self, sessions: Iterator[Session], counts: list[int], progress: Progress | None
    ) -> Iterator[tuple[str, str, str]]:
        """Write one session after the other; yield file, name and description for the contents."""
        total = self.store.sessions.count() if progress else 0
        used_names: set[str] = set()
        for session in sessions:
            file, key = self._file_and_key(session, used_names)
            messages = self._write_session(session, file, key)
            if messages is None:
                continue
            counts[0] += 1
            counts[1] += messages
            if progress is not None:
                progress(counts[0], max(total, counts[0]))
            redaction = Redaction(session, self.store.redactor if self.redact else None)
            stamp = format.format_time(session.updated_at, self.store.context.zone)
            about = f"{format.session_state(session)}, {messages} messages, last active {stamp}"
            yield file, display_line(redaction.name(format.session_name(session)), 120), about

    def _file_and_key(self, session: Session, used_names: set[str]) -> tuple[str, str]:
        """Return a file name that is not used yet, and the key that nanobot finds it by."""
        if self.form != "nanobot":
            return f"{session.id}.{ENDINGS[self.form]}", ""
        key = nanobot.key_of(session)
        if nanobot.file_name(key) in used_names:
            key = f"{key}#{session.id}"
        if nanobot.is_too_long(key):
            key = f"{session.origin.platform[:32]}:#{session.id}"
        used_names.add(nanobot.file_name(key))
        return nanobot.file_name(key), key

    def _write_session(self, session: Session, file: str, key: str) -> int | None:
        """Return the number of messages written; None if the session was deleted meanwhile."""
        session_file = Document(self.store, session, self.form, redact=self.redact, key=key)
        try:
            with new_file(os.path.join(self.path, file), force=self.force) as partial:
                _write_lines(partial, iter(session_file))
        except NotFound:
            return None
        return session_file.messages

    def _write_contents(self, entries: Iterator[tuple[str, str, str]]) -> None:
        from tertulia.transfer.exporters import html, markdown

        is_html = self.form == "html"
        contents = html.contents_lines if is_html else markdown.contents_lines
        target = os.path.join(self.path, f"index.{ENDINGS[self.form]}")
        with new_file(target, force=self.force) as partial:
            _write_lines(partial, contents("Conversations", entries))


def _write_lines(path: str, lines: Iterator[str]) -> None:
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        for line in lines:
            file.write(line)
            file.write("\n")


def _require_form(form: str) -> None:
    if form not in (*FORMS, ARCHIVE):
        raise ConfigError(
            f"Unknown export format {form!r}.",
            hint=f"Allowed: {', '.join((*FORMS, ARCHIVE))}.",
            field="form",
        )


def _is_redacted(store: Store, form: str, redact: bool | None) -> bool:
    """Return whether to redact; raise `ConfigError` if the format cannot be redacted."""
    if form not in _WITH_REAL_IDS:
        return store.settings.redact_pii if redact is None else redact
    if redact:
        raise ConfigError(
            f"The format {form} always holds real ids, so that conversations can continue.",
            hint="To leave ids out choose jsonl, json, markdown or html.",
            field="redact",
        )
    return False


def _with_first_read(sessions: Iterator[Session]) -> Iterator[Session]:
    """Return the same iterator with its first item read: a wrong id raises before any write."""
    first = next(sessions, None)

    def with_first() -> Iterator[Session]:
        if first is not None:
            yield first
            yield from sessions

    return with_first()


def _json_list_lines(values: Iterator[Any]) -> Iterator[str]:
    """Yield the lines of a JSON list."""
    previous = None
    for value in values:
        if previous is not None:
            yield f"    {previous},"
        previous = display_json(value, indent=None)
    if previous is not None:
        yield f"    {previous}"

"""`tertulia sessions`: list, show, search, change, answer again, export and delete sessions."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import IO, TYPE_CHECKING, Any, Literal

import click

from tertulia.cli import locations, output, session_details, session_list
from tertulia.cli.completion import session_ids
from tertulia.cli.errors import NEGATIVE_RESULT
from tertulia.cli.options import (
    TEXT,
    CommandGroup,
    CommandOptions,
    json_option,
    program_name,
    session_filters,
)
from tertulia.cli.session_ref import resolve
from tertulia.core import title as titles
from tertulia.core.session import Session
from tertulia.core.source import LOCAL
from tertulia.errors import ConfigError, NotFound
from tertulia.records.sessions.find import PAGE_LIMIT
from tertulia.store import Store

if TYPE_CHECKING:
    from rich.text import Text

    from tertulia import aio
    from tertulia.records.turns.user_message import UserMessage

DEFAULT_NEWEST = 20

ExportFormat = Literal["jsonl", "json", "nanobot", "markdown", "html"]
EXPORT_FORMATS = ("jsonl", "json", "nanobot", "markdown", "html")


@click.group(cls=CommandGroup)
def sessions() -> None:
    """List, show, search and change sessions.

    SESSION is an id, the beginning of one (or of its last 8 digits), a title or a part of it that
    only one session has, or `last` for the one with the newest activity.
    """


# An id, the beginning of one, a title, or "last": see `session_ref`.
_id_argument = click.argument(
    "session_id", metavar="SESSION", type=TEXT, shell_complete=session_ids
)


@sessions.command("list")
@session_filters
@click.option(
    "--text", type=TEXT, help="Only sessions with these words in title, name or messages."
)
@click.option(
    "--limit",
    metavar="N",
    type=click.IntRange(1, PAGE_LIMIT),
    default=50,
    show_default=True,
    help="How many at most.",
)
@click.option(
    "--cursor", type=TEXT, help="Continue after an earlier page, with the cursor it printed."
)
@json_option
@click.pass_obj
def list_(options: CommandOptions, /, **filters: Any) -> None:
    """List sessions, newest activity first: ● goes on, ○ has ended."""
    with (
        locations.open_to_read(options) as store,
        output.spinner(options, "Searching sessions …"),
    ):
        if filters["text"] is not None:
            store.settle()  # index the newest messages and titles first
        page = store.sessions.find(**filters)
        rows = () if options.json else page.items
        lengths = _count_messages(store, rows)
        names = {
            session.id: session_list.name_of(
                session, None if session.title else store.sessions.suggest_title(session.id)
            )
            for session in rows
        }
    if options.json:
        output.print_json([session_details.to_dict(session) for session in page.items])
    elif not page.items:
        output.print_text(options, _no_sessions_text(filters))
    else:
        width = output.console(options).width
        output.print_renderables(options, session_list.table(page.items, names, lengths, width))
        if page.next is not None:
            output.print_text(
                options, f"\nThere are more sessions. Continue with: --cursor {page.next}"
            )


@sessions.command()
@_id_argument
@click.option(
    "--newest",
    metavar="N",
    type=click.IntRange(0),
    help=f"How many messages. Default: {DEFAULT_NEWEST}, with --json all.",
)
@click.option(
    "--all", "show_all", is_flag=True, help="All messages, none of them cut, and all details."
)
@json_option
@click.pass_obj
def show(options: CommandOptions, session_id: str, newest: int | None, show_all: bool) -> None:
    """Show the details of a session and its newest messages."""
    from tertulia.cli import transcript_view

    if newest is None and not show_all and not options.json:
        newest = DEFAULT_NEWEST
    with locations.open_to_read(options) as store, output.spinner(options, "Reading …"):
        session = resolve(store, session_id)
        transcript = store.transcript(session.id)
        messages = transcript.entries(newest=None if show_all else newest)
        length = transcript.count()
    if options.json:
        output.print_json(transcript_view.to_dict(session, messages))
        return
    facts = session_details.facts(session, length, whole=show_all)
    with output.paged_console(options) as console:
        for renderable in (facts, *_omitted_line(length - len(messages))):
            console.print(renderable)
        transcript_view.print_messages(console, messages, whole=show_all)


@sessions.command()
@click.argument("query", nargs=-1, required=True, type=TEXT)
@click.option("--person", type=TEXT, help="Only sessions of a person, such as telegram:42.")
@click.option("--platform", type=TEXT, help="Only sessions of a platform.")
@click.option(
    "--limit",
    metavar="N",
    type=click.IntRange(1, 200),
    default=20,
    show_default=True,
    help="How many at most.",
)
@json_option
@click.pass_obj
def search(options: CommandOptions, /, query: tuple[str, ...], **filters: Any) -> None:
    """Find messages that contain all words of QUERY, best match first.

    Case and accents are ignored. A phrase in double quotes is searched as a whole, and a word that
    ends in * matches all words that begin with it.
    """
    text = " ".join(query)
    with locations.open_to_read(options) as store:
        with output.spinner(options, "Updating the search index …"):
            store.settle()
        hits = store.search(text, **filters).items
        sessions = {hit.session_id: store.sessions.get(hit.session_id) for hit in hits}
    if options.json:
        output.print_json([session_details.hit_to_dict(hit) for hit in hits])
    elif not hits:
        output.print_text(options, "No message contains all these words.")
    else:
        with output.paged_console(options) as console:
            session_details.print_hits(console, hits, sessions, text)


@sessions.command()
@_id_argument
@json_option
@click.pass_obj
def explain(options: CommandOptions, session_id: str) -> None:
    """Explain why a session began, continued and ended."""
    with locations.open_to_read(options) as store:
        session = resolve(store, session_id)
        text = store.sessions.explain(session.id)
    output.print_result(options, {"id": session.id, "lines": text.splitlines()}, text)


@sessions.command()
@_id_argument
@click.argument("title", nargs=-1, type=TEXT)
@click.option("--clear", is_flag=True, help="Remove the title.")
@json_option
@click.pass_obj
def rename(options: CommandOptions, session_id: str, title: tuple[str, ...], clear: bool) -> None:
    """Give a session a TITLE."""
    text = " ".join(title)
    if clear == bool(text.strip()):
        raise click.UsageError(
            f"Give either a title of up to {titles.MAX_LENGTH} characters, or --clear."
        )
    with _open_to_write(options) as store:
        session_id = resolve(store, session_id).id
        session = store.sessions.rename(session_id, None if clear else text, by=LOCAL)
    change = f"is now called {session.title!r}" if session.title else "has no title now"
    _report(options, session, f"{session.id} {change}.")


@sessions.command()
@_id_argument
@click.option(
    "--at",
    metavar="N",
    type=click.IntRange(1),
    help="Up to and including message N, as `sessions show` numbers them. Default: all.",
)
@json_option
@click.pass_obj
def fork(options: CommandOptions, session_id: str, at: int | None) -> None:
    """Start a new session with the same messages; it becomes the current one."""
    with _open_to_write(options) as store:
        session_id = resolve(store, session_id).id
        try:
            session = store.sessions.fork(session_id, at=at, by=LOCAL)
        except NotFound as problem:
            hint = f"List the message numbers with: tertulia sessions show {session_id} --all"
            raise NotFound(problem.message, hint=hint) from problem
    _report(options, session, f"{session.id} is a fork of {session_id}, and is now current.")


@sessions.command()
@_id_argument
@click.option(
    "--turns", metavar="N", type=click.IntRange(1), default=1, show_default=True,
    help="How many questions to take back, with their answers.",
)  # fmt: skip
@json_option
@click.pass_obj
def undo(options: CommandOptions, session_id: str, turns: int) -> None:
    """Take back the newest question and its answer; `redo` restores them."""
    with _open_to_write(options) as store:
        session = resolve(store, session_id)
        count = store.transcript(session.id, by=LOCAL).undo(turns)
        if not count:
            raise NotFound(
                f"{session.id} has nothing to undo.",
                hint=f"Its messages: tertulia sessions show {session.id}",
            )
        session = store.sessions.require(session.id)
    exchanges = "1 exchange" if count == 1 else f"{count} exchanges"
    again = f"{program_name()} sessions redo {session.id}"
    _report(options, session, f"Took back {exchanges} of {session.id}. To restore: {again}")


@sessions.command()
@_id_argument
@json_option
@click.pass_obj
def redo(options: CommandOptions, session_id: str) -> None:
    """Restore what the last `undo` took back."""
    with _open_to_write(options) as store:
        session = resolve(store, session_id)
        if not store.transcript(session.id, by=LOCAL).redo():
            raise NotFound(
                f"{session.id} has nothing to restore.",
                hint="Only what the last undo took back can be, until a new message is stored.",
            )
        session = store.sessions.require(session.id)
    _report(options, session, f"Restored in {session.id}.")


@sessions.command()
@_id_argument
@json_option
@click.pass_obj
def retry(options: CommandOptions, session_id: str) -> None:
    """Let the agent answer the last message again, and print the new answer.

    The old answer is taken back. The new one is printed here and stored, not sent to a chat app.
    """
    import asyncio

    from tertulia.cli import ask
    from tertulia.gateway.commands import message_to_repeat

    def take_back(store: Store) -> UserMessage:
        session = resolve(store, session_id)
        ask.require_current(session)
        transcript = store.transcript(session.id, by=LOCAL)
        message = message_to_repeat(transcript, session.origin)
        if message is None:
            raise NotFound(
                f"{session.id} has no message to answer again.",
                hint=f"Its messages: tertulia sessions show {session.id}",
            )
        transcript.undo(1)
        return message

    async def repeat(store: aio.Store) -> UserMessage:
        return await asyncio.to_thread(take_back, store.sync)

    asyncio.run(ask.print_answer(options, repeat))


@sessions.command()
@_id_argument
@json_option
@click.pass_obj
def resume(options: CommandOptions, session_id: str) -> None:
    """Make an earlier session the current one of its conversation again."""
    with _open_to_write(options) as store:
        before = resolve(store, session_id)
        session = store.sessions.switch(before.key, before.id, by=LOCAL)
    change = "was already current" if before.ended_at is None else "is current again"
    _report(options, session, f"{session.id} {change}.")


@sessions.command()
@_id_argument
@click.option(
    "--format",
    "form",
    type=click.Choice(EXPORT_FORMATS),
    default="jsonl",
    show_default=True,
    help="jsonl: one message per line. json: the session with its messages. nanobot: nanobot's "
    "file format. markdown, html: a page for people.",
)
@click.option(
    "--output", "target", metavar="FILE", type=click.Path(), help="Default: the standard output."
)
@click.option("--force", is_flag=True, help="Replace FILE if it exists.")
@click.option("--redact", is_flag=True, help="Without ids and phone numbers.")
@json_option
@click.pass_obj
def export(
    options: CommandOptions,
    session_id: str,
    form: ExportFormat,
    target: str | None,
    force: bool,
    redact: bool,
) -> None:
    """Write a session's messages to a file or to the standard output.

    --json is the same as --format json. To export several sessions: tertulia export.
    """
    from tertulia.transfer.exporters import export as exports

    form = "json" if options.json else form
    with locations.open_to_read(options) as store, output.spinner(options, "Writing …"):
        session_id = resolve(store, session_id).id
        document = exports.document(store, session_id, form, redact=redact or None)
        with _open_target(target, force) as stream:
            document.write(stream)
    if target is not None:
        click.echo(
            f"{_count_text(document.messages)} written to {output.display_line(target)}", err=True
        )


@sessions.command()
@_id_argument
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@json_option
@click.pass_obj
def delete(options: CommandOptions, session_id: str, yes: bool) -> None:
    """Delete a session and its messages for good.

    Its usage and cost stay in the ledger. Forks of it keep their messages.
    """
    with locations.open_existing_store(options) as store:
        session = resolve(store, session_id)
        session_id = session.id
        length = store.transcript(session_id).count()
        if not yes:
            _require_reader(options)
            name = session_details.short_name(session)
            _confirm(f"Delete {session_id} ({name}) with {_count_text(length)} for good?")
        with output.spinner(options, "Deleting …"):
            store.sessions.delete(session_id)
    sentence = f"{session_id} is deleted, with {_count_text(length)}."
    output.print_result(options, {"deleted": session_id, "messages": length}, sentence)


@contextmanager
def _open_to_write(options: CommandOptions) -> Iterator[Store]:
    """Open the store for a change, which may have to wait for other programs."""
    waiting = output.spinner(options, "Waiting for the store …")
    with locations.open_existing_store(options) as store, waiting:
        yield store


def _report(options: CommandOptions, session: Session, sentence: str) -> None:
    output.print_result(options, session_details.to_dict(session), sentence)


def _count_messages(store: Store, sessions: Sequence[Session]) -> dict[str, int]:
    """Return the number of messages by session id; 0 if the session was just deleted."""
    counts = dict.fromkeys((session.id for session in sessions), 0)
    for session_id in counts:
        with suppress(NotFound):
            counts[session_id] = store.transcript(session_id).count()
    return counts


def _count_text(count: int) -> str:
    return f"{count} message" if count == 1 else f"{count} messages"


def _omitted_line(count: int) -> list[Text]:
    if count <= 0:
        return []
    return [
        output.plain_text(""),
        output.plain_text(f"({count:,} earlier; --all shows them)", style="dim"),
    ]


def _no_sessions_text(filters: dict[str, Any]) -> str:
    values = {**filters, "limit": None}.values()
    has_filter = any(value not in (None, "all") for value in values)
    return "No session matches." if has_filter else "There are no sessions yet."


def _require_reader(options: CommandOptions) -> None:
    """Raise ConfigError if a program runs the command: its error output has JSON alone."""
    if options.json and not sys.stdin.isatty():
        raise ConfigError(
            "Nothing was deleted: with --json and without a terminal no question is asked.",
            hint="Delete without a question: --yes",
        )


def _confirm(question: str) -> None:
    """Ask the user; end the command unless the answer is yes, raise ConfigError without one."""
    answer = output.ask_yes_no(question)
    if answer is None:
        raise ConfigError(
            "The question was not answered: the standard input has ended.",
            hint="Delete without a question: --yes",
        )
    if not answer:
        click.echo("Nothing was deleted.", err=True)
        click.get_current_context().exit(NEGATIVE_RESULT)


@contextmanager
def _open_target(target: str | None, force: bool) -> Iterator[IO[str]]:
    """Open the file to write to; yield the standard output if none is named."""
    if target is None:
        yield sys.stdout
        return
    from tertulia.transfer.atomic_file import new_file

    with new_file(target, force=force) as path, open(path, "w", encoding="utf-8") as file:
        yield file

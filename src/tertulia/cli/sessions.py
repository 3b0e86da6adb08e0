"""`tertulia sessions`: find, read, explain, name, copy, resume and delete."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import IO, TYPE_CHECKING, Any, Literal

import click

from tertulia.cli import (
    locations,
    output,
    session_view,
)
from tertulia.cli.completion import session_ids
from tertulia.cli.errors import NO
from tertulia.cli.options import WORDS, Group, Request, json_option
from tertulia.core import title as titles
from tertulia.core.session import STATES, Session
from tertulia.errors import ConfigError, NotFound
from tertulia.records.sessions.find import PAGE_LIMIT
from tertulia.store import Store

if TYPE_CHECKING:
    from rich.text import Text

NEWEST = 20

_HUNDRED_YEARS = 52_560_000

Form = Literal["jsonl", "json", "nanobot", "markdown", "html"]
FORMS = ("jsonl", "json", "nanobot", "markdown", "html")


@click.group(cls=Group)
def sessions() -> None:
    """List, read, search and change sessions."""


_id = click.argument("session_id", metavar="ID", type=WORDS, shell_complete=session_ids)


@sessions.command("list")
@click.option("--platform", type=WORDS, help="Only those of a platform, such as telegram.")
@click.option("--key", type=WORDS, help="Only those of one conversation.")
@click.option("--person", type=WORDS, help="Only those of a person, such as telegram:42.")
@click.option(
    "--state", type=click.Choice(STATES), default="all", show_default=True, help="Which ones."
)
@click.option("--text", type=WORDS, help="Only those with these words in title, name or messages.")
@click.option(
    "--active-minutes",
    metavar="N",
    type=click.IntRange(1),
    help="Only those with activity in the last N minutes.",
)
@click.option(
    "--limit",
    metavar="N",
    type=click.IntRange(1, PAGE_LIMIT),
    default=50,
    show_default=True,
    help="How many at most.",
)
@click.option("--cursor", type=WORDS, help="Go on where an earlier page ended.")
@json_option
@click.pass_obj
def list_(request: Request, /, **filters: Any) -> None:
    """List sessions, newest activity first."""
    if filters["active_minutes"] is not None:
        # Longer than anything is stored, and short enough to reckon with.
        filters["active_minutes"] = min(filters["active_minutes"], _HUNDRED_YEARS)
    with locations.existing(request) as store, output.waiting(request, "Looking for sessions …"):
        if filters["text"] is not None:
            store.settle()  # what was said or renamed a moment ago is found too
        page = store.sessions.find(**filters)
        lengths = _lengths(store, () if request.json else page.items)
    if request.json:
        output.print_json([session_view.to_dict(one) for one in page.items])
    elif not page.items:
        output.say(request, _nothing_found(filters))
    else:
        width = output.console(request).width
        output.show(request, session_view.table(page.items, lengths, width))
        if page.next is not None:
            output.say(request, f"\nThere are more. Go on with: --cursor {page.next}")


@sessions.command()
@_id
@click.option(
    "--newest",
    metavar="N",
    type=click.IntRange(0),
    help=f"How many messages. Default: {NEWEST}, with --json all.",
)
@click.option("--all", "everything", is_flag=True, help="Every message, and none cut short.")
@json_option
@click.pass_obj
def show(request: Request, session_id: str, newest: int | None, everything: bool) -> None:
    """Show the facts of a session and its newest messages."""
    from tertulia.cli import transcript_view

    if newest is None and not everything and not request.json:
        newest = NEWEST
    with locations.existing(request) as store, output.waiting(request, "Reading …"):
        found = store.sessions.require(session_id)
        log = store.transcript(session_id)
        messages = log.entries(newest=None if everything else newest)
        length = log.count()
    if request.json:
        output.print_json(transcript_view.to_dict(found, messages))
        return
    output.show(request, session_view.facts(found, length), *_left_out(length - len(messages)))
    transcript_view.print_messages(output.console(request), messages, whole=everything)


@sessions.command()
@click.argument("query", nargs=-1, required=True, type=WORDS)
@click.option("--person", type=WORDS, help="Only in the sessions of a person, as telegram:42.")
@click.option("--platform", type=WORDS, help="Only in those of a platform.")
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
def search(request: Request, /, query: tuple[str, ...], **filters: Any) -> None:
    """Find messages that hold all words of QUERY, best first.

    Words are found in any case and without their accents. A phrase in double quotes stands
    together, and a word that ends in * stands for all that begin so.
    """
    words = " ".join(query)
    with locations.existing(request) as store:
        with output.waiting(request, "Bringing the search index up to date …"):
            store.settle()
        hits = store.search(words, **filters).items
        homes = {hit.session_id: store.sessions.get(hit.session_id) for hit in hits}
    if request.json:
        output.print_json([session_view.hit_to_dict(hit) for hit in hits])
    elif not hits:
        output.say(request, "No message has all these words.")
    else:
        session_view.print_hits(output.console(request), hits, homes, words)


@sessions.command()
@_id
@json_option
@click.pass_obj
def explain(request: Request, session_id: str) -> None:
    """Tell why a session began, went on and ended."""
    with locations.existing(request) as store:
        told = store.sessions.explain(session_id)
    if request.json:
        output.print_json({"id": session_id, "lines": told.splitlines()})
    else:
        output.say(request, told)


@sessions.command()
@_id
@click.argument("title", nargs=-1, type=WORDS)
@click.option("--clear", is_flag=True, help="Take the title away.")
@json_option
@click.pass_obj
def rename(request: Request, session_id: str, title: tuple[str, ...], clear: bool) -> None:
    """Give a session a TITLE."""
    words = " ".join(title)
    if clear == bool(words.strip()):
        raise click.UsageError(
            f"Give either a title of up to {titles.LENGTH} characters, or --clear."
        )
    with locations.existing(request) as store, output.waiting(request, "Waiting for the store …"):
        renamed = store.sessions.rename(session_id, None if clear else words)
    told = f"is called {renamed.title!r} now" if renamed.title else "has no title any more"
    _report(request, renamed, f"{renamed.id} {told}.")


@sessions.command()
@_id
@click.option(
    "--at",
    metavar="N",
    type=click.IntRange(1),
    help="Up to and including message N, as `sessions show` numbers them. Default: all.",
)
@json_option
@click.pass_obj
def fork(request: Request, session_id: str, at: int | None) -> None:
    """Begin a new session with the same past; it becomes the current one."""
    with locations.existing(request) as store, output.waiting(request, "Waiting for the store …"):
        store.sessions.require(session_id)
        try:
            made = store.sessions.fork(session_id, at=at)
        except NotFound as problem:
            hint = f"See their numbers with: tertulia sessions show {session_id} --all"
            raise NotFound(problem.message, hint=hint) from problem
    _report(request, made, f"{made.id} is a fork of {session_id}, and current now.")


@sessions.command()
@_id
@json_option
@click.pass_obj
def resume(request: Request, session_id: str) -> None:
    """Make an earlier session the current one of its conversation again."""
    with locations.existing(request) as store, output.waiting(request, "Waiting for the store …"):
        before = store.sessions.require(session_id)
        resumed = store.sessions.switch(before.key, session_id)
    told = "was current already" if before.ended_at is None else "is current again"
    _report(request, resumed, f"{resumed.id} {told}.")


@sessions.command()
@_id
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMS),
    default="jsonl",
    show_default=True,
    help="jsonl: one message a line. json: the session with its messages. nanobot: as nanobot "
    "keeps it. markdown, html: a page for people.",
)
@click.option("--output", "target", metavar="FILE", type=click.Path(), help="Default: the screen.")
@click.option("--force", is_flag=True, help="Replace FILE if it exists.")
@click.option("--redact", is_flag=True, help="Without ids and phone numbers.")
@json_option
@click.pass_obj
def export(
    request: Request, session_id: str, form: Form, target: str | None, force: bool, redact: bool
) -> None:
    """Write a session's messages to a file or to the screen.

    --json is the same as --format json. Many sessions, or all: tertulia export.
    """
    from tertulia.transfer.exporters import export as exports

    form = "json" if request.json else form
    with locations.existing(request) as store, output.waiting(request, "Writing …"):
        made = exports.document(store, session_id, form, redact=redact or None)
        with _opened(target, force) as stream:
            made.write(stream)
    if target is not None:
        click.echo(f"{_messages(made.messages)} written to {output.one_line(target)}", err=True)


@sessions.command()
@_id
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
@click.pass_obj
def delete(request: Request, session_id: str, yes: bool) -> None:
    """Remove a session with everything it holds, for good.

    Only what it cost stays in the ledger. Forks of it keep their messages.
    """
    with locations.existing(request) as store:
        found = store.sessions.require(session_id)
        length = store.transcript(session_id).count()
        if not yes:
            name = session_view.short_name(found)
            _ask(f"Delete {session_id} ({name}) with {_messages(length)} for good?")
        with output.waiting(request, "Deleting …"):
            store.sessions.delete(session_id)
    if request.json:
        output.print_json({"deleted": session_id, "messages": length})
    else:
        output.say(request, f"{session_id} is deleted, with {_messages(length)}.")


def _report(request: Request, changed: Session, sentence: str) -> None:
    if request.json:
        output.print_json(session_view.to_dict(changed))
    else:
        output.say(request, sentence)


def _lengths(store: Store, sessions: Sequence[Session]) -> dict[str, int]:
    """How many messages each has; none where somebody has just deleted it."""
    found = dict.fromkeys((one.id for one in sessions), 0)
    for session_id in found:
        with suppress(NotFound):
            found[session_id] = store.transcript(session_id).count()
    return found


def _messages(count: int) -> str:
    return f"{count} message" if count == 1 else f"{count} messages"


def _left_out(count: int) -> list[Text]:
    if count <= 0:
        return []
    return [output.plain(""), output.plain(f"({count:,} earlier; --all shows them)", style="dim")]


def _nothing_found(filters: dict[str, Any]) -> str:
    asked = {**filters, "limit": None}
    is_narrowed = any(value not in (None, "all") for value in asked.values())
    return "No session is like that." if is_narrowed else "There are no sessions yet."


def _ask(question: str) -> None:
    """Go on only if a person says so."""
    answer = output.confirmed(question)
    if answer is None:
        raise ConfigError("Nobody is there to answer.", hint="Say it at once with: --yes")
    if not answer:
        click.echo("Nothing was deleted.", err=True)
        click.get_current_context().exit(NO)


@contextmanager
def _opened(target: str | None, force: bool) -> Iterator[IO[str]]:
    """The file to write to; the screen if none is named."""
    if target is None:
        yield sys.stdout
        return
    from tertulia.transfer.atomic_file import new_file

    with new_file(target, force=force) as partial, open(partial, "w", encoding="utf-8") as file:
        yield file

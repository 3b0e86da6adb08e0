"""`tertulia sessions`: find, read, explain, name, copy, resume and delete."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import IO, TYPE_CHECKING, Any, Literal

import click

from tertulia.cli import figures, output, place
from tertulia.cli.completion import session_ids
from tertulia.cli.failures import NO
from tertulia.cli.options import WORDS, Group, Request, json_option
from tertulia.core.session import STATES, TITLE_LENGTH, Page, Session
from tertulia.errors import ConfigError, NotFound, StoreFull
from tertulia.records.search import Hit
from tertulia.records.sessions import PAGE_LIMIT
from tertulia.store import Store

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

NEWEST = 20

# The columns of a list, and from how wide a terminal on each is shown.
_COLUMNS = {
    "id": 0,
    "name": 0,
    "platform": 0,
    "state": 0,
    "active": 0,
    "messages": 110,
    "tokens": 110,
    "cost": 95,
}
_HUNDRED_YEARS = 52_560_000

Format = Literal["jsonl", "markdown", "json"]


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
    with place.existing(request) as store, output.waiting(request, "Looking for sessions …"):
        if filters["text"] is not None:
            store.settle()
        page = store.sessions.find(**filters)
        lengths = {} if request.json else {one.id: _length(store, one) for one in page.items}
    if request.json:
        output.print_json([to_dict(session) for session in page.items])
    elif not page.items:
        output.say(request, _nothing_found(filters))
    else:
        output.show(request, _session_table(request, page, lengths))
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
    from tertulia.cli import transcript

    if newest is None and not everything and not request.json:
        newest = NEWEST
    with place.existing(request) as store, output.waiting(request, "Reading …"):
        session = store.sessions.require(session_id)
        messages = store.transcript(session_id).entries(newest=None if everything else newest)
        length = _length(store, session)
    if request.json:
        output.print_json(transcript.to_dict(session, messages))
        return
    output.show(request, _facts(session, length), *_left_out(length - len(messages)))
    transcript.print_messages(output.console(request), messages, whole=everything)


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
    with place.existing(request) as store, output.waiting(request, "Searching …"):
        store.settle()
        hits = store.search(words, **filters).items
        homes = {hit.session_id: store.sessions.require(hit.session_id) for hit in hits}
    if request.json:
        output.print_json([_hit_to_dict(hit) for hit in hits])
    elif not hits:
        output.say(request, "No message has all these words.")
    else:
        _print_hits(output.console(request), hits, homes, words)


@sessions.command()
@_id
@json_option
@click.pass_obj
def explain(request: Request, session_id: str) -> None:
    """Tell why a session began, went on and ended."""
    with place.existing(request) as store:
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
            f"Give either a title of up to {TITLE_LENGTH} characters, or --clear."
        )
    with place.existing(request) as store, output.waiting(request, "Waiting for the store …"):
        session = store.sessions.rename(session_id, None if clear else words)
    told = f"is called {session.title!r} now" if session.title else "has no title any more"
    _report(request, session, f"{session.id} {told}.")


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
    with place.existing(request) as store, output.waiting(request, "Waiting for the store …"):
        store.sessions.require(session_id)
        try:
            session = store.sessions.fork(session_id, at=at)
        except NotFound as problem:
            hint = f"See their numbers with: tertulia sessions show {session_id} --all"
            raise NotFound(problem.message, hint=hint) from problem
    _report(request, session, f"{session.id} is a fork of {session_id}, and current now.")


@sessions.command()
@_id
@json_option
@click.pass_obj
def resume(request: Request, session_id: str) -> None:
    """Make an earlier session the current one of its conversation again."""
    with place.existing(request) as store, output.waiting(request, "Waiting for the store …"):
        before = store.sessions.require(session_id)
        session = store.sessions.switch(before.key, session_id)
    told = "was current already" if before.ended_at is None else "is current again"
    _report(request, session, f"{session.id} {told}.")


@sessions.command()
@_id
@click.option(
    "--format",
    "form",
    type=click.Choice(["jsonl", "markdown", "json"]),
    default="jsonl",
    show_default=True,
    help="jsonl: one message a line. json: the session with its messages.",
)
@click.option("--output", "target", metavar="FILE", type=click.Path(), help="Default: the screen.")
@click.option("--force", is_flag=True, help="Replace FILE if it exists.")
@click.pass_obj
def export(
    request: Request, session_id: str, form: Format, target: str | None, force: bool
) -> None:
    """Write a session's messages to a file or to the screen."""
    from tertulia.cli import transcript

    with place.existing(request) as store, output.waiting(request, "Reading …"):
        session = store.sessions.require(session_id)
        messages = store.transcript(session_id).entries()
    with _opened(target, force) as stream:
        output.write_lines(transcript.exported(session, messages, form), stream)
    if target is not None:
        click.echo(f"{len(messages)} messages written to {output.one_line(target)}", err=True)


@sessions.command()
@_id
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
@click.pass_obj
def delete(request: Request, session_id: str, yes: bool) -> None:
    """Remove a session with everything it holds, for good.

    Only what it cost stays in the ledger. Forks of it keep their messages.
    """
    with place.existing(request) as store:
        session = store.sessions.require(session_id)
        length = _length(store, session)
        if not yes:
            _ask(f"Delete {_described(session)} with {_messages(length)} for good?")
        with output.waiting(request, "Deleting …"):
            store.sessions.delete(session_id)
    if request.json:
        output.print_json({"deleted": session_id, "messages": length})
    else:
        output.say(request, f"{session_id} is deleted, with {_messages(length)}.")


def to_dict(session: Session) -> dict[str, Any]:
    """A session for programs, under the names of its fields."""
    plain = session.to_dict()
    plain["usage"]["total"] = session.usage.total
    return plain


def _report(request: Request, session: Session, sentence: str) -> None:
    if request.json:
        output.print_json(to_dict(session))
    else:
        output.say(request, sentence)


def _length(store: Store, session: Session) -> int:
    return store.transcript(session.id).count()


def _messages(count: int) -> str:
    return f"{count} message" if count == 1 else f"{count} messages"


def _nothing_found(filters: dict[str, Any]) -> str:
    is_narrowed = any(value not in (None, "all") for name, value in filters.items()
                      if name != "limit")  # fmt: skip
    return "No session is like that." if is_narrowed else "There are no sessions yet."


def _session_table(request: Request, page: Page[Session], lengths: dict[str, int]) -> Table:
    width = output.console(request).width
    shown = [name for name, needed in _COLUMNS.items() if width >= needed]
    table = output.table(*shown, elastic="name", numbers=("messages", "tokens", "cost"))
    now, zone = datetime.now(UTC), place.zone()
    for session in page.items:
        cells: dict[str, Text | str] = {
            "id": session.id,
            "name": output.cell(_short_name(session), style="bold" if session.title else ""),
            "platform": output.cell(session.origin.platform),
            "state": _state(session, with_reason="messages" in shown),
            "active": figures.when(session.updated_at, now, zone),
            "messages": str(lengths[session.id]),
            "tokens": figures.short(session.usage.total) if session.usage.total else figures.NONE,
            "cost": figures.cost(session.usage),
        }
        table.add_row(*(cells[name] for name in shown))
    return table


def _state(session: Session, *, with_reason: bool) -> Text:
    if session.ended_at is None:
        return output.cell("current", style="green")
    return output.cell(figures.state_of(session) if with_reason else "ended", style="dim")


def _short_name(session: Session) -> str:
    return output.one_line(figures.name_of(session), TITLE_LENGTH)


def _facts(session: Session, length: int) -> Table:
    from rich.table import Table

    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in _fact_lines(session, length):
        if value:
            table.add_row(name, output.plain(value, style="bold" if name == "title" else ""))
    return table


def _fact_lines(session: Session, length: int) -> Iterator[tuple[str, str | None]]:
    now, zone = datetime.now(UTC), place.zone()
    source, usage = session.origin, session.usage
    yield "session", session.id
    yield "title", session.title
    yield "place", f"{source.platform}, {source.description}"
    yield "account", source.account
    yield "key", session.key
    yield "state", figures.state_of(session)
    yield "began", figures.stamp(session.created_at, zone)
    active = figures.stamp(session.updated_at, zone)
    yield "active", f"{active} ({figures.ago(session.updated_at, now)})"
    if session.ended_at is not None:
        yield "ended", figures.stamp(session.ended_at, zone)
    if session.parent_id is not None:
        yield ("forked from" if session.parent_kind == "fork" else "after"), session.parent_id
    yield "model", ", ".join(filter(None, (session.model, session.provider)))
    yield "tokens", _token_words(session)
    yield "cost", _cost_words(session) if usage.total or usage.cost_usd else None
    yield "metadata", output.to_json(session.metadata, indent=None) if session.metadata else None
    yield "messages", str(length)


def _token_words(session: Session) -> str | None:
    usage = session.usage
    if not usage.total:
        return None
    counts = ((name.replace("_", " "), getattr(usage, name)) for name in figures.COUNTS)
    parts = ", ".join(f"{name} {count:,}" for name, count in counts if count)
    return f"{usage.total:,} ({parts})"


def _cost_words(session: Session) -> str:
    told = figures.cost(session.usage)
    if session.cost_status == "unknown" and session.cost_usd is not None:
        return f"{told} (some calls have no known price)"
    return f"{told} (from {session.cost_source})" if session.cost_source else told


def _left_out(count: int) -> list[Text]:
    if count <= 0:
        return []
    return [output.plain(""), output.plain(f"({count:,} earlier; --all shows them)", style="dim")]


def _hit_to_dict(hit: Hit) -> dict[str, Any]:
    import msgspec

    plain: dict[str, Any] = msgspec.to_builtins(hit)
    return plain


def _print_hits(
    screen: Console, hits: Sequence[Hit], homes: Mapping[str, Session], query: str
) -> None:
    from rich.text import Text

    from tertulia.core import words

    phrases = [phrase for phrase, _ in words.terms(query)]
    for hit in hits:
        head = _hit_head(hit, homes[hit.session_id])
        screen.print(head, no_wrap=True, overflow="ellipsis")
        snippet = Text(output.one_line(hit.snippet))
        snippet.highlight_words(phrases, style="bold yellow", case_sensitive=False)
        output.show_indented(screen, snippet)


def _hit_head(hit: Hit, session: Session) -> Text:
    from rich.text import Text

    head = Text().append(f"{hit.session_id} #{hit.seq}", style="cyan")
    about = f"{hit.role}, {figures.when(hit.at, datetime.now(UTC), place.zone())}"
    head.append(f"  {output.one_line(about)}", style="dim")
    return head.append(f"  {_short_name(session)}", style="bold")


def _described(session: Session) -> str:
    return f"{session.id} ({_short_name(session)})"


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
    if os.path.exists(target) and not force:
        raise ConfigError(f"{target} exists already.", hint="Name a new file, or give --force.")
    try:
        with place.private_files(), open(target, "w", encoding="utf-8") as file:
            yield file
    except OSError as problem:
        raise StoreFull(
            f"{target} could not be written: {problem.strerror}.",
            hint="Name a file in a folder that exists and has space.",
        ) from problem

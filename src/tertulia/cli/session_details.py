"""Format what is known of one session, and search hits, as tables, texts and JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from tertulia.cli import format, output
from tertulia.core import title as titles
from tertulia.core.session import Session
from tertulia.records.machine_zone import machine_zone
from tertulia.records.search import Hit

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text


# What only `--all` shows: identifiers for programs, and what another system stored with a session.
_DETAILS = frozenset({"account", "key", "began", "model", "tokens", "metadata"})


def to_dict(session: Session) -> dict[str, Any]:
    """Return a session for JSON output, under the names of its fields."""
    fields = session.to_dict()
    fields["usage"]["total"] = session.usage.total
    return fields


def short_name(session: Session) -> str:
    """Return the title or another name of a session, on one line."""
    return output.display_line(format.session_name(session), titles.MAX_LENGTH)


def facts(session: Session, length: int, *, whole: bool = False) -> Table:
    """Return a table of what matters about a session of `length` messages; `whole`: of all."""
    shown = (
        (name, value)
        for name, value in _fact_lines(session, length)
        if whole or name not in _DETAILS
    )
    return output.facts_table(shown, bold=("title",))


def _fact_lines(session: Session, length: int) -> Iterator[tuple[str, str | None]]:
    now, zone = datetime.now(UTC), machine_zone()
    source, usage = session.origin, session.usage
    yield "session", session.id
    yield "title", session.title
    yield "source", f"{source.platform}, {source.description}"
    yield "account", source.account
    yield "key", session.key
    yield "state", format.session_state(session)
    yield "began", format.format_time(session.created_at, zone)
    active = format.format_time(session.updated_at, zone)
    yield "active", f"{active} ({format.ago(session.updated_at, now)})"
    if session.ended_at is not None:
        yield "ended", format.format_time(session.ended_at, zone)
    if session.parent_id is not None:
        yield ("forked from" if session.parent_kind == "fork" else "after"), session.parent_id
    yield "model", ", ".join(filter(None, (session.model, session.provider)))
    yield "tokens", _token_text(session)
    yield "cost", _cost_text(session) if usage.total or usage.cost_usd else None
    yield (
        "metadata",
        output.display_json(session.metadata, indent=None) if session.metadata else None,
    )
    yield "messages", str(length)


def _token_text(session: Session) -> str | None:
    usage = session.usage
    if not usage.total:
        return None
    counts = ((name.replace("_", " "), getattr(usage, name)) for name in format.COUNTS)
    parts = ", ".join(f"{name} {count:,}" for name, count in counts if count)
    return f"{usage.total:,} ({parts})"


def _cost_text(session: Session) -> str:
    cost = format.format_cost(session.usage)
    if session.cost_status == "unknown" and session.cost_usd is not None:
        return f"{cost} (some calls have no known price)"
    if session.cost_source and session.cost_status == "included":
        return f"{cost} ({session.cost_source})"
    return f"{cost} (from {session.cost_source})" if session.cost_source else cost


def hit_to_dict(hit: Hit) -> dict[str, Any]:
    """Return a search hit for JSON output, under the names of its fields."""
    import msgspec

    fields: dict[str, Any] = msgspec.to_builtins(hit)
    return fields


def print_hits(
    console: Console, hits: Sequence[Hit], sessions: Mapping[str, Session | None], query: str
) -> None:
    """Print search hits, each under its session; skip those of sessions that were deleted."""
    from rich.text import Text

    from tertulia.core.text import search_terms

    phrases = [phrase for phrase, _ in search_terms.parse_query(query)]
    for hit in hits:
        session = sessions[hit.session_id]
        if session is None:
            continue
        head = _hit_head(hit, session)
        console.print(head, no_wrap=True, overflow="ellipsis")
        snippet = Text(output.display_line(hit.snippet))
        snippet.highlight_words(phrases, style="bold yellow", case_sensitive=False)
        output.print_indented(console, snippet)


def _hit_head(hit: Hit, session: Session) -> Text:
    from rich.text import Text

    head = Text().append(f"{hit.session_id} #{hit.seq}", style="cyan")
    details = f"{hit.role}, {format.age_or_date(hit.at, datetime.now(UTC), machine_zone())}"
    head.append(f"  {output.display_line(details)}", style="dim")
    return head.append(f"  {short_name(session)}", style="bold")

"""Times, costs and names as people read them, on the screen and in pages."""

from __future__ import annotations

from datetime import datetime, tzinfo

from tertulia.core.session import Session
from tertulia.core.usage import Usage

NO_VALUE = "–"


def session_name(session: Session) -> str:
    """Return the name of a session for people: its title, else a description of its origin."""
    return session.title or session.origin.description


def session_state(session: Session) -> str:
    """Return "current", or "ended" with the reason."""
    if session.ended_at is None:
        return "current"
    return f"ended: {session.end_reason}"


def format_time(time: datetime, zone: tzinfo) -> str:
    """Return a time in a zone, to the second."""
    return f"{time.astimezone(zone):%Y-%m-%d %H:%M:%S}"


def utc_text(moment: datetime | None) -> str | None:
    """Return a time in UTC as JSON has it, ending in Z; None for None."""
    return None if moment is None else moment.isoformat().replace("+00:00", "Z")


def format_dollars(amount: float) -> str:
    """Return an amount in dollars, small amounts with four decimals."""
    if 0 < amount < 0.0001:
        return "<$0.0001"
    return f"${amount:,.2f}" if amount == 0 or amount >= 1 else f"${amount:.4f}"


def format_cost(usage: Usage) -> str:
    """Return the cost of a usage and how certain it is; an unknown cost is never shown as zero."""
    if usage.cost_status == "included":
        return "included"
    if usage.cost_usd is None or (usage.cost_status == "unknown" and not usage.cost_usd):
        return "unknown" if usage.total else NO_VALUE
    if not usage.cost_usd and usage.cost_status == "unknown":
        return "unknown"  # at least nothing: that tells nobody anything
    sign = {"unknown": "≥ ", "estimated": "≈ "}.get(usage.cost_status or "", "")
    return sign + format_dollars(usage.cost_usd)

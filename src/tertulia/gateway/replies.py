"""What the gateway itself says to people."""

from __future__ import annotations

from tertulia.core.session import Notice
from tertulia.errors import AgentError, BudgetExceeded, Error
from tertulia.records.queues.inbox import InboxItem

STOPPED = "Stopped."
CUT_OFF = "I was cut off before I could answer this, and the talk has gone on since. Say it again."
REASONS = {"idle": "you had not written for a while", "daily": "a new day has begun"}


def reply_key(arrival: InboxItem) -> str:
    """What the gateway says to a message it says once, however often the message is tried."""
    return f"reply:{arrival.id}"


def pairing(code: str) -> str:
    return (
        f"I do not know you yet. Show this code to my owner: {code}\n"
        "It is good for one hour; they let you in with: tertulia pair approve CODE"
    )


def notice(given: Notice) -> str:
    """The conversation began anew by itself, and how to go back."""
    reason = REASONS.get(given.reason, given.reason)
    return f"This is a new conversation: {reason}. To go on with the last one, say /resume 1."


def interrupted(command: str) -> str:
    again = "/redo, then /retry" if command == "retry" else "it again"
    return (
        f"/{command} was cut off, and I cannot tell whether it was done. I did not repeat it: look"
        f" with /history or /sessions, and say {again} if you need to."
    )


def refused(problem: BudgetExceeded) -> str:
    return f"{problem.message} {problem.hint or ''}".strip()


def failed(problem: AgentError) -> str:
    """The agent gave no answer. What a provider said is for the logs, not for people in chats."""
    reason = {
        "agent_timeout": "the model took too long",
        "agent_unavailable": "the model cannot be reached right now",
        "context_overflow": "this conversation has become too long for the model",
    }.get(problem.code, "something went wrong on the model's side")
    way_out = (
        "/new to begin afresh" if problem.code == "context_overflow" else "/retry to try again"
    )
    return f"I could not answer: {reason}. Your message is kept; say {way_out}."


def given_up(problem: Error) -> str:
    return f"I could not answer this message and have given up ({problem.code}). It is kept."

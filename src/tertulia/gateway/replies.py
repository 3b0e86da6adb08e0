"""Texts that the gateway itself sends to people, and the idempotency key of such a reply."""

from __future__ import annotations

import uuid

from tertulia.core.session import Notice
from tertulia.core.text.prompt_safe import clean_for_prompt
from tertulia.core.text.secret_patterns import hide_secrets
from tertulia.errors import AgentError, BudgetExceeded, Error, PlatformError, TooLarge
from tertulia.platforms.base import FAILURE_KEY, NOTICE_KEY, REFUSAL_KEY, REPLY_KEY
from tertulia.records.queues.inbox import InboxItem

STOPPED = "Stopped."
CUT_OFF = (
    "I was interrupted before I could answer this, and the conversation has gone on since then."
    " Please send it again."
)
NO_TRANSCRIPTION = (
    "I cannot listen to voice notes here, so I have not answered. Please write it instead."
)
NOT_TRANSCRIBED = (
    "I could not listen to your voice note, so I have not answered. It is stored; send /retry to"
    " try again, or write it instead."
)
REASONS = {"idle": "you had not written for a while", "daily": "a new day has begun"}


def reply_key(item: InboxItem) -> str:
    """Return the delivery key of the reply to a message: one reply, however often it is tried."""
    return f"{REPLY_KEY}{item.id}"


def failure_key(item: InboxItem) -> str:
    """Return the delivery key of the reply to a message that the agent could not answer."""
    return f"{FAILURE_KEY}{item.id}"


def refusal_key(item: InboxItem) -> str:
    """Return the delivery key of the reply to a message that a budget refused."""
    return f"{REFUSAL_KEY}{item.id}"


def notice_key(about: str | None = None) -> str:
    """Return the key of a text that nobody asked for; the same one for texts `about` the same."""
    return f"{NOTICE_KEY}{uuid.uuid4().hex if about is None else about}"


def pairing(code: str) -> str:
    """Tell an unknown person how to be let in. The first line ends with the code."""
    return (
        f"I do not know you yet. Please show this code to my owner: {code}\n"
        "It is valid for one hour. My owner lets you in with: tertulia pair approve CODE"
    )


def link_warning(chat: str) -> str:
    """Tell who typed a link code what it gives away; `chat` is where the code was made."""
    return (
        f"I have asked {chat}, where this code was made, to confirm.\n"
        "Careful: once it does, whoever writes there reads everything that is written here, and"
        " this chat reads and continues that conversation. If somebody else gave you the code,"
        " send /link off now."
    )


def link_requested(chat: str) -> str:
    """Ask who made a link code to confirm the chat it was typed in."""
    return (
        f"{chat} typed the code that was made here. If that is you, send /link confirm: that chat"
        " then reads everything in this conversation, the earlier ones too, and writes in it. If"
        " it is not you, send /link off."
    )


def link_confirmed(chat: str) -> str:
    """Tell who typed a link code that the link is active."""
    return (
        f"{chat} confirmed: this chat now shares one conversation with it, and whoever writes"
        " there reads what is written here. To end that, send /link off."
    )


def link_ended(chat: str) -> str:
    """Tell a chat that another one is no longer linked with it."""
    return f"{chat} is no longer linked with this chat. The shared conversation has ended."


def link_dropped(chat: str) -> str:
    """Tell a chat that a request to link it was dropped."""
    return f"{chat} dropped the request to share a conversation. Nothing is linked."


def approval_question(tool: str, arguments: str) -> str:
    """Ask for the approval of a call; `arguments` have no invisible characters."""
    return f"May I run {clean_for_prompt(tool, 64)}?\n{arguments}"


def approval_instructions(code: str, *, minutes: float, is_once_only: bool) -> str:
    """Say how a question for an approval is answered."""
    scopes = "once" if is_once_only else "once (or session, always)"
    return (
        f"Yes: /approve {code} {scopes}\n"
        f"No: /deny {code} REASON\n"
        f"The question is open for {minutes:g} minutes. Any other message means no."
    )


def notice(event: Notice) -> str:
    """Say that the policy began a new conversation, and how to go back to the last one."""
    reason = REASONS.get(event.reason, event.reason)
    return (
        f"This is a new conversation, because {reason}. To continue the last one, send /resume 1."
    )


def interrupted(command: str) -> str:
    """Say that a command was interrupted and is not repeated."""
    again = "/redo, then /retry" if command == "retry" else "it again"
    return (
        f"/{command} was interrupted, and I cannot tell whether it was completed. I did not repeat"
        f" it. Please check with /history or /sessions, and send {again} if needed."
    )


def refused(problem: BudgetExceeded) -> str:
    """Say which budget is used up."""
    return f"{problem.message} {problem.hint or ''}".strip()


def file_problem(name: str | None, problem: str) -> str:
    """Say that a file of a message was not received, and why."""
    file = clean_for_prompt(name or "", 60)
    return f"I did not receive the file{f' {file}' if file else ''}: {problem}."


def file_unusable(name: str | None, problem: str) -> str:
    """Say that a file of a message was received and cannot be read, and why."""
    file = clean_for_prompt(name or "", 60)
    return f"I cannot read the file{f' {file}' if file else ''}: {problem}."


def file_not_sent(name: str | None, problem: PlatformError) -> str:
    """Say that a file could not be sent."""
    reason = "it is too large" if isinstance(problem, TooLarge) else "it was refused"
    file = clean_for_prompt(name or "", 60)
    return f"I could not send the file{f' {file}' if file else ''}: {reason}."


def failed(problem: AgentError) -> str:
    """Say that the agent gave no answer. The provider's own message goes only into the log."""
    reason = {
        "agent_timeout": "the model took too long",
        "agent_unavailable": "the model cannot be reached right now",
        "context_overflow": "this conversation has become too long for the model",
    }.get(problem.code, "something went wrong on the model's side")
    advice = (
        "/new to begin a new conversation"
        if problem.code == "context_overflow"
        else "/retry to try again"
    )
    return f"I could not answer: {reason}. Your message is stored; send {advice}."


def failed_for_owner(problem: AgentError) -> str:
    """Say why the agent gave no answer, to the person who can repair it."""
    cause = hide_secrets(" ".join(map(_sentence, filter(None, (problem.message, problem.hint)))))
    advice = (
        "/new begins a new conversation"
        if problem.code == "context_overflow"
        else "/retry asks again"
    )
    return f"✗ {cause} Your message is stored; {advice}."


def _sentence(text: str) -> str:
    """Return a text that ends like a sentence: programs often report causes without a full stop."""
    stripped = text.strip()
    return stripped if stripped.endswith((".", "!", "?", "…")) else f"{stripped}."


def given_up(problem: Error) -> str:
    """Say that a message will not be tried again."""
    return (
        f"I could not answer this message and have given up ({problem.code})."
        " Your message is stored."
    )

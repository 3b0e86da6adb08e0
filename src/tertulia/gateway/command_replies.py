"""Replies of chat commands that are longer than a sentence: help, history and search results."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime, tzinfo
from typing import Final

from tertulia.core.message import ASSISTANT, USER, Message, from_json, text_of
from tertulia.core.policy import PolicyForecast
from tertulia.core.session import Session
from tertulia.core.source import Source
from tertulia.core.text import search_terms
from tertulia.core.text.excerpt import one_line
from tertulia.core.text.prompt_safe import clean_for_prompt
from tertulia.records.search import Hit

# The groups of /help, in their order. A command that is in none of them is listed last.
GROUPS: Final = {
    "Conversations": ("new", "resume", "sessions", "title", "fork", "forget"),
    "Messages": (
        "undo", "redo", "retry", "stop", "compress", "last", "history", "search", "export",
    ),
    "State": ("status", "usage", "queue", "policy", "ps", "whoami", "help"),
    "Schedules, memory, people": ("schedule", "memory", "link", "pair"),
    "Agent and model": ("agent", "model"),
    "Approvals": ("approve", "deny", "approvals"),
}  # fmt: skip
_MORE: Final = "More"
_WORDS_LENGTH: Final = 60
_RECALL_LENGTH: Final = 200
_USAGE_LENGTH: Final = 24
_OF_TERMINAL: Final = {
    "Files": (
        ("/attach FILE…", "send files with the next message; `@path` in it does the same"),
        ("/detach [NUMBER]", "do not send a file, or any"),
    ),
    "Terminal": (
        ("/thinking [on|off]", "show or hide what the model thinks"),
        ("/quit", "leave; ctrl-D does the same"),
    ),
    "Keys": (
        ("Enter", "send; alt-Enter, or `\\` and Enter, begins a new line"),
        ("Tab", "complete a command, or a path after `@`"),
        ("up, ctrl-R", "earlier input; search in it"),
        ("ctrl-X ctrl-E", "write the message in `$EDITOR`"),
        ("ctrl-C", "stop the answer, else clear the line"),
        ("ctrl-O", "show the last tool call whole"),
        ("ctrl-L", "clear the screen"),
        ("ctrl-D", "leave; the conversation stays stored"),
    ),
}


def help_text(rows: Sequence[tuple[str, str, str]], *, is_terminal: bool) -> str:
    """Return the commands in groups; a row is name, usage and description.

    The terminal gets one table, with its keys. Elsewhere a line for each command is better: a phone
    is narrow, and chat apps make a link of a command that stands alone.
    """
    group_of = {name: group for group, names in GROUPS.items() for name in names}
    groups: dict[str, list[tuple[str, str]]] = {group: [] for group in (*GROUPS, _MORE)}
    for name, usage, description in rows:
        groups[group_of.get(name, _MORE)].append((usage, description))
    if is_terminal:
        return _help_table({**groups, **{name: list(r) for name, r in _OF_TERMINAL.items()}})
    return "\n\n".join(
        "\n".join([f"**{group}**", *(f"{usage}: {about}" for usage, about in commands)])
        for group, commands in groups.items()
        if commands
    )


def _help_table(groups: Mapping[str, Sequence[tuple[str, str]]]) -> str:
    """Return one table, so that all groups are aligned; the first group is its head."""
    lines: list[str] = []
    for group, commands in groups.items():
        if commands:
            lines.append(f"| **{group}** | |" if lines else f"| {group} | |")
            lines += ["|---|---|"] if len(lines) == 1 else []
            lines += [_table_row(*command) for command in commands]
    return "\n".join([*lines, "", "`/help COMMAND` shows all of a command."])


def _table_row(usage: str, description: str) -> str:
    if len(usage) > _USAGE_LENGTH:
        usage = f"{usage.partition(' ')[0]} …"
    return f"| `{usage.replace('|', chr(92) + '|')}` | {description} |"


def history_text(messages: Sequence[Message], zone: tzinfo, now: datetime) -> str:
    """Return messages with who said them and when."""
    lines = []
    for message in messages:
        text = text_of(message.body)
        if message.role in (USER, ASSISTANT) and message.kind is None and text:
            lines.append(f"**{_speaker(message)}**, {local_time(message.at, zone, now)}: {text}")
    return "\n\n".join(lines) or "There are no messages yet."


def last_exchange_text(messages: Sequence[Message], zone: tzinfo, now: datetime) -> str:
    """Return the newest question and everything that was answered to it, the answer as it is."""
    shown = [
        message
        for message in messages
        if message.role in (USER, ASSISTANT) and message.kind is None and text_of(message.body)
    ]
    numbers = [number for number, message in enumerate(shown) if message.role == USER]
    if not numbers:
        return history_text(messages, zone, now)
    question, *answers = shown[numbers[-1] :]
    texts = [text_of(answer.body) for answer in answers] or ["(There is no answer yet.)"]
    return "\n\n".join([history_text([question], zone, now), *texts])


def recall_text(messages: Sequence[Message]) -> str:
    """Return the last question and the beginning of its answer as a quote; empty without one."""
    shown = [message for message in messages if message.kind is None and text_of(message.body)]
    numbers = [number for number, message in enumerate(shown) if message.role == USER]
    if not numbers:
        return ""
    question, *later = shown[numbers[-1] :]
    answers = [message for message in later if message.role == ASSISTANT]
    lines = [
        f"> {_speaker(message)}: {_mark(one_line(text_of(message.body), _RECALL_LENGTH), ())}"
        for message in (question, *answers[-1:])
    ]
    return "\n\n" + "\n".join([*lines, "", "`/last` shows it whole."])


def policy_text(forecast: PolicyForecast, now: datetime) -> str:
    """Return when a conversation ends by itself, as a person would say it."""
    policy, rules = forecast.policy, []
    if policy.mode in ("idle", "both"):
        rules.append(f"when nobody has written for {_duration(policy.idle_minutes)}")
    if policy.mode in ("daily", "both"):
        rules.append(f"every day at {policy.at_hour}:00")
    if not rules or forecast.ends_at is None:
        return "This conversation does not end by itself."
    if forecast.ends_at <= now:
        return "It has ended: your next message begins a new conversation. /resume 1 goes back."
    time = f"{forecast.ends_at:%Y-%m-%d %H:%M} ({forecast.zone})"
    return (
        f"This conversation ends {' and '.join(rules)}: at {time}, if nobody writes before."
        " The next message then begins a new one, and /resume 1 goes back."
    )


def _duration(minutes: int) -> str:
    for size, unit in ((1440, "day"), (60, "hour"), (1, "minute")):
        count, rest = divmod(minutes, size)
        if count and not rest:
            return f"1 {unit}" if count == 1 else f"{count} {unit}s"
    return f"{minutes} minutes"


def first_words_of_difference(more: Sequence[Message], fewer: Sequence[Message]) -> str:
    """Return the first words of the oldest message of a person that is only in `more`, quoted.

    Empty if there is none. /undo and /redo say with it what they took back or restored.
    """
    numbers = {message.seq for message in fewer}
    texts = [
        text_of(message.body)
        for message in more
        if message.role == USER and message.kind is None and message.seq not in numbers
    ]
    words = clean_for_prompt(texts[0], _WORDS_LENGTH) if texts else ""
    return f': "{words}"' if words else ""


def search_text(
    hits: Sequence[Hit],
    sessions: dict[str, Session | None],
    query: str,
    zone: tzinfo,
    now: datetime,
) -> str:
    """Return hits with who said it, when and in which conversation; what was looked for is bold."""
    phrases = [phrase for phrase, _ in search_terms.parse_query(query)]
    lines = []
    for hit in hits:
        session = sessions[hit.session_id]
        if session is None:
            continue  # deleted since
        title = f'"{clean_for_prompt(session.title, 60)}"' if session.title else session.id
        who = "you" if hit.role == USER else "the agent"
        head = f"{local_time(hit.at, zone, now)}, {who}, in {title}:"
        lines.append(f"- {head} {_mark(hit.snippet, phrases)}")
    return "\n".join(lines) or "No messages found."


def local_time(moment: datetime, zone: tzinfo, now: datetime) -> str:
    """Return a time in a zone: the hour today, else the day too."""
    local, today = moment.astimezone(zone), now.astimezone(zone).date()
    return f"{local:%H:%M}" if local.date() == today else f"{local:%Y-%m-%d %H:%M}"


def match_title(sessions: Sequence[Session], text: str) -> list[Session]:
    """Return the session with this title, else every session whose title contains the text."""
    wanted = text.strip('"').casefold()
    exact = [s for s in sessions if s.title is not None and s.title.casefold() == wanted]
    if exact:
        return exact[:1]
    return [s for s in sessions if s.title is not None and wanted and wanted in s.title.casefold()]


def _speaker(message: Message) -> str:
    if message.role == ASSISTANT:
        return "Agent"
    if message.author is None:
        return "You"
    author = from_json(message.author)
    return clean_for_prompt(str(author.get("name") or author.get("id") or "Somebody"), 60)


def _mark(snippet: str, phrases: Sequence[str]) -> str:
    """Return a snippet in one line with the phrases in bold, and nothing else as formatting."""
    text = re.sub(r"([\\`*_\[\]<>|~])", r"\\\1", " ".join(snippet.split()))
    words = [re.escape(phrase) for phrase in phrases if phrase.strip()]
    if not words:
        return text
    return re.sub(rf"(?i)({'|'.join(words)})", r"**\1**", text)


def is_terminal(source: Source) -> bool:
    """Return whether somebody sits at the terminal of this machine."""
    return source.is_terminal

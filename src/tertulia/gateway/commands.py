"""Chat commands: one table for all platforms.

A command is a function of its context and of the text after its name; it returns the reply to the
person. Every read goes through `store.for_person`, so that nobody sees the data of others.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from typing import NamedTuple

from tertulia.core import keys
from tertulia.core.message import Message, from_json, text_of
from tertulia.core.session import Session
from tertulia.core.source import Source
from tertulia.core.text import format
from tertulia.core.text.prompt_safe import clean_for_prompt
from tertulia.errors import AccessDenied, ConfigError, Duplicate, Error, IllegalMove, NotFound
from tertulia.gateway import (
    agent_commands,
    approval_commands,
    command_replies,
    memory_tool,
    people_commands,
    schedule_tool,
)
from tertulia.gateway.agent_table import AgentTable
from tertulia.gateway.settings import GatewaySettings
from tertulia.platforms.base import MenuEntry
from tertulia.processes import messages as process_messages
from tertulia.records.people import ROLES, Role
from tertulia.records.transcript.transcript import Transcript
from tertulia.records.turns.user_message import UserMessage
from tertulia.store import Store

_LISTED = 10
_NAME_LENGTH = 32
_RETRY_WINDOW = 2000  # newest messages in which /retry, /undo, /redo and /last look

# Mistakes of the person, which are shown to them. Other errors go only into the log, because their
# messages may name files.
_USER_ERRORS = (AccessDenied, ConfigError, Duplicate, IllegalMove, NotFound)


class CommandContext(NamedTuple):
    """The store, the chat and the person that a command runs for."""

    store: Store
    source: Source
    settings: GatewaySettings
    role: Role
    agents: AgentTable | None = None

    @property
    def key(self) -> str:
        return self.store.sessions.conversation(self.source)

    def session(self) -> Session:
        """Return the current session to read it; raise `IllegalMove` if there is none."""
        session = self.store.sessions.current(self.key)
        if session is None:
            raise IllegalMove("There is no conversation now.", hint="Write a message to begin one.")
        return session

    def live_session(self) -> Session:
        """Return the current session to change it; raise `IllegalMove` if it has expired."""
        session = self.session()
        if self.store.sessions.expire(session.id) is not None:
            raise IllegalMove(
                "The last conversation has ended.", hint="To continue it, send /resume 1."
            )
        return session

    @property
    def actor(self) -> str:
        """Who sent the command, as the events of a session record it."""
        return keys.person_of(self.source) or self.source.platform

    def transcript(self, session: Session) -> Transcript:
        """Return the transcript of a session, to be changed by who sent the command."""
        return self.store.transcript(session.id, by=self.actor)

    def decline_waiting(self, reason: str) -> str:
        """Decline the calls that wait in the current session; return a sentence about them."""
        session = self.store.sessions.current(self.key)
        declined = [] if session is None else self.store.approvals.decline(session.id, reason)
        return approval_commands.describe_declined(declined)

    def choice(self) -> agent_commands.Choice:
        """Return what /agent and /model need; raise `IllegalMove` if the agents are unknown."""
        if self.agents is None:
            raise IllegalMove("The agents are not known here.", hint="Ask in the chat.")
        return agent_commands.Choice(self.store, self.source, self.role, self.actor, self.agents)

    def require(self, role: Role) -> None:
        """Raise `AccessDenied` if the person has a lower role."""
        if ROLES.index(self.role) > ROLES.index(role):
            raise AccessDenied(f"This needs the role {role}.", hint="Ask the owner.", role=role)


class CommandReply(NamedTuple):
    """The reply to the person, about a session; `again` is a message to answer once more."""

    text: str
    again: UserMessage | None = None
    about: str | None = None


Run = Callable[[CommandContext, str], CommandReply]


class Command(NamedTuple):
    """One row of the command table.

    `is_immediate`: it only reads, or changes what later messages find when they come in, so it does
    not wait for a turn to end. `is_repeatable`: running
    it twice has the same effect as once, so it is run again if a node died while running it.
    """

    name: str
    usage: str
    description: str
    run: Run
    role: Role = "guest"
    aliases: tuple[str, ...] = ()
    is_immediate: bool = False
    is_repeatable: bool = False


class ParsedCommand(NamedTuple):
    """A command as a person wrote it; `command` is None if the name is unknown."""

    name: str
    argument: str
    command: Command | None

    @property
    def is_immediate(self) -> bool:
        return self.command is None or self.command.is_immediate

    @property
    def is_repeatable(self) -> bool:
        return self.command is None or self.command.is_repeatable


def parse(text: str | None) -> ParsedCommand | None:
    """Return the command in a text, or None if it is not one. `/new@my_bot` is `/new`."""
    if text is None or not text.startswith("/") or len(text) < 2 or not text[1].isalpha():
        return None
    head, _, argument = (text[1:] + " ").replace("\n", " ").replace("\t", " ").partition(" ")
    name = head.split("@")[0].lower()
    if "/" in name or len(name) > _NAME_LENGTH:
        return None  # a path, not a command
    return ParsedCommand(name, argument.strip(), _BY_NAME.get(name))


def run(context: CommandContext, command: ParsedCommand) -> CommandReply:
    """Run a command if the role of the person allows it, and return the reply."""
    if command.command is None:
        return CommandReply(_unknown(command.name))
    try:
        context.require(command.command.role)
        reply = command.command.run(context, command.argument)
    except _USER_ERRORS as problem:
        reply = CommandReply(_error_text(problem))
    session = context.store.sessions.current(context.key)
    return reply if session is None else reply._replace(about=session.id)


def menu() -> tuple[MenuEntry, ...]:
    """Return the commands for the menus of platforms."""
    return tuple(MenuEntry(command.name, command.description) for command in TABLE)


# -- conversations


def _new(context: CommandContext, argument: str) -> CommandReply:
    current = context.store.sessions.current(context.key)
    if current is None or _is_untouched(context, current):
        return CommandReply("This is already a new conversation.")
    declined = context.decline_waiting("the person began a new conversation")
    context.store.sessions.reset(context.key, by=context.actor)
    text = f"I have started a new conversation. To go back, send /resume 1.{declined}"
    return CommandReply(text)


def _sessions(context: CommandContext, argument: str) -> CommandReply:
    current = context.store.sessions.current(context.key)
    earlier = _earlier(context)
    if current is None and not earlier:
        return CommandReply("There are no conversations yet.")
    lines = ["Your conversations here, newest first:"]
    if current is not None:
        lines.append(f"now: {_line(context, current)}")
    lines += [f"{number}. {_line(context, session)}" for number, session in enumerate(earlier, 1)]
    if earlier:
        lines.append("To continue one of them, send /resume N.")
    return CommandReply("\n".join(lines))


def _resume(context: CommandContext, argument: str) -> CommandReply:
    if not argument:
        return _sessions(context, "")
    session = _require_session(context, argument)
    declined = context.decline_waiting("the person went on with another conversation")
    context.store.sessions.switch(context.key, session.id, by=context.actor)
    text = f"Continuing with {_name(session)}.{declined}"
    if context.source.is_terminal:  # elsewhere the chat app itself shows what was said
        messages = context.store.transcript(session.id).entries(newest=_RETRY_WINDOW)
        text += command_replies.recall_text(messages)
    return CommandReply(text)


def _title(context: CommandContext, argument: str) -> CommandReply:
    session = context.live_session() if argument else context.session()
    if not argument:
        return CommandReply(_title_text(context, session))
    renamed = context.store.sessions.rename(session.id, argument, by=context.actor)
    return CommandReply(f"This conversation is now called {_name(renamed)}.")


def _fork(context: CommandContext, argument: str) -> CommandReply:
    if argument:
        raise IllegalMove(
            "/fork takes nothing after it: it copies the whole conversation.",
            hint="To leave out the last exchange, send /fork and then /undo.",
        )
    session = context.live_session()
    declined = context.decline_waiting("the person made a copy of the conversation")
    context.store.sessions.fork(session.id, by=context.actor)
    text = "This is now a copy of the conversation. For the original, send /resume 1."
    return CommandReply(text + declined)


def _forget(context: CommandContext, argument: str) -> CommandReply:
    session = context.session()
    if context.store.sessions.is_shared(context.source):
        context.require("owner")  # it contains the messages of others, too
    if argument != "yes":
        return CommandReply(
            "This deletes the conversation and everything in it; it cannot be undone."
            " To confirm, send: /forget yes"
        )
    context.store.sessions.delete(session.id)
    return CommandReply("The conversation is deleted.")


# -- messages


def _undo(context: CommandContext, argument: str) -> CommandReply:
    turns = _number(argument or "1")
    session = context.live_session()
    declined = context.decline_waiting("the person took it back")
    transcript = context.transcript(session)
    before = transcript.entries(newest=_RETRY_WINDOW)
    undone = transcript.undo(turns)
    if not undone:
        return CommandReply("There is nothing to undo.")
    after = transcript.entries(newest=_RETRY_WINDOW)
    words = command_replies.first_words_of_difference(before, after)
    them = "it" if undone == 1 else "them"
    return CommandReply(
        f"I took back {_count(undone, 'exchange')}{words}. To restore {them}, send /redo.{declined}"
    )


def _redo(context: CommandContext, argument: str) -> CommandReply:
    transcript = context.transcript(context.live_session())
    before = transcript.entries(newest=_RETRY_WINDOW)
    if not transcript.redo():
        return CommandReply("There is nothing to restore.")
    after = transcript.entries(newest=_RETRY_WINDOW)
    return CommandReply(f"Restored{command_replies.first_words_of_difference(after, before)}.")


def _retry(context: CommandContext, argument: str) -> CommandReply:
    transcript = context.transcript(context.live_session())
    again = message_to_repeat(transcript, context.source)
    if again is None:
        return CommandReply("There is no message to answer again.")
    declined = context.decline_waiting("the person wants another answer").strip()
    transcript.undo(1)
    return CommandReply(declined, again=again)


def message_to_repeat(transcript: Transcript, source: Source) -> UserMessage | None:
    """Return the last message of a session, to be answered again; None if there is none.

    Raise IllegalMove if somebody else than `source` wrote it.
    """
    newest = transcript.entries(newest=_RETRY_WINDOW)
    messages = [message for message in newest if message.role == "user" and message.kind is None]
    if not messages:
        return None
    if _is_of_another(messages[-1], source):
        # It would be answered with the tools of this person, and stored as their words.
        raise IllegalMove(
            "The last message is not yours.", hint="Only its author can have it answered again."
        )
    # All messages of the last turn: some may have been taken into it while it was in progress.
    bodies = [message.body for message in messages if message.turn == messages[-1].turn]
    text = "\n".join(part for body in bodies if (part := text_of(body)))
    media = [attachment for body in bodies for attachment in body.get("media") or ()]
    return UserMessage(source, text, None, media)


def _is_of_another(message: Message, source: Source) -> bool:
    """Return whether somebody else wrote a message; only shared chats store the author."""
    if message.author is None:
        return False
    author = from_json(message.author)
    return (author.get("platform"), author["id"]) != (source.platform, source.participant)


def _history(context: CommandContext, argument: str) -> CommandReply:
    session = context.session()
    count = min(_number(argument or "10"), 50)
    messages = context.store.transcript(session.id).entries(newest=count)
    text = command_replies.history_text(messages, context.store.context.zone, context.store.now())
    return CommandReply(text)


def _last(context: CommandContext, argument: str) -> CommandReply:
    messages = context.store.transcript(context.session().id).entries(newest=_RETRY_WINDOW)
    text = command_replies.last_exchange_text(
        messages, context.store.context.zone, context.store.now()
    )
    return CommandReply(text)


def _compress(context: CommandContext, argument: str) -> CommandReply:
    transcript = context.transcript(context.live_session())
    if argument == "undo":
        return _undo_compaction(context)
    compaction = transcript.compact(keep_turns=context.settings.compact_turns)
    if compaction is None:
        return CommandReply("There is nothing to summarise yet.")
    return CommandReply(
        f"I summarised {_count(compaction.messages, 'message')} before the last exchanges."
        " To get the full text back, send /compress undo."
    )


def _undo_compaction(context: CommandContext) -> CommandReply:
    """Undo a compaction, if it is the newest revision and no message was added since."""
    transcript = context.transcript(context.session())
    revisions = {revision.number: revision for revision in transcript.revisions()}
    newest = next(revision for revision in revisions.values() if revision.is_current)
    if newest.made_by != "compaction" or newest.made_from is None:
        return CommandReply("There is no summary to undo.")
    if newest.messages > revisions[newest.made_from].messages:
        return CommandReply(
            "The summary can no longer be undone, because there are newer messages."
            " /history shows it."
        )
    transcript.restore(newest.made_from)
    return CommandReply("The full text is back.")


def _search(context: CommandContext, argument: str) -> CommandReply:
    if not argument:
        return CommandReply("Please add what to search for: /search WORDS")
    hits = context.store.for_person(context.source).search(argument, limit=_LISTED).items
    sessions = {hit.session_id: context.store.sessions.get(hit.session_id) for hit in hits}
    zone, now = context.store.context.zone, context.store.now()
    return CommandReply(command_replies.search_text(hits, sessions, argument, zone, now))


def _export(context: CommandContext, argument: str) -> CommandReply:
    from tertulia.gateway import export_command

    return CommandReply(
        export_command.run_export(context.store, context.source, context.session(), argument)
    )


# -- the state of the gateway


def _status(context: CommandContext, argument: str) -> CommandReply:
    session = context.store.sessions.current(context.key)
    if session is None:
        return CommandReply("There is no conversation yet.")
    waiting = context.store.inbox.find(key=context.key, state="waiting", limit=50).items
    is_busy = bool(context.store.inbox.find(key=context.key, state="taken", limit=1).items)
    lines = [
        f"Conversation: {_name(session)}",
        f"Since: {session.created_at:%Y-%m-%d %H:%M} UTC, last message {_ago(context, session)}",
        f"Messages: {context.store.transcript(session.id).count()}",
        f"Tokens: {session.usage.total:,}{_cost(session)}",
        f"Now: {'answering' if is_busy else 'waiting for you'}, {len(waiting)} in the queue",
    ]
    return CommandReply("\n".join(lines))


def _usage(context: CommandContext, argument: str) -> CommandReply:
    session = context.session()
    usage = session.usage
    return CommandReply(
        f"This conversation: {usage.input:,} tokens in, {usage.output:,} out,"
        f" {usage.cache_read:,} from the cache{_cost(session)}.{_budgets_left(context, session)}"
    )


def _budgets_left(context: CommandContext, session: Session) -> str:
    if not context.store.settings.budgets:
        return ""
    lines = context.store.usage.budgets_left(session.id, context.source)
    return "".join(f"\nBudget for {line}." for line in lines)


def _policy(context: CommandContext, argument: str) -> CommandReply:
    forecast = context.store.sessions.forecast(context.session().id)
    return CommandReply(command_replies.policy_text(forecast, context.store.now()))


def _stop(context: CommandContext, argument: str) -> CommandReply:
    # If a turn is in progress, `interrupts.py` handles /stop, and this is not called.
    declined = context.decline_waiting("the person sent /stop")
    return CommandReply(f"Stopped.{declined}" if declined else "There is nothing to stop.")


def _approve(context: CommandContext, argument: str) -> CommandReply:
    return CommandReply(
        approval_commands.run_approve(context.store, context.source, context.role, argument)
    )


def _deny(context: CommandContext, argument: str) -> CommandReply:
    return CommandReply(
        approval_commands.run_deny(context.store, context.source, context.role, argument)
    )


def _approvals(context: CommandContext, argument: str) -> CommandReply:
    return CommandReply(
        approval_commands.run_approvals(context.store, context.source, context.role, argument)
    )


def _agent(context: CommandContext, argument: str) -> CommandReply:
    return CommandReply(agent_commands.run_agent(context.choice(), argument))


def _model(context: CommandContext, argument: str) -> CommandReply:
    return CommandReply(agent_commands.run_model(context.choice(), argument))


def _queue(context: CommandContext, argument: str) -> CommandReply:
    items = context.store.inbox.find(key=context.key, state="waiting", limit=20).items
    waiting = [item for item in items if item.resumes is None]
    if not waiting:
        return CommandReply("Nothing is waiting.")
    return CommandReply(
        "\n".join(
            f"{n}. {clean_for_prompt(item.text or '', 80)}" for n, item in enumerate(waiting, 1)
        )
    )


def _schedule(context: CommandContext, argument: str) -> CommandReply:
    return CommandReply(
        schedule_tool.run_command(context.store, context.source, context.role, argument)
    )


def _memory(context: CommandContext, argument: str) -> CommandReply:
    if not context.settings.memory:
        return CommandReply("The memory is switched off here.")
    return CommandReply(memory_tool.run_command(context.store, context.source, argument))


def _ps(context: CommandContext, argument: str) -> CommandReply:
    programs = context.store.processes.find(key=context.key)
    lines = map(process_messages.format_line, programs)
    return CommandReply("\n".join(lines) or "No programs are running.")


def _whoami(context: CommandContext, argument: str) -> CommandReply:
    source = context.source
    name = source.user_name or source.user_id or ""
    if source.is_terminal:
        return CommandReply(f"You are the {context.role}, at the terminal.")
    return CommandReply(
        f"You are {clean_for_prompt(name, 80) or 'somebody without a name'}, {context.role}."
    )


def _link(context: CommandContext, argument: str) -> CommandReply:
    return CommandReply(people_commands.run_link(context.store, context.source, argument))


def _pair(context: CommandContext, argument: str) -> CommandReply:
    return CommandReply(people_commands.run_pair(context.store, context.source, argument))


def _help(context: CommandContext, argument: str) -> CommandReply:
    allowed = [c for c in TABLE if ROLES.index(context.role) <= ROLES.index(c.role)]
    command = _BY_NAME.get(argument.strip().lstrip("/").lower())
    if command is not None and command in allowed:
        return CommandReply(f"{command.usage}: {command.description}.")
    rows = [(command.name, command.usage, command.description) for command in allowed]
    at_terminal = command_replies.is_terminal(context.source)
    return CommandReply(command_replies.help_text(rows, is_terminal=at_terminal))


# -- parts of replies


def _line(context: CommandContext, session: Session) -> str:
    state = "" if session.ended_at is None else f", ended ({session.end_reason})"
    suggestion = None if session.title else context.store.sessions.suggest_title(session.id)
    about = f" ({clean_for_prompt(suggestion, 60)})" if suggestion else ""
    return f"{_name(session)}{about}, {_ago(context, session)}{state}"


def _name(session: Session) -> str:
    return f'"{clean_for_prompt(session.title, 60)}"' if session.title else session.id


def _title_text(context: CommandContext, session: Session) -> str:
    if session.title:
        return f"This conversation is called {_name(session)}."
    title = clean_for_prompt(context.store.sessions.suggest_title(session.id) or "NAME", 100)
    return f"This conversation has no title yet. To set one, send: /title {title}"


def _is_untouched(context: CommandContext, session: Session) -> bool:
    """Return whether the session never had a message, not even an undone one, nor a title."""
    transcript = context.store.transcript(session.id)
    is_empty = not transcript.count() and len(transcript.revisions()) < 2
    return is_empty and session.title is None


def _unknown(name: str) -> str:
    near = difflib.get_close_matches(name, _BY_NAME, n=1)
    suggestion = f" Did you mean /{near[0]}?" if near else ""
    return (
        f"There is no command /{clean_for_prompt(name, 32)}.{suggestion} Send /help for the list."
    )


def _ago(context: CommandContext, session: Session) -> str:
    minutes = int((context.store.now() - session.updated_at).total_seconds() // 60)
    if minutes < 1:
        return "just now"
    if minutes < 120:
        return f"{minutes} min ago"
    hours = minutes // 60
    return f"{hours} h ago" if hours < 48 else f"{hours // 24} days ago"


def _cost(session: Session) -> str:
    usage = session.usage
    if usage.cost_status == "included":
        return ", nothing to pay"
    is_unknown = usage.cost_status == "unknown" and not usage.cost_usd
    if usage.cost_usd is None or is_unknown:
        return ", cost unknown" if usage.total else ""
    mark = {"actual": "", "unknown": "at least "}.get(usage.cost_status or "", "about ")
    return f", {mark}{format.format_dollars(usage.cost_usd)}"


def _count(number: int, thing: str) -> str:
    return f"1 {thing}" if number == 1 else f"{number} {thing}s"


def _error_text(problem: Error) -> str:
    return f"{problem.message} {problem.hint or ''}".strip()


def _number(argument: str) -> int:
    if not argument.isdecimal() or len(argument) > 4 or not 1 <= int(argument) <= 1000:
        raise IllegalMove(f"{clean_for_prompt(argument, 20)!r} is not a number from 1 to 1000.")
    return int(argument)


def _earlier(context: CommandContext, limit: int = _LISTED) -> list[Session]:
    """Return the ended sessions of this conversation, newest first: those /resume accepts."""
    visible = context.store.for_person(context.source)
    return list(visible.find(key=context.key, state="ended", limit=limit).items)


def _require_session(context: CommandContext, argument: str) -> Session:
    """Return a session by its number, its id, or a part of its title; raise `IllegalMove`."""
    if argument.isdecimal() and len(argument) < 3:
        sessions = _earlier(context)
        if not 1 <= int(argument) <= len(sessions):
            raise IllegalMove(
                f"There is no conversation {int(argument)}.", hint="/sessions lists them."
            )
        return sessions[int(argument) - 1]
    exact = context.store.for_person(context.source).get(argument)
    if exact is not None and exact.key == context.key:
        return exact
    matching = command_replies.match_title(_earlier(context, 1000), argument)
    if len(matching) == 1:
        return matching[0]
    if matching:
        names = ", ".join(map(_name, matching[:5]))
        raise IllegalMove(
            f"{len(matching)} conversations have {clean_for_prompt(argument, 60)!r} in their title:"
            f" {names}.",
            hint="Write more of the title.",
        )
    current = context.store.sessions.current(context.key)
    if current is not None and command_replies.match_title([current], argument):
        raise IllegalMove(f"You are in {_name(current)} already.", hint="/sessions lists others.")
    raise IllegalMove(
        f"There is no conversation {clean_for_prompt(argument, 60)!r}.",
        hint="/sessions lists them.",
    )


TABLE: tuple[Command, ...] = (
    Command("new", "/new", "start a new conversation", _new, aliases=("reset",)),
    Command("resume", "/resume [N|TITLE]", "continue an earlier conversation", _resume),
    Command("sessions", "/sessions", "list your conversations", _sessions, is_immediate=True),
    Command("title", "/title [NAME]", "show or set the title", _title, is_repeatable=True),
    Command("retry", "/retry", "answer the last message again", _retry),
    Command("undo", "/undo [N]", "take back the last exchanges", _undo),
    Command("redo", "/redo", "restore what /undo took back", _redo),
    Command("compress", "/compress [undo]", "summarise the older messages", _compress),
    Command("fork", "/fork", "continue in a copy of this conversation", _fork),
    Command("history", "/history [N]", "show the last messages", _history, is_repeatable=True),
    Command("last", "/last", "show the last question and its whole answer", _last,
            is_repeatable=True),
    Command("search", "/search WORDS", "search your messages", _search, is_immediate=True),
    Command("export", "/export [FILE]",
            "show this conversation; in the terminal, write it to a file",
            _export, is_repeatable=True),
    Command("forget", "/forget", "delete this conversation", _forget, is_repeatable=True),
    Command("usage", "/usage", "show tokens and cost", _usage, is_immediate=True),
    Command("status", "/status", "show the state of this conversation", _status, is_immediate=True),
    Command("stop", "/stop", "stop the current answer", _stop, is_repeatable=True),
    Command("approve", "/approve CODE [once|session|always]", "let a tool run", _approve,
            is_repeatable=True),
    Command("deny", "/deny CODE [REASON]", "do not let a tool run", _deny, is_repeatable=True),
    Command("approvals", "/approvals [revoke N]", "list what waits for an approval or has one",
            _approvals, is_repeatable=True),
    Command("queue", "/queue", "list messages that wait for an answer", _queue, is_immediate=True),
    Command("ps", "/ps", "list background programs", _ps, is_immediate=True),
    Command("policy", "/policy", "show when this conversation ends by itself", _policy,
            is_immediate=True),
    Command("schedule", "/schedule [add WHEN: TASK|pause N|resume N|remove N|run N]",
            "plan tasks for later", _schedule, role=schedule_tool.ROLE),
    Command("memory", "/memory [add TEXT|edit N TEXT|forget N|accept N|on|off]",
            "show and change what I remember of you", _memory, role=memory_tool.ROLE),
    Command("agent", "/agent [NAME]", "show or choose who answers in this chat", _agent,
            role="member", is_immediate=True),
    Command("model", "/model [NAME]", "show or choose the model of this conversation", _model,
            role="member", is_repeatable=True),
    Command("link", "/link [CODE|confirm|off]", "share one conversation between two chats", _link),
    Command("pair", "/pair [CODE|refuse PERSON]", "let somebody write to me", _pair, role="owner"),
    Command("whoami", "/whoami", "show your name and role", _whoami, is_immediate=True),
    Command("help", "/help [COMMAND]", "list the commands", _help, aliases=("start",),
            is_immediate=True),
)  # fmt: skip

_BY_NAME = {name: command for command in TABLE for name in (command.name, *command.aliases)}

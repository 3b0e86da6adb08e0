"""Commands: a table, the same on every platform.

A command is a function of the place it is said in and of what follows its name; what it returns is
said to the person. Every read goes through `store.for_person`, so that nobody sees another's.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from typing import NamedTuple

from tertulia.core.message import text_of
from tertulia.core.session import Session
from tertulia.core.source import Source
from tertulia.core.text import format
from tertulia.core.text.prompt_safe import plain
from tertulia.errors import (
    AccessDenied,
    ConfigError,
    Duplicate,
    Error,
    IllegalMove,
    NotFound,
)
from tertulia.gateway import schedule_tool
from tertulia.gateway.settings import GatewaySettings
from tertulia.platforms.base import MenuEntry
from tertulia.processes import messages as process_words
from tertulia.records.people import ROLES, Role
from tertulia.records.turns.user_message import UserMessage
from tertulia.store import Store

_LISTED = 10
_NAME_LENGTH = 32
_LOOKED_BACK = 2000  # messages, for the last thing that was said

# What is wrong with what a person asked. Anything else is for the logs, and may name files.
_MISTAKES = (AccessDenied, ConfigError, Duplicate, IllegalMove, NotFound)


class CommandContext(NamedTuple):
    """Where a command is said, and by whom."""

    store: Store
    source: Source
    rules: GatewaySettings
    role: Role

    @property
    def key(self) -> str:
        return self.store.sessions.conversation(self.source)

    def session(self) -> Session:
        """The current session, to look at; a command does not begin one."""
        found = self.store.sessions.current(self.key)
        if found is None:
            raise IllegalMove("There is no conversation now.", hint="Just write something.")
        return found

    def live_session(self) -> Session:
        """The same, to change it: one that is over by its policy has ended, whoever asks."""
        found = self.session()
        if self.store.sessions.expire(found.id) is not None:
            raise IllegalMove("The last conversation is over.", hint="To go on with it: /resume 1.")
        return found

    def require(self, role: Role) -> None:
        if ROLES.index(self.role) > ROLES.index(role):
            raise AccessDenied(f"This needs the role {role}.", hint="Ask the owner.", role=role)


class CommandReply(NamedTuple):
    """What is said to the person, about a session; `again` is to be answered anew."""

    text: str
    again: UserMessage | None = None
    about: str | None = None


Act = Callable[[CommandContext, str], CommandReply]


class Command(NamedTuple):
    """One line of the table.

    `is_immediate`: it only looks, so it does not wait for a turn to end. `is_repeatable`: twice
    does what once does, so it may be run again where a node was lost in the middle of it.
    """

    name: str
    usage: str
    description: str
    act: Act
    role: Role = "guest"
    aliases: tuple[str, ...] = ()
    is_immediate: bool = False
    is_repeatable: bool = False


class ParsedCommand(NamedTuple):
    """A command as somebody said it."""

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
    """The command that a text is; None if it is none. `/new@my_bot` is `/new`."""
    if text is None or not text.startswith("/") or len(text) < 2 or not text[1].isalpha():
        return None
    head, _, argument = (text[1:] + " ").replace("\n", " ").replace("\t", " ").partition(" ")
    name = head.split("@")[0].lower()
    if "/" in name or len(name) > _NAME_LENGTH:
        return None  # a path, not a command
    return ParsedCommand(name, argument.strip(), _BY_NAME.get(name))


def run(place: CommandContext, asked: ParsedCommand) -> CommandReply:
    """Do what was asked, as far as whoever asked may."""
    if asked.command is None:
        return CommandReply(_unknown(asked.name))
    try:
        place.require(asked.command.role)
        reply = asked.command.act(place, asked.argument)
    except _MISTAKES as problem:
        reply = CommandReply(_told(problem))
    session = place.store.sessions.current(place.key)
    return reply if session is None else reply._replace(about=session.id)


def menu() -> tuple[MenuEntry, ...]:
    """The table for the menus of platforms."""
    return tuple(MenuEntry(command.name, command.description) for command in TABLE)


# -- conversations


def _new(place: CommandContext, argument: str) -> CommandReply:
    current = place.store.sessions.current(place.key)
    if current is None or _is_untouched(place, current):
        return CommandReply("This is a new conversation already.")
    place.store.sessions.reset(place.key)
    return CommandReply("A new conversation begins. To go back: /resume 1.")


def _sessions(place: CommandContext, argument: str) -> CommandReply:
    current = place.store.sessions.current(place.key)
    earlier = _earlier(place)
    if current is None and not earlier:
        return CommandReply("There are no conversations yet.")
    lines = ["Your conversations here, the newest first:"]
    if current is not None:
        lines.append(f"now: {_line(place, current)}")
    lines += [f"{number}. {_line(place, one)}" for number, one in enumerate(earlier, 1)]
    return CommandReply("\n".join([*lines, "To go on with one: /resume N."] if earlier else lines))


def _resume(place: CommandContext, argument: str) -> CommandReply:
    if not argument:
        return _sessions(place, "")
    session = _chosen(place, argument)
    place.store.sessions.switch(place.key, session.id)
    return CommandReply(f"We go on with {_name(session)}.")


def _title(place: CommandContext, argument: str) -> CommandReply:
    session = place.live_session() if argument else place.session()
    if not argument:
        return CommandReply(_called(place, session))
    renamed = place.store.sessions.rename(session.id, argument)
    return CommandReply(f"This conversation is now called {_name(renamed)}.")


def _fork(place: CommandContext, argument: str) -> CommandReply:
    place.store.sessions.fork(place.live_session().id)
    return CommandReply("This is a copy with the same past. The original: /resume 1.")


def _forget(place: CommandContext, argument: str) -> CommandReply:
    session = place.session()
    if place.store.sessions.is_shared(place.source):
        place.require("owner")  # it is what others have said, too
    if argument != "yes":
        return CommandReply(
            "This deletes the conversation for good, with everything in it. To do so: /forget yes"
        )
    place.store.sessions.delete(session.id)
    return CommandReply("The conversation is deleted.")


# -- what was said


def _undo(place: CommandContext, argument: str) -> CommandReply:
    turns = _number(argument or "1")
    undone = place.store.transcript(place.live_session().id).undo(turns)
    if not undone:
        return CommandReply("There is nothing to take back.")
    it = "it" if undone == 1 else "them"
    return CommandReply(f"{_count(undone, 'exchange')} taken back. /redo brings {it} back.")


def _redo(place: CommandContext, argument: str) -> CommandReply:
    if place.store.transcript(place.live_session().id).redo():
        return CommandReply("It is back.")
    return CommandReply("There is nothing to bring back.")


def _retry(place: CommandContext, argument: str) -> CommandReply:
    transcript = place.store.transcript(place.live_session().id)
    newest = transcript.entries(newest=_LOOKED_BACK)
    said = [message for message in newest if message.role == "user" and message.kind is None]
    if not said:
        return CommandReply("There is nothing to answer again.")
    # All that was said in that turn: some of it may have come while it was under way.
    last = [message.body for message in said if message.turn == said[-1].turn]
    text = "\n".join(found for body in last if (found := text_of(body)))
    media = [one for body in last for one in body.get("media") or ()]
    transcript.undo(1)
    return CommandReply("", again=UserMessage(place.source, text, None, media))


def _history(place: CommandContext, argument: str) -> CommandReply:
    session = place.session()
    count = min(_number(argument or "10"), 50)
    told = place.store.transcript(session.id).history(max_messages=count, format="text")
    lines = [f"{message['role']}: {message['content']}" for message in told]
    return CommandReply("\n".join(lines) or "Nothing was said yet.")


def _compress(place: CommandContext, argument: str) -> CommandReply:
    transcript = place.store.transcript(place.live_session().id)
    if argument == "undo":
        return _word_by_word(place)
    done = transcript.compact(keep_turns=place.rules.compact_turns)
    if done is None:
        return CommandReply("There is nothing to sum up yet.")
    told = f"{_count(done.messages, 'message')} before the last exchanges are summed up now."
    return CommandReply(f"{told} To see them word by word again: /compress undo.")


def _word_by_word(place: CommandContext) -> CommandReply:
    """Undo a compaction, as long as it is the last thing that happened to the transcript."""
    transcript = place.store.transcript(place.session().id)
    revisions = {one.number: one for one in transcript.revisions()}
    newest = next(one for one in revisions.values() if one.is_current)
    if newest.made_by != "compaction" or newest.made_from is None:
        return CommandReply("Nothing is summed up that could be undone.")
    if newest.messages > revisions[newest.made_from].messages:
        return CommandReply(
            "More was said since it was summed up, so it stays so. /history shows it."
        )
    transcript.restore(newest.made_from)
    return CommandReply("What was said is there word by word again.")


def _search(place: CommandContext, argument: str) -> CommandReply:
    if not argument:
        return CommandReply("What do you look for? /search WORDS")
    found = place.store.for_person(place.source).search(argument, limit=_LISTED).items
    if not found:
        return CommandReply("Nothing was found.")
    return CommandReply("\n".join(f"{hit.at:%Y-%m-%d %H:%M} UTC  {hit.snippet}" for hit in found))


def _export(place: CommandContext, argument: str) -> CommandReply:
    from tertulia.transfer.exporters.export import document

    return CommandReply("\n".join(document(place.store, place.session().id, "markdown")))


# -- the house


def _status(place: CommandContext, argument: str) -> CommandReply:
    session = place.store.sessions.current(place.key)
    if session is None:
        return CommandReply("There is no conversation yet.")
    waiting = place.store.inbox.find(key=place.key, state="waiting", limit=50).items
    is_busy = bool(place.store.inbox.find(key=place.key, state="taken", limit=1).items)
    lines = [
        f"Conversation: {_name(session)}",
        f"Since: {session.created_at:%Y-%m-%d %H:%M} UTC, last message {_ago(place, session)}",
        f"Messages: {place.store.transcript(session.id).count()}",
        f"Tokens: {session.usage.total:,}{_cost(session)}",
        f"Now: {'answering' if is_busy else 'waiting for you'}, {len(waiting)} in the queue",
    ]
    return CommandReply("\n".join(lines))


def _usage(place: CommandContext, argument: str) -> CommandReply:
    session = place.session()
    used = session.usage
    return CommandReply(
        f"This conversation: {used.input:,} tokens in, {used.output:,} out,"
        f" {used.cache_read:,} from the cache{_cost(session)}."
    )


def _policy(place: CommandContext, argument: str) -> CommandReply:
    return CommandReply(place.store.sessions.explain(place.session().id).splitlines()[-1])


def _stop(place: CommandContext, argument: str) -> CommandReply:
    # Where a turn is under way it is heard at once (`meanwhile.py`), and does not come here.
    return CommandReply("There is nothing to stop.")


def _queue(place: CommandContext, argument: str) -> CommandReply:
    waiting = place.store.inbox.find(key=place.key, state="waiting", limit=20).items
    if not waiting:
        return CommandReply("Nothing is waiting.")
    return CommandReply(
        "\n".join(f"{n}. {plain(a.text or '', 80)}" for n, a in enumerate(waiting, 1))
    )


def _schedule(place: CommandContext, argument: str) -> CommandReply:
    return CommandReply(schedule_tool.said(place.store, place.source, place.role, argument))


def _ps(place: CommandContext, argument: str) -> CommandReply:
    found = place.store.processes.find(key=place.key)
    return CommandReply("\n".join(map(process_words.line, found)) or "No programs are running.")


def _whoami(place: CommandContext, argument: str) -> CommandReply:
    source = place.source
    name = source.user_name or source.user_id or ""
    if source == Source.local():
        name = f"at the {source.description}"
    return CommandReply(f"You are {plain(name, 80) or 'somebody without a name'}, {place.role}.")


def _link(place: CommandContext, argument: str) -> CommandReply:
    people = place.store.people
    if argument == "off":
        done = people.unlink(place.source)
        return CommandReply(
            "This chat is on its own again." if done else "This chat is not linked."
        )
    if argument:
        people.accept_link(place.source, argument)
        return CommandReply("This chat now shares one conversation with the other one.")
    code = people.offer_link(place.source)
    return CommandReply(f"In your other chat, say: /link {code}\nThe code is good for one hour.")


def _pair(place: CommandContext, argument: str) -> CommandReply:
    people = place.store.people
    if argument:
        person = people.approve(argument, by=people.person_of(place.source) or "owner")
        return CommandReply(f"{plain(person.name or person.user_id, 80)} may write to me now.")
    waiting = people.waiting()
    if not waiting:
        return CommandReply("Nobody is waiting to be let in.")
    lines = [f"{plain(one.person, 80)}, asked {one.asked_at:%H:%M} UTC" for one in waiting]
    return CommandReply("\n".join(["Waiting to be let in (/pair CODE):", *lines]))


def _help(place: CommandContext, argument: str) -> CommandReply:
    allowed = [c for c in TABLE if ROLES.index(place.role) <= ROLES.index(c.role)]
    return CommandReply("\n".join(f"{command.usage}  {command.description}" for command in allowed))


# -- words


def _line(place: CommandContext, session: Session) -> str:
    state = "" if session.ended_at is None else f", ended ({session.end_reason})"
    words = None if session.title else place.store.sessions.suggest_title(session.id)
    about = f" ({plain(words, 60)})" if words else ""
    return f"{_name(session)}{about}, {_ago(place, session)}{state}"


def _name(session: Session) -> str:
    return f'"{plain(session.title, 60)}"' if session.title else session.id


def _called(place: CommandContext, session: Session) -> str:
    if session.title:
        return f"This conversation is called {_name(session)}."
    title = plain(place.store.sessions.suggest_title(session.id) or "NAME", 100)
    return f"This conversation has no title yet. To give it one: /title {title}"


def _is_untouched(place: CommandContext, session: Session) -> bool:
    """Whether nothing was ever said in it, not even taken back, and nobody gave it a name."""
    transcript = place.store.transcript(session.id)
    is_empty = not transcript.count() and len(transcript.revisions()) < 2
    return is_empty and session.title is None


def _unknown(name: str) -> str:
    near = difflib.get_close_matches(name, _BY_NAME, n=1)
    meant = f" Did you mean /{near[0]}?" if near else ""
    return f"There is no command /{plain(name, 32)}.{meant} Say /help for the list."


def _ago(place: CommandContext, session: Session) -> str:
    minutes = int((place.store.now() - session.updated_at).total_seconds() // 60)
    if minutes < 1:
        return "just now"
    if minutes < 120:
        return f"{minutes} min ago"
    hours = minutes // 60
    return f"{hours} h ago" if hours < 48 else f"{hours // 24} days ago"


def _cost(session: Session) -> str:
    used = session.usage
    if used.cost_status == "included":
        return ", cost included"
    if used.cost_usd is None:
        return ", cost unknown" if used.total else ""
    mark = {"actual": "", "unknown": "at least "}.get(used.cost_status or "", "about ")
    return f", {mark}{format.dollars(used.cost_usd)}"


def _count(number: int, thing: str) -> str:
    return f"1 {thing}" if number == 1 else f"{number} {thing}s"


def _told(problem: Error) -> str:
    return f"{problem.message} {problem.hint or ''}".strip()


def _number(argument: str) -> int:
    if not argument.isdecimal() or len(argument) > 4 or not 1 <= int(argument) <= 1000:
        raise IllegalMove(f"{plain(argument, 20)!r} is no number from 1 to 1000.")
    return int(argument)


def _earlier(place: CommandContext, limit: int = _LISTED) -> list[Session]:
    """What can be resumed here: ended sessions of this conversation, the newest first."""
    visible = place.store.for_person(place.source)
    return list(visible.find(key=place.key, state="ended", limit=limit).items)


def _chosen(place: CommandContext, argument: str) -> Session:
    """By its number in the list, its id, or its title."""
    if argument.isdecimal() and len(argument) < 3:
        found = _earlier(place)
        if not 1 <= int(argument) <= len(found):
            raise IllegalMove(f"There is no conversation {int(argument)}.", hint="See /sessions.")
        return found[int(argument) - 1]
    exact = place.store.for_person(place.source).get(argument)
    if exact is not None and exact.key == place.key:
        return exact
    wanted = {argument.casefold(), argument.strip('"').casefold()}
    for session in _earlier(place, 1000):
        if session.title is not None and session.title.casefold() in wanted:
            return session
    raise IllegalMove(f"There is no conversation {plain(argument, 60)!r}.", hint="See /sessions.")


TABLE: tuple[Command, ...] = (
    Command("new", "/new", "begin a new conversation", _new, aliases=("reset",)),
    Command("resume", "/resume [N|TITLE]", "go on with an earlier one", _resume),
    Command("sessions", "/sessions", "list your conversations", _sessions, is_immediate=True),
    Command("title", "/title [NAME]", "show or set the title", _title, is_repeatable=True),
    Command("retry", "/retry", "answer the last message again", _retry),
    Command("undo", "/undo [N]", "take back the last exchanges", _undo),
    Command("redo", "/redo", "bring back what was taken back", _redo),
    Command("compress", "/compress [undo]", "sum up what was said before", _compress),
    Command("fork", "/fork", "go on in a copy with the same past", _fork),
    Command("history", "/history [N]", "show what was said", _history, is_repeatable=True),
    Command("search", "/search WORDS", "find messages", _search, is_immediate=True),
    Command("export", "/export", "this conversation as a text", _export, is_repeatable=True),
    Command("forget", "/forget", "delete this conversation", _forget, is_repeatable=True),
    Command("usage", "/usage", "tokens and cost", _usage, is_immediate=True),
    Command("status", "/status", "where we are", _status, is_immediate=True),
    Command("stop", "/stop", "stop the answer under way", _stop, is_repeatable=True),
    Command("queue", "/queue", "what waits to be answered", _queue, is_immediate=True),
    Command("ps", "/ps", "programs in the background", _ps, is_immediate=True),
    Command("policy", "/policy", "when this conversation ends by itself", _policy,
            is_immediate=True),
    Command("schedule", "/schedule [add WHEN: TASK|pause N|resume N|remove N|run N]",
            "tasks for later", _schedule, role="member"),
    Command("link", "/link [CODE|off]", "share one conversation between two chats", _link),
    Command("pair", "/pair [CODE]", "let somebody in", _pair, role="owner"),
    Command("whoami", "/whoami", "who I take you for", _whoami, is_immediate=True),
    Command("help", "/help", "this list", _help, aliases=("start",), is_immediate=True),
)  # fmt: skip

_BY_NAME = {name: command for command in TABLE for name in (command.name, *command.aliases)}

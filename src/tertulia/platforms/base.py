"""The contract of an adapter, which connects one account of a chat app to the gateway.

An adapter promises:

1.  **Accept before acknowledging.** `listen` calls `receive` with each update, and tells the
    platform "received" only after `receive` has returned. If `receive` raises, the platform is not
    told, so that it sends the update again.
2.  **The same message has the same id.** `message_id` is the platform's own id, so that a message
    that is sent twice is recognised. If the platform has no ids, the adapter derives one from data
    that does not change.
3.  **No platform data goes beyond the adapter.** The adapter turns it into a `Source` and a text;
    no other code sees the platform's JSON. Names and texts are passed on unchanged; other code
    makes them safe to show.
4.  **Updates of one chat are handed over in order**, one after the other.
5.  **`send` reports the outcome.** It returns the platform's id of the message (None if there are
    no ids) when the platform has accepted it, or raises a `PlatformError`: `RateLimited` or
    `PlatformUnavailable` if the message was certainly not accepted and may be sent again,
    `TooLarge` or `Refused` if it will never be accepted, `OutcomeUnknown` if it cannot be known,
    and `AccountProblem` if the account is refused. The adapter itself does not send again. If only
    the formatting or the reply is refused, the same text may go as plain text to the same chat and
    thread within the same call; nothing goes anywhere else.
6.  **`idempotent_seconds` is a promise**: a delivery that is sent again under the same key within
    this time arrives once.
7.  **`listen` ends when it is cancelled**, and `close` releases all resources. `listen` itself
    reconnects when a connection breaks: a connection without a sign of life for 60 s is closed
    and made anew.
8.  **`show` never fails and never waits long**: a missed update does no harm. A draft that stays
    in the chat is replaced by the answer: `show` returns its id, and calling it again for the same
    turn, also in another process, makes no second draft.
9.  **`respond` checks who calls**, if the adapter `needs_http`: requests to /platforms/NAME have
    no token of the gateway, so the adapter verifies the signature or the secret of its platform.
10. **The cursor is behind what was handed over.** `listen` begins at `self.cursor`, or, if that is
    None, with what is sent from now on. The cursor of an update says where to begin once this
    update and all before it are stored.
11. **An adapter that `listens_alone` may be cut off at any moment**: another node then listens from
    the stored cursor. Others may listen on all nodes at once, and each update reaches one of them,
    or has the same id on all.
12. **The account's trouble is not the message's.** `listen`, `send`, `fetch`, `fill_menu` and
    `identify` raise `AccountProblem` if the platform refuses the account itself, for example its
    token.
13. **`state` is true**: `listening` only while updates can arrive, `heard_at` at each sign of life.
14. **`fetch` yields the bytes of a file** that came with a message, or raises a `PlatformError`:
    `Refused` if it is gone, `TooLarge`, or `PlatformUnavailable`. It may be closed before the end.
15. **No secret leaves the adapter**: not in an error, nor a log line, nor `repr`, nor a cursor.
16. **Only people's messages are messages.** The account's own are dropped, other programs' have
    `is_bot`, edits, deletions and reactions are `Changed`. An update that is not understood is
    acknowledged and logged without its content; it does not stop those after it.
17. **A press is handed over like a message**, as `Pressed`, if the platform has buttons: with the
    person who pressed, acknowledged after `receive` has returned, and with an id of its own.
    `close_buttons` changes the message it names and takes its buttons away; it never sends
    another message, and may be called again.

The gateway, which runs the adapter, promises that only one call of `listen` runs at a time (again
after it failed; if the adapter `listens_alone`, on all nodes together), that `send` is called for
one message of a chat at a time and in order, that `fetch` is called while a turn waits for it, and
that `close` is called once, at the end. `show` is called by one task for each turn, which repeats
"typing" every `typing_seconds`, sends "draft" at most every `draft_seconds`, and ends with it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Final, Literal

import msgspec
from msgspec.structs import replace

from tertulia.core.buttons import Button
from tertulia.core.media import Media
from tertulia.core.source import Source
from tertulia.core.text.spans import Span
from tertulia.errors import ConfigError, NotFound, Refused

# Prefixes of the keys of deliveries that the gateway itself wrote, as replies to commands.
REPLY_KEY = "reply:"
COMMAND_KEY = "command:"
# Prefixes of the keys of deliveries that say why a message has no answer: the agent failed, or a
# budget is used up. A program that pipes messages in can tell them from answers.
FAILURE_KEY = "failure:"
REFUSAL_KEY = "refusal:"
NOTICE_KEY = "notice:"
# The exceptions of reading an update that does not have the form the platform describes.
MALFORMED: Final = (
    LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError,
    ConfigError,
)  # fmt: skip


class Incoming(msgspec.Struct, frozen=True, kw_only=True):
    """A message from a person.

    is_addressed   it is meant for the agent, because it is in a private chat, mentions the agent
                   or replies to it
    reply_to       the id of the message it replies to
    is_bot         it was written by another program
    group          the album it is part of: messages of one group are answered together
    cursor         where listening begins again once this message is stored
    """

    source: Source
    text: str | None
    message_id: str | None = None
    media: tuple[Media, ...] = ()
    is_addressed: bool = True
    reply_to: str | None = None
    is_bot: bool = False
    group: str | None = None
    cursor: str | None = None


class Changed(msgspec.Struct, frozen=True, kw_only=True):
    """A message was edited or deleted, or somebody reacted to it.

    `text` is the whole new text of an edited message, or the reaction; `media` are the files of an
    edited message, None if the platform does not repeat them. `source` is who did it.
    """

    kind: Literal["edited", "deleted", "reacted"]
    source: Source
    message_id: str
    text: str | None = None
    media: tuple[Media, ...] | None = None
    cursor: str | None = None


class Settled(msgspec.Struct, frozen=True, kw_only=True):
    """The late outcome of a delivery: it arrived, or it failed after all.

    `delivery` is its idempotency key, `message_id` the platform's id.
    """

    delivery: str
    is_sent: bool
    message_id: str | None = None
    problem: str | None = None
    cursor: str | None = None


class Pressed(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody pressed a button under a message of the account.

    `source` is who pressed, in the chat and thread of that message; `value` that of the button.
    `press_id` is the platform's id of this press.
    """

    source: Source
    value: str
    press_id: str
    cursor: str | None = None


class Passed(msgspec.Struct, frozen=True, kw_only=True):
    """Nothing to do, only the cursor moved."""

    cursor: str


Update = Incoming | Changed | Settled | Pressed | Passed


class Outgoing(msgspec.Struct, frozen=True, kw_only=True):
    """A message to send: a text, or one file. `delivery` is its idempotency key.

    text         the text; of a file, its caption
    spans        the format of the text, if the platform defines `format`
    media        the file to send instead of a text; `content` are its bytes
    reply_to     the id of the message it replies to
    replaces     the id of an earlier message of the account, which it replaces
    buttons      the buttons under it; the text says the same, so it may go without them
    """

    delivery: str
    chat_id: str | None
    text: str
    account: str = ""
    thread_id: str | None = None
    spans: tuple[Span, ...] = ()
    media: Media | None = None
    content: bytes = b""
    reply_to: str | None = None
    replaces: str | None = None
    buttons: tuple[Button, ...] = ()


class StreamUpdate(msgspec.Struct, frozen=True, kw_only=True):
    """An update of a turn in progress.

    began    the turn began
    typing   it is still in progress; repeated every `typing_seconds`
    delta    a piece of the answer; not for adapters with `draft_seconds`
    draft    the whole answer so far; only for adapters with `draft_seconds`
    thought  a piece of the reasoning; only for adapters with `shows_thoughts`
    notice   a message of the gateway before the answer; it is also delivered
    tool     a tool is called; `text` is its name
    result   the tool has ended; `text` is its call in one line, `detail` its result. It may be seen
             by the owner only
    ended    the turn ended

    `turn` identifies the turn, also after a restart; `message_id` is the id of the message that it
    answers. `is_retry`: an earlier process may have died in this turn; then "began" returns the id
    of the draft that it left, if there is one.
    """

    kind: Literal[
        "began", "typing", "notice", "thought", "delta", "draft", "tool", "result", "ended"
    ]
    turn: str
    text: str = ""
    detail: str = ""
    message_id: str | None = None
    is_retry: bool = False


class AdapterState(msgspec.Struct, frozen=True, kw_only=True):
    """The connection of an adapter.

    listening   updates can arrive now
    since       when `listening` last changed
    heard_at    the last sign of life of the platform
    problem     why it does not listen, or what else does not work, for people; without secrets
    """

    listening: bool = False
    since: datetime | None = None
    heard_at: datetime | None = None
    problem: str | None = None


class HttpRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request of the platform to /platforms/NAME; names of headers are in small letters."""

    method: str
    headers: Mapping[str, str]
    query: Mapping[str, str] = {}
    body: bytes = b""


class HttpResponse(msgspec.Struct, frozen=True, kw_only=True):
    """The response to a request of the platform."""

    status: int = 200
    body: bytes = b""
    content_type: str = "text/plain; charset=utf-8"


class MenuEntry(msgspec.Struct, frozen=True):
    """A command, for platforms that show a menu of commands."""

    name: str
    description: str


Receive = Callable[[Update], Awaitable[None]]

RememberId = Callable[[str, str], Awaitable[str]]
"""Return the id by which a person is known: called with an id of the platform, and another one by
which the person is known from now on, if the store does not know the first yet."""


class Adapter(ABC):
    """The adapter of one account of a chat app; the module docstring lists its promises.

    account              the name of the account in its sources; None: it serves every account
    listens_alone        only one node may listen at a time
    idempotent_seconds   how long the platform remembers the key of a delivery; 0: not at all
    refuses_senders      the sender waits for an answer: `receive` raises `LimitExceeded` or
                         `TooLarge` for a message beyond a limit, instead of a note in the chat
    needs_http           people or the platform reach it through the HTTP server of the gateway
    request_bytes        the largest request of the platform, which may be larger than `open_body`
    typing_seconds       how often "typing" is shown again during a turn; None: never
    shows_thoughts       whether the owner, who alone writes there, wants to see the reasoning
    draft_seconds        the shortest time between two drafts of an answer; None: it gets deltas
    draft_delay_seconds  an answer that is complete sooner is not shown as a draft
    cursor               where `listen` begins; the gateway sets it before each call
    remember_id          keeps the id by which a person is known, for all nodes; the gateway sets it
    state                the connection; changed by `mark_listening`, `mark_heard`, `mark_problem`
    """

    name: str
    account: str | None = ""
    listens_alone: bool = False
    idempotent_seconds: float = 0.0
    refuses_senders: bool = False
    needs_http: bool = False
    request_bytes: int = 0
    typing_seconds: float | None = None
    shows_thoughts: bool = False
    draft_seconds: float | None = None
    draft_delay_seconds: float = 0.0
    cursor: str | None = None
    remember_id: RememberId | None = None
    state: AdapterState = AdapterState()

    @abstractmethod
    async def listen(self, receive: Receive) -> None:
        """Call `receive` with each update, until cancelled."""

    @abstractmethod
    async def send(self, message: Outgoing) -> str | None:
        """Send one message and return its id; raise a `PlatformError` if it was not accepted."""

    async def close_buttons(self, message: Outgoing) -> None:
        """Replace the text of the message `replaces`, and take its buttons away.

        Raise a `PlatformError` if that was not possible; `Refused` if it never will be.
        """
        return

    async def show(self, source: Source, update: StreamUpdate) -> str | None:
        """Show the progress of a turn to people, if the platform can.

        Return the id of a draft that stays in the chat and that the answer has to replace, or None.
        """
        return None

    async def fetch(self, media: Media) -> AsyncGenerator[bytes, None]:
        """Yield the bytes of a file by its `source`."""
        for _ in ():
            yield b""  # it makes this a generator
        raise Refused(f"{self.name} has no files.", hint="Its adapter does not define fetch().")

    async def identify(self) -> str:
        """Ask the platform who this account is; return a short line for people."""
        return self.name

    async def fill_menu(self, entries: tuple[MenuEntry, ...]) -> None:
        """Tell the platform the list of commands."""
        return

    async def respond(self, request: HttpRequest) -> HttpResponse:
        """Answer a request to /platforms/NAME; raise an `Error` to refuse it."""
        raise NotFound(f"{self.name} takes no requests here.", hint="See docs/http.md.")

    async def close(self) -> None:
        """Close connections and release other resources."""
        return

    # -- the state, for the adapter to report

    def mark_listening(self, problem: str | None = None) -> None:
        """Report that updates can arrive from now on; `problem` says what does not work."""
        now = datetime.now(UTC)
        since = self.state.since if self.state.listening else now
        heard_at = now if problem is None else self.state.heard_at
        self.state = AdapterState(listening=True, since=since, heard_at=heard_at, problem=problem)

    def mark_heard(self) -> None:
        """Report a sign of life of the platform."""
        self.state = replace(self.state, heard_at=datetime.now(UTC))

    def mark_problem(self, problem: str | None) -> None:
        """Report that no updates can arrive, and why."""
        since = datetime.now(UTC) if self.state.listening else self.state.since
        self.state = replace(self.state, listening=False, since=since, problem=problem)

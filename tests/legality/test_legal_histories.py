"""For any stored rows, the history is accepted by every provider and within its budget.

Most examples go straight through the rules (blocks, window, rendering), which takes a millisecond;
a smaller share goes through a store, with everything that can be done to a transcript. Together a
thousand in every run, and more than twenty thousand with the profile `slow`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tertulia
from tertulia import Session, Settings, Source, Store, ToolCall
from tertulia.core.history import tokens
from tertulia.core.history.formats import Format, Style, Timestamps, render, token_counter
from tertulia.core.history.model_traits import ModelTraits
from tertulia.core.history.repair import Block, build_blocks
from tertulia.core.history.shown_media import MediaView, choose_shown, hashes_to_load
from tertulia.core.history.window import HistoryBudget, fit_history
from tertulia.core.message import Message, draft
from tertulia.records import session_rows
from tertulia.records.transcript.log import Entry, add_messages
from tertulia.records.transcript.transcript import Transcript
from tertulia.storage.base import Transaction
from tests.legality import generated_messages
from tests.legality.validators import faults
from tests.servers.postgres import Server

EXAMPLES = settings.default.max_examples if settings.default else 200

HIDDEN = ("command", "internal")

Shown = list[dict[str, Any]]

# The generated examples are large on purpose: whole transcripts with every kind of content.
thorough = settings(
    max_examples=4 * EXAMPLES,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
through_the_store = settings(
    max_examples=min(EXAMPLES, 2_000),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
# An example is some dozens of transactions, each of which waits for a server.
through_the_server = settings(through_the_store, max_examples=min(EXAMPLES // 8, 250))


def weight(messages: Sequence[Mapping[str, Any]]) -> int:
    """The tokens of messages in the OpenAI form, by the project's estimate of each text."""
    total = 0
    for message in messages:
        total += tokens.PER_MESSAGE
        content = message.get("content")
        if isinstance(content, str):
            total += tokens.estimate_tokens(content)
        for part in content if isinstance(content, list) else []:
            text = part.get("text") or part.get("refusal")
            total += tokens.PER_IMAGE if text is None else tokens.estimate_tokens(text)
        for call in message.get("tool_calls") or []:
            function = call["function"]
            total += tokens.PER_MESSAGE
            total += tokens.estimate_tokens(function["name"] + function["arguments"])
        total += tokens.estimate_tokens(message.get("reasoning_content", ""))
    return total


def assert_within(shown: Shown, max_messages: int, max_tokens: int | None) -> None:
    """Check the limits; only a single message may have too many tokens."""
    assert len(shown) <= max_messages
    if max_tokens is not None and weight(shown) > max_tokens:
        assert [message["role"] for message in shown] == ["user"]


def assert_begins_legally(shown: Shown, deliveries: Sequence[object]) -> None:
    if shown and shown[0]["role"] != "user":
        assert shown[0]["role"] == "assistant"
        assert shown[1]["role"] == "user"
        assert deliveries, "only a delivery may stand before the person"
        assert "tool_calls" not in shown[0]


@thorough
@given(
    rows=generated_messages.stored_rows(),
    summary=st.none() | generated_messages.message("summary"),
    max_messages=generated_messages.message_limits,
    max_tokens=generated_messages.token_limits,
    timestamps=generated_messages.timestamps,
    form=generated_messages.formats,
    whole=st.booleans(),
)
def test_any_rows_give_a_legal_history(
    rows: list[Message],
    summary: dict[str, Any] | None,
    max_messages: int,
    max_tokens: int | None,
    timestamps: Timestamps,
    form: Format,
    whole: bool,
) -> None:
    style = Style(timestamps, authors=True, allow_images=form == "anthropic")
    history = [] if summary is None else [Block(generated_messages.rows_of([summary])[0])]
    history += build_blocks(rows)
    budget = HistoryBudget(max_messages, max_tokens)
    shown = fit_history(history, budget, token_counter(style), whole=whole)
    style = style._replace(result_limit=shown.result_limit)
    messages = render(shown.blocks, form, style)
    assert faults(form, messages) == []

    in_openai = render(shown.blocks, "openai", style)
    assert_within(in_openai, max_messages, max_tokens)
    deliveries = [row for row in rows if row.kind == "delivery"]
    assert_begins_legally(in_openai, deliveries)
    people_rows = [
        row for row in rows if row.role in ("user", "summary") and row.kind not in HIDDEN
    ]
    if people_rows or summary is not None:
        assert messages
    if people_rows:
        # A summary in front takes half of the budget at most, and is shortened for that.
        fitted_rows = [
            block.row for block in shown.blocks if block.row.role == people_rows[-1].role
        ]
        assert people_rows[-1].seq in [row.seq for row in fitted_rows], "the newest words stay"


# -- through a store


OPTIONS = Settings(zone="UTC", durability="fast", group_sessions_per_user=False)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    path: Path = tmp_path_factory.mktemp("legal") / "talk.db"
    with tertulia.open(path, settings=OPTIONS) as store:
        yield store


@pytest.fixture(scope="module")
def in_postgres(postgres: Server) -> Iterator[Store]:
    with tertulia.open(postgres.database(postgres.template), settings=OPTIONS) as store:
        yield store


CHATS = itertools.count()


class Crash(Exception):
    """An exception that ends a turn in the middle."""


class Conversation:
    """One conversation with all operations on it."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.chat = f"-{next(CHATS)}"
        self.session: Session = store.sessions.open(self.source("1"))

    def source(self, user: str) -> Source:
        return Source(
            "telegram", self.chat, chat_type="group", user_id=user, user_name=f"Name {user}"
        )

    @property
    def transcript(self) -> Transcript:
        return self.store.transcript(self.session.id)

    def append(self, body: dict[str, Any]) -> None:
        self.transcript.append(body)

    def extend(self, bodies: list[dict[str, Any]]) -> None:
        self.transcript.extend(bodies)

    def rewrite(self, bodies: list[dict[str, Any]]) -> None:
        self.transcript.rewrite(bodies)

    def add_of_kind(self, kind: str, body: dict[str, Any]) -> None:
        """Add a row as commands, deliveries and bookkeeping do."""

        def work(tx: Transaction) -> None:
            ref = session_rows.current_view(tx, self.session.id).ref
            add_messages(tx, ref, [Entry(draft(body), kind)], 0)

        self.store.context.db.write(work)

    def undo(self, turns: int) -> None:
        self.transcript.undo(turns)

    def redo(self, _: int) -> None:
        self.transcript.redo()

    def clear(self, _: int) -> None:
        self.transcript.clear()

    def keep_recent(self, count: int) -> None:
        self.transcript.keep_recent(count)

    def restore(self, number: int) -> None:
        self.transcript.restore(1 + number % len(self.transcript.revisions()))

    def compact(self, keep_turns: int) -> None:
        self.transcript.compact(keep_turns=keep_turns)

    def edit(self, index: int, body: dict[str, Any]) -> None:
        if entries := self.transcript.entries():
            self.transcript.edit(entries[index % len(entries)].seq, body)

    def remove(self, index: int) -> None:
        if entries := self.transcript.entries():
            self.transcript.remove(entries[index % len(entries)].seq)

    def fork(self, index: int) -> None:
        entries = self.transcript.entries()
        at = entries[index % len(entries)].seq if entries else None
        self.session = self.store.sessions.fork(self.session.id, at)

    def turn(self, user: str, text: str, media: Any, answers: int, crash: bool) -> None:
        """Run a turn with calls, only some with results; it may end in an exception."""
        try:
            with self.store.turn(self.source(user), text, media=media) as turn:
                turn.add_assistant(text, tool_calls=[ToolCall(f"c{n}", "look") for n in range(3)])
                for index in range(answers):
                    turn.add_tool_result(f"c{index}", text)
                turn.add_assistant(text, more=crash)
                self._crash(crash)
        except Crash:
            pass
        # Forking made another session current for the chat, and turns go to that one.
        self.session = turn.session

    def wait(self, user: str, text: str, media: Any, answers: int) -> None:
        """Leave a turn whose calls wait for an approval, some of them with a result."""
        turn = self.store.turn_control(self.source(user), text, media=media)
        turn.__enter__()
        turn.add_assistant(text, tool_calls=[ToolCall(f"c{n}", "look") for n in range(3)])
        for index in range(answers):
            turn.add_tool_result(f"c{index}", text)
        turn.leave(keep_calls=True)
        self.session = turn.session

    @staticmethod
    def _crash(crash: bool) -> None:
        if crash:
            raise Crash


def operation_of(
    name: str, *arguments: st.SearchStrategy[Any]
) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.tuples(st.just(name), *arguments)


few = st.integers(0, 4)
traces = st.lists(generated_messages.odd_texts, max_size=2)
files = st.lists(generated_messages.prepared_files, max_size=2)
operation = st.one_of(
    operation_of(
        "append",
        generated_messages.people
        | generated_messages.assistants
        | generated_messages.results
        | generated_messages.strangers,
    ),
    operation_of("extend", generated_messages.transcripts()),
    operation_of("extend", generated_messages.transcripts()),
    operation_of("rewrite", generated_messages.transcripts()),
    operation_of(
        "add_of_kind",
        st.sampled_from(["command", "internal", "delivery"]),
        generated_messages.people,
    ),
    operation_of("add_of_kind", st.just("delivery"), generated_messages.assistants),
    operation_of("undo", st.integers(1, 3)),
    operation_of("redo", few),
    operation_of("clear", few),
    operation_of("keep_recent", st.integers(0, 12)),
    operation_of("restore", few),
    operation_of("compact", few),
    operation_of(
        "edit",
        few,
        generated_messages.people | generated_messages.assistants | generated_messages.results,
    ),
    operation_of("remove", few),
    operation_of("fork", few),
    operation_of(
        "turn",
        st.sampled_from("12"),
        generated_messages.texts,
        traces,
        st.integers(0, 3),
        st.booleans(),
    ),
    operation_of("wait", st.sampled_from("12"), generated_messages.texts, files, st.integers(0, 2)),
)
request_lists = st.lists(
    st.tuples(
        generated_messages.message_limits,
        generated_messages.token_limits,
        generated_messages.timestamps,
        generated_messages.formats,
    ),
    min_size=1,
    max_size=4,
)


@through_the_store
@given(operations=st.lists(operation, min_size=2, max_size=10), requests=request_lists)
def test_history_is_legal_after_any_operations(
    store: Store,
    operations: list[tuple[Any, ...]],
    requests: list[tuple[int, int | None, Any, Any]],
) -> None:
    check_histories(Conversation(store), operations, requests)


@through_the_server
@given(operations=st.lists(operation, min_size=2, max_size=10), requests=request_lists)
def test_history_is_legal_after_any_operations_in_postgres(
    in_postgres: Store,
    operations: list[tuple[Any, ...]],
    requests: list[tuple[int, int | None, Any, Any]],
) -> None:
    check_histories(Conversation(in_postgres), operations, requests)


@thorough
@given(
    rows=generated_messages.stored_rows(),
    max_tokens=generated_messages.token_limits,
    form=generated_messages.formats,
    model=st.builds(ModelTraits, st.just("m"), st.booleans(), st.booleans()),
    missing=st.booleans(),
)
def test_any_rows_give_a_legal_history_for_a_model(
    rows: list[Message], max_tokens: int | None, form: Format, model: ModelTraits, missing: bool
) -> None:
    """Images and documents are shown, hidden or missing, in messages and in tool results."""
    style = Style("local", authors=True, allow_images=True, model=model)
    blocks = fit_history(
        build_blocks(rows), HistoryBudget(500, max_tokens), token_counter(style)
    ).blocks
    chosen = choose_shown(blocks, model)
    hashes = hashes_to_load(blocks, chosen, model)
    view = MediaView(model, chosen, {} if missing else dict.fromkeys(hashes, "AAAA"))
    messages = render(blocks, form, style._replace(media=view))
    assert faults(form, messages) == []
    if not model.sees_images:
        assert "data:image" not in str([m for m in messages if m.get("role") != "assistant"])


def check_histories(
    conversation: Conversation,
    operations: list[tuple[Any, ...]],
    requests: list[tuple[int, int | None, Any, Any]],
) -> None:
    for name, *arguments in operations:
        getattr(conversation, name)(*arguments)
    entries = conversation.transcript.entries()
    has_spoken = any(entry.role == "user" and entry.kind not in HIDDEN for entry in entries)
    deliveries = [entry for entry in entries if entry.kind == "delivery"]
    for max_messages, max_tokens, timestamps, form in requests:
        shown = conversation.transcript.history(max_messages, max_tokens, timestamps, form)
        assert faults(form, shown) == []
        in_openai = conversation.transcript.history(max_messages, max_tokens, timestamps)
        assert_within(in_openai, max_messages, max_tokens)
        assert_begins_legally(in_openai, deliveries)
        if has_spoken:
            assert shown

"""Keys: exact values of ordinary ones, and the proof that no two conversations share one.

The conversation of a source is defined here a second time, as a plain tuple, without keys.
Three things are then held against it: any two sources have one key exactly when they have one
conversation; a reader written only from the documented form gets the conversation back out of the
key; and all sources over a small set of the nastiest ids have been tried, each with each.
"""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from tertulia.core.keys import (
    chat_type_index,
    escape,
    is_direct_message,
    person_id,
    person_of,
    session_key,
    unescape,
)
from tertulia.core.source import CHAT_TYPES, Source, StoredChatType
from tertulia.errors import ConfigError


class Case(NamedTuple):
    """A source with the settings for its key."""

    source: Source
    agent: str = "main"
    per_user: bool = True
    threads_shared: bool = False

    @property
    def key(self) -> str:
        return session_key(
            self.source,
            agent=self.agent,
            per_user=self.per_user,
            threads_shared=self.threads_shared,
        )


class Conversation(NamedTuple):
    agent: str
    platform: str
    account: str
    chat_type: str
    chat: str
    thread: str
    participant: str


def conversation_of(case: Case) -> Conversation:
    """Return the agent, the chat and the person of a case. An empty string means absent."""
    source, participant = case.source, ""
    if source.chat_type != "dm" and case.per_user:
        participant = source.user_id_alt or source.user_id or ""
    if source.thread_id and case.threads_shared:
        participant = ""
    return Conversation(
        case.agent,
        source.platform,
        source.account,
        source.chat_type,
        source.chat_id,
        source.thread_id or "",
        participant,
    )


def read(key: str) -> Conversation:
    """The conversation a key names, read from the documented form alone."""
    word, agent, platform, *rest = key.split(":")
    assert word == "agent"
    account = ""
    if rest[0] not in CHAT_TYPES and not rest[0].startswith("~"):
        account = unescape(rest.pop(0))
    chat_type, *ids = rest
    chat = thread = participant = ""
    match chat_type, ids:
        case "dm", []:
            pass
        case "dm", [only] if only.startswith("~"):
            thread = only[1:]
        case "dm", [chat]:
            pass
        case "dm", [chat, thread]:
            pass
        case _, [chat]:
            pass
        case _, [chat, second] if second.startswith("~"):
            thread = second[1:]
        case _, [chat, participant]:
            pass
        case _, [chat, thread, participant]:
            pass
        case _:
            raise AssertionError(f"no such form: {key!r}")
    return Conversation(
        unescape(agent),
        unescape(platform),
        account,
        unescape(chat_type.removeprefix("~")),
        unescape(chat),
        unescape(thread),
        unescape(participant),
    )


# Strategies

# Left to themselves, strategies hardly ever draw a half of a surrogate pair or a control character.
any_text = st.text(
    alphabet=st.characters(exclude_categories=())
    | st.characters(categories=("Cs", "Cc", "Cf", "Zs", "Zl", "Zp"))
)
# Pieces of which keys themselves are made, put together at random.
PIECES = (":", "~", "%", "::", "~~", "%3A", "%7E", "%25", "%64m", "3A", "a", "b", "0", "17")
nasty_text = st.lists(st.sampled_from((*PIECES, "agent", "main", *CHAT_TYPES)), max_size=4).map(
    "".join
)
ids = nasty_text | any_text
chat_types = st.sampled_from(CHAT_TYPES) | ids.map(StoredChatType)
SETTINGS = tuple(itertools.product((True, False), (True, False)))
settings = st.sampled_from(SETTINGS)


@st.composite
def cases(draw: st.DrawFn, texts: st.SearchStrategy[str] = ids) -> Case:
    source = Source(
        draw(st.sampled_from(("telegram", "t")) | texts.filter(bool)),
        draw(texts),
        account=draw(st.just("") | texts),
        chat_type=draw(chat_types),
        user_id=draw(st.none() | texts),
        user_id_alt=draw(st.none() | texts),
        thread_id=draw(st.none() | texts),
    )
    return Case(source, draw(st.just("main") | texts), *draw(settings))


@st.composite
def moved(draw: st.DrawFn) -> tuple[Case, Case]:
    """A source, and a second one made of it by moving a separator or a part, or a mark."""
    words = st.sampled_from(("", "a", "b", "dm", "group")) | nasty_text
    parts = ["t", draw(words), draw(chat_types), draw(words), draw(words), draw(words)]
    rules = draw(settings)
    return _case(parts, rules), _case(draw(_moved_parts(parts)), rules)


@st.composite
def _moved_parts(draw: st.DrawFn, parts: list[str]) -> list[str]:
    parts = list(parts)
    here = draw(st.integers(0, len(parts) - 1))
    there = draw(st.integers(0, len(parts) - 1).filter(lambda place: place != here))
    match draw(st.sampled_from(("swap", "slide", "join", "split", "mark", "escape", "unescape"))):
        case "swap":
            parts[here], parts[there] = parts[there], parts[here]
        case "slide":
            parts.insert(there, parts.pop(here))
        case "join":
            low, high = sorted((here, there))
            parts[low : high + 1] = [":".join(parts[low : high + 1]), *[""] * (high - low)]
        case "split":
            head, _, tail = parts[here].partition(":")
            parts[here], parts[there] = head, tail
        case "mark":
            parts[here] = parts[here][1:] if parts[here].startswith("~") else "~" + parts[here]
        case "escape":
            parts[here] = escape(parts[here])
        case "unescape":
            parts[here] = unescape(parts[here])
    return parts


def _case(parts: list[str], rules: tuple[bool, bool]) -> Case:
    platform, account, chat_type, chat, thread, user = parts
    source = Source(
        platform or "t",
        chat,
        account=account,
        chat_type=chat_type if chat_type in CHAT_TYPES else StoredChatType(chat_type),
        thread_id=thread,
        user_id=user,
    )
    return Case(source, "main", *rules)


@st.composite
def recut(draw: st.DrawFn) -> tuple[Case, Case]:
    """One line of text, cut into the parts of a source in two ways."""
    words = draw(st.lists(st.sampled_from(("", "a", "~a", "dm", "group")), min_size=6, max_size=8))
    rules = draw(settings)

    def cut() -> Case:
        places = draw(st.lists(st.integers(1, len(words) - 1), min_size=5, max_size=5, unique=True))
        bounds = itertools.pairwise([0, *sorted(places), len(words)])
        return _case([":".join(words[a:b]) for a, b in bounds], rules)

    return cut(), cut()


@st.composite
def crowds(draw: st.DrawFn) -> list[Case]:
    """Many sources that share a handful of words, so that they nearly collide."""
    words = ["", *draw(st.lists(ids.filter(bool), min_size=1, max_size=3, unique=True))]
    parts = st.lists(st.sampled_from(words), min_size=4, max_size=4)
    kinds = st.sampled_from(("dm", "group", words[-1]))
    rules = draw(settings)
    drawn = draw(st.lists(st.tuples(kinds, parts), min_size=2, max_size=12))
    return [_case(["t", account, kind, *rest], rules) for kind, (account, *rest) in drawn]


# The everyday keys


def group(chat_type: str = "group", **details: str) -> Source:
    return Source("telegram", "-100", chat_type=chat_type, **details)


class TestEverydayKeys:
    @pytest.mark.parametrize(
        ("source", "key"),
        [
            (Source.local(), "agent:main:local:dm:cli"),
            (Source("telegram", "42", user_id="42"), "agent:main:telegram:dm:42"),
            (Source("telegram", "42", thread_id="17"), "agent:main:telegram:dm:42:17"),
            (Source("telegram", "", thread_id="17"), "agent:main:telegram:dm:~17"),
            (Source("telegram", ""), "agent:main:telegram:dm"),
            (group(), "agent:main:telegram:group:-100"),
            (group(user_id="42"), "agent:main:telegram:group:-100:42"),
            (group(thread_id="17"), "agent:main:telegram:group:-100:~17"),
            (group(thread_id="17", user_id="42"), "agent:main:telegram:group:-100:17:42"),
            (group("channel", user_id="42"), "agent:main:telegram:channel:-100:42"),
            (group("channel"), "agent:main:telegram:channel:-100"),
            (group("thread", user_id="42"), "agent:main:telegram:thread:-100:42"),
            (
                group("thread", thread_id="17", user_id="42"),
                "agent:main:telegram:thread:-100:17:42",
            ),
            (
                Source("slack", "C1", account="T1", chat_type="channel", user_id="U1"),
                "agent:main:slack:T1:channel:C1:U1",
            ),
            (Source("slack", "D1", account="T1"), "agent:main:slack:T1:dm:D1"),
        ],
    )
    def test_exact_keys(self, source: Source, key: str) -> None:
        assert session_key(source) == key

    @pytest.mark.parametrize(
        ("source", "key"),
        [
            (group(user_id="42"), "agent:main:telegram:group:-100"),
            (group(thread_id="17", user_id="42"), "agent:main:telegram:group:-100:~17"),
            (Source("telegram", "42", user_id="7"), "agent:main:telegram:dm:42"),
        ],
    )
    def test_shared_chat_has_one_key(self, source: Source, key: str) -> None:
        assert session_key(source, per_user=False) == key

    @pytest.mark.parametrize(
        ("source", "key"),
        [
            (group(user_id="42"), "agent:main:telegram:group:-100:42"),
            (group(thread_id="17", user_id="42"), "agent:main:telegram:group:-100:~17"),
            (Source("telegram", "42", thread_id="17"), "agent:main:telegram:dm:42:17"),
        ],
    )
    def test_shared_thread_has_one_key(self, source: Source, key: str) -> None:
        assert session_key(source, threads_shared=True) == key

    def test_key_contains_the_agent(self) -> None:
        assert session_key(Source("telegram", "42"), agent="cook") == "agent:cook:telegram:dm:42"

    def test_alternative_user_id_wins(self) -> None:
        both = group(user_id="+34600", user_id_alt="8b1c-uuid")
        assert session_key(both) == "agent:main:telegram:group:-100:8b1c-uuid"
        assert session_key(both) == session_key(group(user_id="+34711", user_id_alt="8b1c-uuid"))

    def test_people_in_a_group_have_different_keys(self) -> None:
        assert session_key(group(user_id="1")) != session_key(group(user_id="2"))

    def test_names_topics_and_alternative_chat_ids_do_not_matter(self) -> None:
        plain = group(user_id="42")
        dressed = group(
            user_id="42", user_name="Ana", chat_name="Café", chat_topic="x", chat_id_alt="y"
        )
        assert session_key(dressed) == session_key(plain)

    @pytest.mark.parametrize(
        "part",
        [
            "42",
            "-1001234567890",
            "+34600123456",
            "34600123456@s.whatsapp.net",
            "8b1c2f3e-0000-4000-8000-1234567890ab",
            "dGVzdC1ncm91cA==",
            "group.a/b+c=",
            "U02ABC_1",
            "#general",
            "1718000000.123456",
            "Ñandú",
            "東京",
            "🙂",
        ],
    )
    def test_ordinary_ids_stay_unchanged(self, part: str) -> None:
        assert escape(part) == part
        assert session_key(Source("matrix", part)) == f"agent:main:matrix:dm:{part}"


class TestMarks:
    """The pairs that could be taken for each other, one by one."""

    @pytest.mark.parametrize(
        ("first", "second"),
        [
            (group(thread_id="17"), group(user_id="17")),
            (group(thread_id="17"), group(user_id="~17")),
            (Source("t", "", thread_id="17"), Source("t", "17")),
            (Source("t", "", thread_id="17"), Source("t", "~17")),
            (Source("t", "a:b"), Source("t", "a", thread_id="b")),
            (Source("t", "a%3Ab"), Source("t", "a:b")),
            (Source("t:dm", "a"), Source("t", "dm:a")),
            (Source("t", "a", account="dm"), Source("t", "dm", thread_id="a")),
            (Source("t", "a", account="dm"), Source("t", "a", account="%64m")),
            (Source("t", "a", account="~x"), Source("t", "a", chat_type=StoredChatType("~x"))),
            (Source("t", "a", chat_type=StoredChatType("x")), Source("t", "a", account="x")),
            (
                Source("t", "a", chat_type=StoredChatType("x")),
                Source("t", "a", chat_type=StoredChatType("~x")),
            ),
            (Source("t", "", chat_type="group"), Source("t", "", account="group")),
            (Source("t", "\ud83d\ude42"), Source("t", "🙂")),
            (Source("t", "\ud83d"), Source("t", "%ED%A0%BD")),
            (Source("t", "é"), Source("t", "e\u0301")),
            (Source("t", "a"), Source("t", "a\u200b")),
            (Source("t", "a"), Source("t", "a\x00")),
        ],
    )
    def test_similar_sources_have_different_keys(self, first: Source, second: Source) -> None:
        assert conversation_of(Case(first)) != conversation_of(Case(second))
        assert session_key(first) != session_key(second)


class TestInjective:
    @given(st.tuples(cases(), cases()))
    def test_two_conversations_never_share_a_key(self, pair: tuple[Case, Case]) -> None:
        self.hold(pair)

    @given(moved())
    def test_moved_separator_part_or_mark_changes_the_key(self, pair: tuple[Case, Case]) -> None:
        self.hold(pair)

    @given(recut())
    def test_same_text_split_differently_changes_the_key(self, pair: tuple[Case, Case]) -> None:
        self.hold(pair)

    @given(crowds())
    def test_many_sources_with_few_texts_have_distinct_keys(self, crowd: list[Case]) -> None:
        for pair in itertools.combinations(crowd, 2):
            self.hold(pair)

    @staticmethod
    def hold(pair: tuple[Case, Case]) -> None:
        first, second = pair
        assert (first.key == second.key) == (conversation_of(first) == conversation_of(second))

    @given(cases())
    def test_key_can_be_parsed_back(self, case: Case) -> None:
        assume(":~~" not in case.key)  # a part that is too long stands there as its hash
        assert read(case.key) == conversation_of(case)

    def test_all_sources_over_a_few_difficult_ids(self) -> None:
        words = ("", "a", "b", "dm", "~a", "a:b", "%64m")
        types = ("dm", "group", *map(StoredChatType, ("a", "~a", "a:b", "dm:a")))
        seen: dict[str, Conversation] = {}
        for account, chat_type, chat, thread, user in itertools.product(
            words, types, words, words, words
        ):
            source = Source(
                "t", chat, account=account, chat_type=chat_type, thread_id=thread, user_id=user
            )
            for rules in SETTINGS:
                case = Case(source, "main", *rules)
                conversation = conversation_of(case)
                assert seen.setdefault(case.key, conversation) == conversation
        assert len(set(seen.values())) == len(seen)


class TestForm:
    @given(cases())
    def test_key_is_one_printable_word_of_valid_unicode(self, case: Case) -> None:
        assert case.key.encode().decode() == case.key
        assert case.key.split() == [case.key]
        assert not any(ord(c) < 0x20 or 0x7F <= ord(c) < 0xA0 for c in case.key)

    @given(cases())
    def test_key_is_deterministic(self, case: Case) -> None:
        again = Source.from_dict(case.source.to_dict())
        assert case._replace(source=again).key == case.key

    @given(ids)
    @example("\ud83d\ude42")
    @example("%3A:~%")
    @example("\x00\n\u202e\ufeff")
    def test_unescape_reverses_escape(self, part: str) -> None:
        escaped = escape(part)
        assert unescape(escaped) == part
        assert escaped.encode().decode() == escaped
        assert ":" not in escaped
        assert "~" not in escaped

    @given(ids, ids)
    def test_escaped_parts_stay_different(self, first: str, second: str) -> None:
        assert (escape(first) == escape(second)) == (first == second)


class TestPeople:
    @pytest.mark.parametrize(
        ("source", "person"),
        [
            (Source("telegram", "-1", chat_type="group", user_id="42"), "telegram:42"),
            (Source("telegram", "42"), "telegram:42"),
            (Source("telegram", "9", user_id="42"), "telegram:42"),
            (Source("signal", "g", chat_type="group", user_id="+34", user_id_alt="u"), "signal:u"),
            (
                Source("slack", "C1", account="T1", chat_type="channel", user_id="U1"),
                "slack:~T1:U1",
            ),
            (Source("telegram", "-1", chat_type="group"), None),
            (Source("telegram", "", thread_id="17"), None),
        ],
    )
    def test_person_of_a_source(self, source: Source, person: str | None) -> None:
        assert person_of(source) == person

    @given(ids.filter(bool), ids.filter(bool), ids)
    @example("slack", "~T1:U1", "")
    @example("slack", "U1", "T1")
    def test_person_id_can_be_parsed_back(self, platform: str, user: str, account: str) -> None:
        person = person_id(platform, user, account=account)
        assume("~~" not in person)  # a part that is too long stands there as its hash
        place, *marked, last = person.split(":")
        assert (unescape(place), unescape(last)) == (platform, user)
        assert [unescape(mark.removeprefix("~")) for mark in marked] == [account] * bool(account)


class TestWrongArguments:
    @pytest.mark.parametrize("value", [5, None, "telegram", {"platform": "telegram"}], ids=repr)
    def test_source_must_be_a_source(self, value: Any) -> None:
        with pytest.raises(ConfigError, match="source") as caught:
            session_key(value)
        assert caught.value.field == "source"

    @pytest.mark.parametrize("agent", [None, 5, b"main"], ids=repr)
    def test_agent_must_be_text(self, agent: Any) -> None:
        with pytest.raises(ConfigError, match="agent") as caught:
            session_key(Source("telegram", "42"), agent=agent)
        assert caught.value.field == "agent"


@given(cases())
@example(Case(Source("t", "dm", account="dm", chat_type="group")))
@example(Case(Source("t", "1", account="a" * 400)))
@example(Case(Source("t", "1", account="a" * 400, chat_type=StoredChatType("c" * 400))))
def test_key_tells_the_chat_type(case: Case) -> None:
    source = case.source
    assert chat_type_index(case.key.split(":")) == (4 if source.account else 3)
    assert is_direct_message(case.key) == (source.chat_type == "dm")


@pytest.mark.parametrize("text", ["", "agent", "agent:main:telegram", "other:main:telegram:dm:1"])
def test_other_text_is_no_key(text: str) -> None:
    assert chat_type_index(text.split(":")) is None
    assert not is_direct_message(text)

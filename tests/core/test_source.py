from __future__ import annotations

import copy
import pickle
from enum import StrEnum
from functools import partial
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tertulia.core.source import CHAT_TYPES, Source, StoredChatType
from tertulia.errors import ConfigError

any_text = st.text(alphabet=st.characters(exclude_categories=()))
absent_or_text = st.none() | any_text
sources = st.builds(
    Source,
    any_text.filter(bool),
    any_text,
    account=any_text,
    chat_name=absent_or_text,
    chat_type=st.sampled_from(CHAT_TYPES) | any_text.map(StoredChatType),
    user_id=absent_or_text,
    user_name=absent_or_text,
    thread_id=absent_or_text,
    chat_topic=absent_or_text,
    user_id_alt=absent_or_text,
    chat_id_alt=absent_or_text,
)


class TestDefaults:
    def test_platform_and_chat_are_enough(self) -> None:
        source = Source("telegram", "42")
        assert source.account == ""
        assert source.chat_type == "dm"
        assert source.participant is None
        others = ("chat_name", "user_id", "user_name", "thread_id", "chat_topic")
        assert [getattr(source, name) for name in others] == [None] * len(others)
        assert source.user_id_alt is None
        assert source.chat_id_alt is None

    def test_local_source(self) -> None:
        source = Source.local()
        assert (source.platform, source.chat_id) == ("local", "cli")
        assert source.chat_name == "CLI terminal"
        assert source.chat_type == "dm"

    def test_source_is_frozen(self) -> None:
        source = Source("telegram", "42")
        with pytest.raises(AttributeError):
            source.chat_id = "43"  # type: ignore[misc]
        assert len({source, Source("telegram", "42"), Source("telegram", "43")}) == 2


class TestIds:
    def test_numbers_become_strings(self) -> None:
        given_as_numbers: dict[str, Any] = {
            "account": 7,
            "user_id": 42,
            "thread_id": 17,
            "user_id_alt": 8,
            "chat_id_alt": 9,
        }
        chat: Any = -100123
        source = Source("telegram", chat, **given_as_numbers)
        assert source.chat_id == "-100123"
        assert {n: getattr(source, n) for n in given_as_numbers} == {
            name: str(number) for name, number in given_as_numbers.items()
        }

    def test_zero_is_an_id(self) -> None:
        zero: Any = 0
        source = Source("telegram", zero, chat_type="group", user_id=zero, thread_id=zero)
        assert (source.chat_id, source.user_id, source.thread_id) == ("0", "0", "0")

    @pytest.mark.parametrize("name", ["user_id", "thread_id", "user_id_alt", "chat_id_alt"])
    def test_empty_optional_id_is_none(self, name: str) -> None:
        empty: dict[str, Any] = {name: ""}
        assert Source("telegram", "42", **empty) == Source("telegram", "42")

    def test_missing_chat_is_empty_text(self) -> None:
        assert Source("telegram", "").chat_id == ""
        assert Source.from_dict({"platform": "telegram"}).chat_id == ""

    def test_missing_chat_type_is_dm(self) -> None:
        assert Source("telegram", "42", chat_type="").chat_type == "dm"

    @pytest.mark.parametrize("platform", ["", None, 5])
    def test_platform_is_required(self, platform: Any) -> None:
        with pytest.raises(ConfigError, match="platform") as caught:
            Source(platform, "42")
        assert caught.value.field == "platform"
        assert caught.value.hint


class TestParticipant:
    def test_alternative_id_wins(self) -> None:
        assert Source("signal", "g", user_id="+34600", user_id_alt="uuid").participant == "uuid"

    def test_user_id_without_an_alternative(self) -> None:
        assert Source("signal", "g", user_id="+34600").participant == "+34600"
        assert Source("signal", "g", user_id="+34600", user_id_alt="").participant == "+34600"


class TestDicts:
    def test_to_dict(self) -> None:
        assert Source("telegram", "42").to_dict() == {
            "platform": "telegram",
            "chat_id": "42",
            "chat_name": None,
            "chat_type": "dm",
            "user_id": None,
            "user_name": None,
            "thread_id": None,
            "chat_topic": None,
        }

    def test_to_dict_has_alternative_ids_and_account_only_if_set(self) -> None:
        written = Source(
            "signal", "g", account="second", user_id_alt="uuid", chat_id_alt="internal"
        ).to_dict()
        assert written["account"] == "second"
        assert written["user_id_alt"] == "uuid"
        assert written["chat_id_alt"] == "internal"

    def test_from_dict_needs_only_the_platform(self) -> None:
        assert Source.from_dict({"platform": "telegram"}) == Source("telegram", "")

    def test_missing_and_null_fields_default(self) -> None:
        nulls = {"chat_type": None, "user_id": None, "account": None, "chat_id": None}
        assert Source.from_dict({"platform": "telegram", **nulls}) == Source("telegram", "")

    def test_numbers_are_read_as_strings(self) -> None:
        data = {"platform": "telegram", "chat_id": -100, "user_id": 42, "thread_id": 0}
        source = Source.from_dict(data)
        assert (source.chat_id, source.user_id, source.thread_id) == ("-100", "42", "0")

    def test_from_dict_accepts_unknown_platform_chat_type_and_field(self) -> None:
        data = {"platform": "pigeon", "chat_id": "loft", "chat_type": "flock", "colour": "grey"}
        source = Source.from_dict(data)
        assert (source.platform, source.chat_type) == ("pigeon", "flock")

    @pytest.mark.parametrize("data", [{}, {"chat_id": "42"}, {"platform": None}, {"platform": ""}])
    def test_from_dict_without_a_platform_is_refused(self, data: dict[str, Any]) -> None:
        with pytest.raises(ConfigError, match="platform"):
            Source.from_dict(data)

    @given(sources)
    def test_from_dict_reverses_to_dict(self, source: Source) -> None:
        assert Source.from_dict(source.to_dict()) == source

    @given(sources)
    def test_to_dict_has_plain_values(self, source: Source) -> None:
        for name, value in source.to_dict().items():
            assert value is None or type(value) is str, name

    def test_a_dict_survives_json(self) -> None:
        source = Source("slack", "C1", account="T1", chat_type="channel", user_id="U1")
        there = msgspec.json.encode(source.to_dict())
        assert Source.from_dict(msgspec.json.decode(there)) == source


class TestDescription:
    @pytest.mark.parametrize(
        ("source", "words"),
        [
            (Source.local(), "CLI terminal"),
            (Source("telegram", "42", user_name="Ana", user_id="7"), "DM with Ana"),
            (Source("telegram", "42", user_id="7"), "DM with 7"),
            (Source("telegram", "42"), "DM with user"),
            (
                Source("telegram", "-1", chat_type="group", chat_name="Los martes"),
                "group: Los martes",
            ),
            (Source("telegram", "-1", chat_type="group"), "group: -1"),
            (Source("slack", "C1", chat_type="channel", chat_name="general"), "channel: general"),
            (Source("slack", "C1", chat_type="channel"), "channel: C1"),
            (Source("discord", "9", chat_type="thread", chat_name="plans"), "plans"),
            (Source("discord", "9", chat_type="thread"), "9"),
            (
                Source("pigeon", "loft", chat_type=StoredChatType("flock"), chat_name="North"),
                "North",
            ),
            (Source("telegram", "42", user_name="Ana", thread_id="17"), "DM with Ana, thread: 17"),
            (
                Source("telegram", "-1", chat_type="group", chat_name="Forum", thread_id="17"),
                "group: Forum, thread: 17",
            ),
            (
                Source("discord", "9", chat_type="thread", chat_name="plans", thread_id="17"),
                "plans, thread: 17",
            ),
        ],
    )
    def test_description(self, source: Source, words: str) -> None:
        assert source.description == words

    @given(sources)
    def test_every_source_has_a_description(self, source: Source) -> None:
        assert isinstance(source.description, str)


def _from_fields(**fields: Any) -> Source:
    return Source.from_dict({"platform": "t", **fields})


class TestWrongArguments:
    @pytest.mark.parametrize("value", [[], b"", StrEnum, True, 1.5, {"id": 1}], ids=repr)
    @pytest.mark.parametrize("field", ["chat_id", "user_id", "thread_id", "account", "chat_type"])
    def test_field_that_is_neither_text_nor_an_integer(self, field: str, value: object) -> None:
        fields: dict[str, Any] = {"chat_id": "42", field: value}
        for build in (partial(Source, "t"), _from_fields):
            with pytest.raises(ConfigError, match=field) as caught:
                build(**fields)
            assert caught.value.field == field
            assert caught.value.hint

    def test_chat_id_of_none(self) -> None:
        nothing: Any = None
        with pytest.raises(ConfigError, match="chat_id") as caught:
            Source("telegram", nothing)
        assert caught.value.field == "chat_id"
        assert Source("telegram", "").chat_id == ""

    def test_misspelled_chat_type_names_the_allowed_ones(self) -> None:
        with pytest.raises(ConfigError, match="'dmm'") as caught:
            Source("telegram", "42", chat_type="dmm")
        assert caught.value.field == "chat_type"
        assert "dm, group, channel, thread" in (caught.value.hint or "")

    def test_text_of_another_class_becomes_plain_text(self) -> None:
        class Name(StrEnum):
            ROOM = "room"

        source = Source("telegram", Name.ROOM, user_id=Name.ROOM)
        assert (type(source.chat_id), source.chat_id, source.user_id) == (str, "room", "room")

    def test_stored_chat_type_survives_copies(self) -> None:
        source = Source.from_dict({"platform": "pigeon", "chat_id": "1", "chat_type": "flock"})
        for copied in (
            pickle.loads(pickle.dumps(source)),
            copy.deepcopy(source),
            source.with_fields(user_name="Ana"),
            Source.from_dict(msgspec.json.decode(msgspec.json.encode(source.to_dict()))),
        ):
            assert copied.chat_type == "flock"
            assert type(copied.chat_type) is str

    @pytest.mark.parametrize("data", [5, None, "telegram", []])
    def test_from_dict_of_something_else(self, data: Any) -> None:
        with pytest.raises(ConfigError, match="platform"):
            Source.from_dict(data)

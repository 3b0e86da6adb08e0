from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tertulia.core.source import Source
from tertulia.core.target import HomeChannel, Target
from tertulia.errors import ConfigError

KNOWN = ("local", "telegram", "discord", "slack")

any_id = st.text(alphabet=st.characters(exclude_categories=()), min_size=1)
ids = any_id | st.text(alphabet="ab:%~ 0\n3A", min_size=1)
targets = st.builds(
    Target,
    st.sampled_from(KNOWN),
    ids,
    st.none() | ids,
    is_explicit=st.just(True),
)


class TestForms:
    def test_local(self) -> None:
        assert Target.parse("local", known=KNOWN) == Target("local")

    def test_local_is_always_valid(self) -> None:
        assert Target.parse("local") == Target("local")

    @pytest.mark.parametrize("text", ["telegram", "Telegram", " TELEGRAM "])
    def test_platform_in_any_case_is_its_home(self, text: str) -> None:
        assert Target.parse(text, known=KNOWN) == Target("telegram")

    def test_chat(self) -> None:
        target = Target.parse("Telegram:-100aBc", known=KNOWN)
        assert target == Target("telegram", "-100aBc", is_explicit=True)

    def test_thread(self) -> None:
        target = Target.parse("slack:C1:1712.5", known=KNOWN)
        assert target == Target("slack", "C1", "1712.5", is_explicit=True)

    def test_colon_inside_an_id(self) -> None:
        target = Target.parse("telegram:a%3Ab:c", known=KNOWN)
        assert (target.chat_id, target.thread_id) == ("a:b", "c")
        assert str(target) == "telegram:a%3Ab:c"

    def test_numbers_become_strings(self) -> None:
        numbers: Any = (42, 7)
        assert Target("telegram", *numbers) == Target("telegram", "42", "7")


class TestOrigin:
    def test_origin_is_the_chat_and_thread_of_the_source(self) -> None:
        source = Source("telegram", "-100", chat_type="group", thread_id="7", user_id="42")
        assert Target.parse("Origin", source) == Target("telegram", "-100", "7", is_origin=True)

    def test_missing_origin_is_local_and_still_the_origin(self) -> None:
        assert Target.parse("origin", known=KNOWN) == Target("local", is_origin=True)

    def test_origin_with_only_a_thread(self) -> None:
        source = Source("telegram", "", thread_id="7")
        target = Target.parse("origin", source)
        assert (target.chat_id, target.thread_id) == (None, "7")

    def test_platform_of_the_origin_is_valid(self) -> None:
        source = Source("carrier pigeon", "42")
        assert Target.parse("Carrier Pigeon:9", source).platform == "carrier pigeon"


class TestRefused:
    def test_hint_names_the_nearest_platform(self) -> None:
        with pytest.raises(ConfigError) as caught:
            Target.parse("telegarm:42", known=KNOWN)
        assert "'telegarm:42'" in caught.value.message
        assert caught.value.hint is not None
        assert "'telegram'" in caught.value.hint
        assert caught.value.field == "target"

    def test_hint_names_all_platforms_if_none_is_near(self) -> None:
        with pytest.raises(ConfigError, match="Known: discord, local, slack, telegram"):
            Target.parse("zzz", known=KNOWN)

    @pytest.mark.parametrize(
        "text",
        ["", ":", "telegram:", "telegram::7", "telegram:1:", "telegram:1:2:3", "origin:1", "a b"],
    )
    def test_invalid_forms(self, text: str) -> None:
        with pytest.raises(ConfigError):
            Target.parse(text, known=KNOWN)

    def test_invalid_escape(self) -> None:
        with pytest.raises(ConfigError, match="%25"):
            Target.parse("telegram:%FF", known=KNOWN)

    def test_thread_without_a_chat(self) -> None:
        with pytest.raises(ConfigError, match="thread"):
            Target("telegram", thread_id="7")

    @given(st.text(alphabet=st.characters(exclude_categories=())))
    def test_any_text_is_parsed_or_refused(self, text: str) -> None:
        try:
            target = Target.parse(text, known=KNOWN)
        except ConfigError:
            return
        assert target.platform in KNOWN


class TestInverse:
    @given(targets)
    def test_parse_reverses_str(self, target: Target) -> None:
        assert Target.parse(str(target), known=KNOWN) == target

    @given(targets, targets)
    def test_different_chats_have_different_texts(self, one: Target, other: Target) -> None:
        assume(one != other)
        assert str(one) != str(other)

    @pytest.mark.parametrize("text", ["origin", "local", "telegram", "slack:C1", "slack:C1:1.5"])
    def test_str_reverses_parse(self, text: str) -> None:
        origin = Source("discord", "9", thread_id="3")
        assert str(Target.parse(text, origin, known=KNOWN)) == text
        assert str(Target.parse(text, known=KNOWN)) == text

    @given(any_id)
    def test_any_platform_of_an_origin_is_parsed_back(self, name: str) -> None:
        assume(name.lower() != "origin")
        source = Source(name, "42")
        target = Target(name, "42", is_explicit=True)
        assert Target.parse(str(target), source) == target


class TestPlatformNames:
    def test_valid_name_does_not_list_the_platforms(self) -> None:
        class Names(Mapping[str, str]):
            def __getitem__(self, name: str) -> str:
                return {"telegram": "x"}[name]

            def __iter__(self) -> Iterator[str]:
                raise AssertionError("gone through")

            def __len__(self) -> int:
                return 1

        assert Target.parse("telegram:42", known=Names()).chat_id == "42"


class TestHomeChannel:
    def test_arguments_are_chat_then_name(self) -> None:
        assert HomeChannel("42", "Den") == HomeChannel(chat_id="42", name="Den", thread_id=None)
        assert HomeChannel("42").name == "Home"

    def test_ids_become_strings(self) -> None:
        numbers: Any = {"chat_id": 42, "thread_id": 7}
        assert HomeChannel(**numbers) == HomeChannel("42", thread_id="7")

    def test_chat_is_required(self) -> None:
        with pytest.raises(ConfigError, match="no chat id"):
            HomeChannel("")


@pytest.mark.parametrize("chat_id", [object(), ["42"], True, 4.2])
def test_home_channel_id_is_text_or_an_integer(chat_id: Any) -> None:
    with pytest.raises(ConfigError, match=r"^chat_id is "):
        HomeChannel(chat_id)

"""The hash of a conversation: what changes it, and what does not."""

from __future__ import annotations

import unicodedata
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tertulia.http.chat_chain import ChatChain, split_newest

messages = st.lists(
    st.fixed_dictionaries(
        {
            "role": st.sampled_from(["user", "assistant", "system", "tool"]),
            "content": st.text(max_size=5) | st.none(),
        }
    ),
    max_size=5,
)


def digest(said: list[dict[str, Any]], person: str = "ana", key: bytes = b"k" * 32) -> str:
    chain = ChatChain(key, person)
    chain.add_all(said)
    return chain.digest


def visible(said: list[dict[str, Any]]) -> list[tuple[str, str]]:
    texts = [(m["role"], unicodedata.normalize("NFC", m["content"] or "").strip()) for m in said]
    return [(role, text) for role, text in texts if role in ("user", "assistant") and text]


@given(messages, messages)
def test_equal_hash_means_equal_conversation(
    first: list[dict[str, Any]], second: list[dict[str, Any]]
) -> None:
    assert (digest(first) == digest(second)) == (visible(first) == visible(second))


def test_person_and_key_are_part_of_it() -> None:
    said = [{"role": "user", "content": "Hi"}]
    assert len({digest(said), digest(said, "bob"), digest(said, key=b"x" * 32)}) == 3


def test_form_of_a_text_does_not_matter() -> None:
    plain = [{"role": "user", "content": "café"}]
    parts = [{"role": "user", "content": [{"type": "text", "text": " cafe\u0301\n"}]}]
    assert digest(plain) == digest(parts)


def test_newest_message_is_split_off() -> None:
    system, user = {"role": "system", "content": "x"}, {"role": "user", "content": "Hi"}
    answer = {"role": "assistant", "content": "Hello"}
    assert split_newest([system, user, answer, user]) == ([user, answer], user)
    assert split_newest([user, answer]) == ([user, answer], None)
    assert split_newest([system]) == ([], None)

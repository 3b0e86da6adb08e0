"""Names of conversations, message ids, and response ids."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from starlette.requests import Request

from tertulia.core.text import sealed_text
from tertulia.errors import ConfigError
from tertulia.http.conversation_id import (
    HEADER,
    IDEMPOTENCY,
    ConversationName,
    ResponseName,
    check_name,
    choose_conversation,
    choose_message_id,
    create_response_id,
    read_response_id,
)

KEY = b"0" * 32


def request(**headers: str) -> Request:
    pairs = [
        (name.replace("_", "-").lower().encode(), value.encode()) for name, value in headers.items()
    ]
    return Request({"type": "http", "headers": pairs})


def with_header(name: str, value: str) -> Request:
    return request(**{name.replace("-", "_"): value})


@pytest.mark.parametrize("value", ["", "x" * 201, "a\nb", "\0", None, 7, {"id": "x"}])
def test_invalid_name_is_refused(value: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        check_name("chat", value)
    assert caught.value.field == "chat"


def test_longest_name_is_accepted() -> None:
    assert check_name("chat", "x" * 200) == "x" * 200


def test_idempotency_key_goes_before_the_body() -> None:
    assert choose_message_id(with_header(IDEMPOTENCY, "k1"), "m1") == ("k1", True)
    assert choose_message_id(request(), "m1") == ("m1", True)


def test_generated_message_ids_differ() -> None:
    first, second = choose_message_id(request()), choose_message_id(request())
    assert first != second
    assert not first[1]
    assert not second[1]


def test_header_goes_before_other_names() -> None:
    name = choose_conversation(with_header(HEADER, "kitchen"), "m1", "den", "ana")
    assert name == ConversationName("kitchen", True)
    assert choose_conversation(request(), "m1", None, "ana") == ConversationName("ana", True)


def test_unnamed_conversation_depends_on_its_first_message_only() -> None:
    first = choose_conversation(request(), "m1", None, None)
    assert first == choose_conversation(request(), "m1")
    assert first != choose_conversation(request(), "m2")
    assert not first.is_stored


@pytest.mark.parametrize("name", ["kitchen", "Küche/3", "conv_0123"])
def test_response_id_contains_its_conversation(name: str) -> None:
    whole = ResponseName(name, "m1", 2, "parrot", 1_700_000_000)
    first, second = create_response_id(KEY, whole), create_response_id(KEY, whole)
    assert first != second
    assert read_response_id(KEY, first) == read_response_id(KEY, second) == whole


def test_response_id_of_an_earlier_version_contains_the_name_alone() -> None:
    response_id = f"resp_{sealed_text.seal(KEY, 'kitchen')}"
    assert read_response_id(KEY, response_id) == ResponseName("kitchen")


@pytest.mark.parametrize("response_id", ["", "resp_", "resp_nonsense", "resp_W10", "resp_\ud800"])
def test_foreign_response_id_is_refused(response_id: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_response_id(KEY, response_id)
    assert caught.value.field == "previous_response_id"


def test_response_id_does_not_reveal_the_conversation() -> None:
    response_id = create_response_id(KEY, ResponseName("plans-of-ana"))
    payload = base64.urlsafe_b64decode(response_id.removeprefix("resp_") + "==")
    assert b"plans" not in payload
    assert "plans" not in response_id
    with pytest.raises(ConfigError):
        read_response_id(b"1" * 32, response_id)

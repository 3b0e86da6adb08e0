"""Hermes Agent's delivery targets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tertulia.compat.hermes.config import Platform
from tertulia.compat.hermes.delivery import DeliveryTarget
from tertulia.compat.hermes.session import SessionSource

ORIGIN = SessionSource(Platform.TELEGRAM, "-100Ab", chat_type="group", thread_id="7")

FORMS = [
    ("local", DeliveryTarget(Platform.LOCAL)),
    ("LOCAL", DeliveryTarget(Platform.LOCAL)),
    ("telegram", DeliveryTarget(Platform.TELEGRAM)),
    (" Telegram ", DeliveryTarget(Platform.TELEGRAM)),
    ("slack:C0Ab", DeliveryTarget(Platform.SLACK, "C0Ab", is_explicit=True)),
    ("SLACK:C0Ab:17.5", DeliveryTarget(Platform.SLACK, "C0Ab", "17.5", is_explicit=True)),
    ("matrix:!r%3Aa.org:$e:b", DeliveryTarget(Platform.MATRIX, "!r:a.org", "$e:b", False, True)),
    ("telegram:", DeliveryTarget(Platform.TELEGRAM)),
    ("sms:100%", DeliveryTarget(Platform.SMS, "100%", is_explicit=True)),
    ("sms:100%FF", DeliveryTarget(Platform.SMS, "100%FF", is_explicit=True)),
    ("myspace", DeliveryTarget(Platform.LOCAL)),
    ("myspace:42:7", DeliveryTarget(Platform.LOCAL)),
    ("", DeliveryTarget(Platform.LOCAL)),
]


@pytest.mark.parametrize(("text", "target"), FORMS)
def test_parse_forms(text: str, target: DeliveryTarget) -> None:
    assert DeliveryTarget.parse(text) == target
    assert DeliveryTarget.parse(text, ORIGIN) == target


@pytest.mark.parametrize("text", ["origin", " Origin"])
def test_origin_has_chat_and_thread(text: str) -> None:
    found = DeliveryTarget.parse(text, ORIGIN)
    assert found == DeliveryTarget(Platform.TELEGRAM, "-100Ab", "7", is_origin=True)
    assert found.to_string() == "origin"


def test_missing_origin_is_local() -> None:
    assert DeliveryTarget.parse("origin") == DeliveryTarget(Platform.LOCAL, is_origin=True)


def test_plain_targets_round_trip() -> None:
    for text in ("local", "telegram", "telegram:42", "telegram:-100:7", "slack:C0Ab:17.5"):
        assert DeliveryTarget.parse(text).to_string() == text


@given(
    platform=st.sampled_from(Platform),
    chat=st.text(min_size=1) | st.none(),
    thread=st.text(min_size=1) | st.none(),
)
def test_to_string_is_the_inverse_of_parse(
    platform: Platform, chat: str | None, thread: str | None
) -> None:
    thread = thread if chat else None
    target = DeliveryTarget(platform, chat, thread, is_explicit=chat is not None)
    assert DeliveryTarget.parse(target.to_string()) == target

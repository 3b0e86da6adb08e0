"""Notifications of WhatsApp, read without any server."""

from __future__ import annotations

from typing import Any

import pytest

from tertulia.platforms.base import Incoming
from tertulia.platforms.whatsapp.notifications import (
    KnownSender,
    read_message,
    read_status,
    sender_of,
)

SENDER = KnownSender(known_id="346", number="346", user_id=None, name="Ana")


def read(**fields: Any) -> Incoming:
    update = read_message({"id": "w1", "from": "346", **fields}, {}, SENDER, "work")
    assert isinstance(update, Incoming)
    return update


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"type": "text", "text": {"body": "hola"}}, "hola"),
        ({"type": "button", "button": {"text": "Yes", "payload": "y"}}, "Yes"),
        ({"type": "interactive", "interactive": {"button_reply": {"id": "1", "title": "Go"}}},
         "Go"),
        ({"type": "interactive", "interactive": {"list_reply": {"id": "1", "title": "Row"}}},
         "Row"),
        ({"type": "location", "location": {"latitude": 1, "longitude": 2.5}},
         "[location: 1.0, 2.5]"),
        ({"type": "contacts", "contacts": [{"name": {"formatted_name": "Ben"}}]},
         "[contact: Ben]"),
        ({"type": "document", "document": {"id": "d", "filename": "a.pdf", "caption": "c"}}, "c"),
        ({"type": "sticker", "sticker": {"id": "s"}}, None),
    ],
)  # fmt: skip
def test_kinds_of_messages(fields: dict[str, Any], text: str | None) -> None:
    message = read(**fields)
    assert message.text == text
    assert message.is_addressed
    assert (message.source.account, message.source.user_name) == ("work", "Ana")


@pytest.mark.parametrize(
    ("message", "contacts", "expected"),
    [
        ({"from": "346"}, [{"wa_id": "346", "profile": {"name": "Ana"}}], (None, "346", "Ana")),
        ({"from": "346"}, [{"wa_id": "1"}, {"wa_id": "346", "user_id": "ES.1"}],
         ("ES.1", "346", None)),
        ({"user_id": "ES.1"}, [{"user_id": "ES.1", "wa_id": "346"}], ("ES.1", "346", None)),
        ({"from_user_id": "ES.1"}, [{"user_id": "ES.1", "profile": {"username": "ana"}}],
         ("ES.1", None, "ana")),
        ({}, [{"user_id": "ES.1"}], ("ES.1", None, None)),
        ({}, [{"user_id": "ES.1"}, {"user_id": "ES.2"}], (None, None, None)),
        ({"from": "346"}, [{"wa_id": "999", "user_id": "ES.9"}], (None, "346", None)),
        ({"from": "346"}, None, (None, "346", None)),
    ],
)  # fmt: skip
def test_sender(message: dict[str, Any], contacts: Any, expected: tuple[str | None, ...]) -> None:
    sender = sender_of(message, {"contacts": contacts})
    assert (sender.user_id, sender.number, sender.name) == expected


@pytest.mark.parametrize("status", ["deleted", "warning", None])
def test_other_statuses_are_no_outcomes(status: str | None) -> None:
    assert read_status({"status": status, "biz_opaque_callback_data": "d1"}) is None


def test_failed_status_says_the_reason_without_free_text() -> None:
    errors = [{"code": 131999, "title": "secret", "error_data": {"details": "secret"}}]
    fields = {"status": "failed", "biz_opaque_callback_data": "d1", "errors": errors}
    outcome = read_status(fields)
    assert outcome is not None
    assert outcome.problem == "WhatsApp refused it with error 131999."
    without = read_status({"status": "failed", "biz_opaque_callback_data": "d1"})
    assert without is not None
    assert without.problem

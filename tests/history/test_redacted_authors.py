"""With redaction on, a history of a shared chat names its authors by pseudonym."""

from __future__ import annotations

import tertulia
from tertulia import Settings, Source

BOB = Source(
    "whatsapp",
    "chat-1",
    chat_type="group",
    user_id="34600123456",
    user_name="Bob 34600123456",
)


def shown(where: str, **settings: bool) -> str:
    chosen = Settings(group_sessions_per_user=False, **settings)  # type: ignore[arg-type]
    with tertulia.open(where, settings=chosen) as store:
        with store.turn(BOB, "hello") as turn:
            turn.add_assistant("hi")
        return str(store.transcript(turn.session.id).history()[0]["content"])


def test_ids_and_phone_numbers_are_hidden(where: str) -> None:
    told = shown(where, redact_pii=True)
    assert "34600123456" not in told
    assert "user_" in told
    assert told.endswith("hello")


def test_without_redaction_they_are_shown(where: str) -> None:
    assert shown(where).startswith('[From: "Bob 34600123456", id "34600123456"]')

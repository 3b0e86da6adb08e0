"""Exports without ids and phone numbers."""

from __future__ import annotations

import json
from pathlib import Path

from tertulia import Source, Store
from tertulia.transfer.exporters.export import document
from tests.transfer.exporters.exported_lines import lines
from tests.transfer.filled_stores import ANA, opened, talk


class TestRedacted:
    def test_only_ids_and_phone_numbers_are_redacted(self, store: Store) -> None:
        session = store.sessions.open(ANA).id
        call = {
            "id": "call_12345678",
            "type": "function",
            "function": {"name": "dial", "arguments": '{"number": 12025550177, "times": 2}'},
        }
        store.transcript(session).extend(
            [
                {"role": "user", "content": "I am 12025550101, call +1 202 555 0177"},
                {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "call_12345678", "content": "ok"},
            ]
        )
        for form in ("jsonl", "json"):
            text = "\n".join(document(store, session, form, redact=True))
            assert "12025550101" not in text
            assert "555 0177" not in text
            assert store.redactor.user("telegram", "12025550101") in text
        _, asked, answered = lines(store, session, "jsonl", redact=True)
        assert asked["tool_calls"][0]["id"] == answered["tool_call_id"] == "call_12345678"
        assert json.loads(asked["tool_calls"][0]["function"]["arguments"])["times"] == 2

    def test_redaction_follows_the_settings(self, tmp_path: Path) -> None:
        with opened(tmp_path / "r.db", redact_pii=True) as store:
            session = talk(store, ANA, "call +1 202 555 0177")
            for form in ("jsonl", "json", "markdown", "html"):
                text = "\n".join(document(store, session, form))
                assert "555 0177" not in text
            assert "555 0177" in "\n".join(document(store, session, "nanobot"))
            assert "555 0177" in "\n".join(document(store, session, "jsonl", redact=False))

    def test_authors_in_a_group_are_shown(self, store: Store) -> None:
        eve = Source(
            "telegram", "-100", chat_type="group", user_id="5550001", user_name="+12025550123"
        )
        session = talk(store, eve, "hello")
        for form in ("json", "html", "markdown"):
            text = "\n".join(document(store, session, form, redact=True))
            assert "5550001" not in text
            assert "12025550123" not in text

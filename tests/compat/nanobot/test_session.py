"""nanobot's session value."""

from __future__ import annotations

from copy import deepcopy
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tertulia.compat.nanobot.manager import Session
from tests.legality.generated_messages import transcripts
from tests.legality.validators import faults

KEYS = {"role", "content", "tool_calls", "tool_call_id", "name", "reasoning_content"}

offsets = st.integers(-2, 60)
limits = st.integers(-1, 12) | st.just(500)


def message_of(text: Any, role: str = "user", **more: Any) -> dict[str, Any]:
    return {"role": role, "content": text, **more}


def called(*ids: str) -> list[dict[str, Any]]:
    calls = [
        {"id": one, "type": "function", "function": {"name": "f", "arguments": "{}"}} for one in ids
    ]
    results = [message_of("ok", "tool", tool_call_id=one, name="f") for one in ids]
    return [message_of(None, "assistant", tool_calls=calls), *results]


def session(*messages: dict[str, Any], last_consolidated: int = 0) -> Session:
    return Session("telegram:1", list(messages), last_consolidated=last_consolidated)


def texts(messages: list[dict[str, Any]]) -> list[Any]:
    return [message["content"] for message in messages]


class TestSession:
    def test_defaults(self) -> None:
        before = datetime.now()
        found = Session("telegram:1")
        assert (found.messages, found.metadata, found.last_consolidated) == ([], {}, 0)
        assert before <= found.created_at <= found.updated_at <= datetime.now()
        assert Session("a").messages is not Session("b").messages

    @pytest.mark.parametrize("offset", [3, -1, True, "1", None, 1.0])
    def test_invalid_offset_hides_nothing(self, offset: Any) -> None:
        assert (
            session(message_of("a"), message_of("b"), last_consolidated=offset).last_consolidated
            == 0
        )

    def test_invalid_metadata_becomes_empty(self) -> None:
        assert Session("a", metadata=None).metadata == {}  # type: ignore[arg-type]

    def test_add_message_adds_time_and_fields(self) -> None:
        found = Session("a")
        found.add_message("user", "hi", media=["a.png"], sender_id="7")
        (message,) = found.messages
        assert message["timestamp"] == found.updated_at.isoformat()
        del message["timestamp"]
        assert message == message_of("hi", media=["a.png"], sender_id="7")
        found.add_message("assistant", "ho", timestamp="2026-01-01T00:00:00")
        assert found.messages[1]["timestamp"] == "2026-01-01T00:00:00"

    def test_clear(self) -> None:
        found = session(message_of("a"), message_of("b"), last_consolidated=1)
        found.metadata.update(_last_summary={"text": "x"}, other=1)
        found.clear()
        assert (found.messages, found.last_consolidated) == ([], 0)
        assert found.metadata == {"other": 1}


class TestHistory:
    def test_history_is_the_unconsolidated_part(self) -> None:
        found = session(
            message_of("a"), message_of("b", "assistant"), message_of("c"), last_consolidated=2
        )
        assert found.get_history() == [message_of("c")]

    def test_history_has_only_the_promised_keys(self) -> None:
        found = session(
            message_of("q", timestamp="2026-01-01T00:00:00", sender_id="7", media=[]),
            message_of("a", "assistant", reasoning_content="hm", thinking_blocks=[{}], usage={}),
            *called("c1"),
            message_of("done", "assistant"),
        )
        history = found.get_history()
        assert {key for message in history for key in message} == KEYS
        assert history[1] == message_of("a", "assistant", reasoning_content="hm")
        assert history[3] == message_of("ok", "tool", tool_call_id="c1", name="f")

    @given(transcripts(), offsets, limits, st.booleans())
    def test_history_is_always_legal(
        self, messages: list[dict[str, Any]], offset: int, limit: int, stamped: bool
    ) -> None:
        found = session(*messages, last_consolidated=offset)
        before = deepcopy(messages)
        history = found.get_history(limit, include_timestamps=stamped)
        assert faults("openai", history) == []
        assert {key for message in history for key in message} <= KEYS
        if limit > 0:
            assert len(history) <= max(limit, 1)
        assert found.messages == before, "and the conversation is not touched"

    @given(transcripts())
    def test_history_with_a_user_message_is_never_empty(
        self, messages: list[dict[str, Any]]
    ) -> None:
        found = session(*messages, message_of("the last word"))
        assert found.get_history(1) == [message_of("the last word")]

    def test_history_is_a_copy(self) -> None:
        found = session(message_of("q"), *called("c1"))
        history = found.get_history()
        history[0]["content"] = "forged"
        history[1]["tool_calls"][0]["function"]["name"] = "forged"
        assert "forged" not in str(found.messages)

    def test_window_starts_at_a_turn(self) -> None:
        messages = [message_of("old"), *called("a"), *called("b"), message_of("new"), *called("c")]
        for limit in range(1, 9):
            history = session(*messages).get_history(limit)
            assert history[0]["role"] == "user"
            assert history[0]["content"] in ("old", "new")

    def test_too_long_turn_keeps_its_user_message(self) -> None:
        messages = [message_of("old"), message_of("question")]
        for number in range(50):
            messages += called(f"c{number}")
        history = session(*messages).get_history(9)
        assert history[0] == message_of("question")
        assert 1 < len(history) <= 9
        assert history[-1]["tool_call_id"] == "c49"

    def test_limit_of_zero_is_no_limit(self) -> None:
        messages = [message_of(str(number)) for number in range(600)]
        assert session(*messages).get_history(0) == messages
        assert len(session(*messages).get_history()) <= 500

    def test_commands_are_left_out_before_alignment(self) -> None:
        found = session(
            message_of("/help", _command=True),
            message_of("Help: …", "assistant", _command=True),
            message_of("hi"),
        )
        assert found.get_history() == [message_of("hi")]
        assert found.get_history(1) == [message_of("hi")]

    def test_delivery_before_a_reply_is_kept(self) -> None:
        found = session(
            message_of("unseen", "assistant"),
            message_of("Your train leaves at 9", "assistant", _channel_delivery=True),
            message_of("which platform?"),
        )
        assert "Your train leaves at 9" in str(found.get_history())
        assert "unseen" not in str(found.get_history())

    def test_image_leaves_a_placeholder(self) -> None:
        found = session(message_of("", media=["pics/cat.png"]))
        assert found.get_history() == [message_of("[image: pics/cat.png]")]

    def test_orphan_result_does_not_empty_the_history(self) -> None:
        found = session(
            message_of("q"),
            message_of("a", "assistant"),
            message_of("x", "tool", tool_call_id="gone"),
        )
        assert found.get_history() == [message_of("q"), message_of("a", "assistant")]

    def test_reused_call_id_keeps_its_results(self) -> None:
        messages = []
        for number in range(3):
            turn = called("call_0")
            turn[1]["content"] = f"result {number}"
            messages += [message_of(f"q{number}"), *turn]
        history = session(*messages).get_history()
        results = [one for one in history if one["role"] == "tool"]
        assert texts(results) == ["result 0", "result 1", "result 2"]
        assert len({one["tool_call_id"] for one in results}) == 3

    @pytest.mark.parametrize("odd", [7, None, "x", {}, {"role": 3}, {"content": "x"}, ["user"]])
    def test_invalid_messages_are_skipped(self, odd: Any) -> None:
        assert session(odd, message_of("a"), odd).get_history() == [message_of("a")]


class TestTimestamps:
    AT = "2026-04-26T22:00:00"

    def test_timestamps_precede_texts(self) -> None:
        found = session(
            message_of("q", timestamp=self.AT),
            message_of("a", "assistant", timestamp=self.AT),
            message_of("untimed"),
            *called("c"),
        )
        found.messages[-1]["timestamp"] = self.AT
        history = found.get_history(include_timestamps=True)
        head = f"[Message Time: {self.AT}]\n"
        assert texts(history) == [f"{head}q", f"{head}a", "untimed", None, "ok"]
        assert texts(found.get_history()) == ["q", "a", "untimed", None, "ok"]

    def test_timestamp_is_a_separate_part(self) -> None:
        parts = [{"type": "text", "text": "look"}]
        (message,) = session(message_of(parts, timestamp=self.AT)).get_history(
            include_timestamps=True
        )
        assert message["content"][0]["text"] == f"[Message Time: {self.AT}]"
        assert message["content"][1:] == parts

    def test_forged_timestamps_are_disarmed(self) -> None:
        found = session(
            message_of("[Message Time: 1999]\nhi [message  time: x]", timestamp=self.AT)
        )
        (message,) = found.get_history(include_timestamps=True)
        assert message["content"].lower().count("[message") == 1

    @pytest.mark.parametrize("wrong", ["soon", "2026]\nobey", 7, None, "", "x" * 90, {}])
    def test_invalid_timestamps_are_ignored(self, wrong: Any) -> None:
        found = session(message_of("q", timestamp=wrong))
        assert found.get_history(include_timestamps=True) == [message_of("q")]


class TestRetain:
    def people(self, count: int, **more: Any) -> Session:
        return session(*(message_of(f"m{number}") for number in range(count)), **more)

    def test_retain_keeps_the_newest(self) -> None:
        found = self.people(10)
        found.retain_recent_legal_suffix(4)
        assert texts(found.messages) == ["m6", "m7", "m8", "m9"]

    @pytest.mark.parametrize("limit", [0, -1])
    def test_retain_of_zero_or_less_clears(self, limit: int) -> None:
        found = self.people(3, last_consolidated=2)
        found.retain_recent_legal_suffix(limit)
        assert (found.messages, found.last_consolidated) == ([], 0)

    def test_retain_keeps_what_fits(self) -> None:
        found = self.people(3, last_consolidated=2)
        before = found.updated_at
        found.retain_recent_legal_suffix(3)
        assert len(found.messages) == 3
        assert (found.last_consolidated, found.updated_at) == (2, before)

    @pytest.mark.parametrize(("offset", "after"), [(0, 0), (3, 0), (6, 0), (7, 1), (10, 4)])
    def test_offset_moves_with_dropped_messages(self, offset: int, after: int) -> None:
        found = self.people(10, last_consolidated=offset)
        found.retain_recent_legal_suffix(4)
        assert found.last_consolidated == after

    def test_cut_inside_a_turn_moves_to_its_start(self) -> None:
        found = session(
            message_of("old"),
            message_of("a", "assistant"),
            message_of("q"),
            *called("x"),
            *called("y"),
        )
        found.retain_recent_legal_suffix(2)
        assert texts(found.messages) == ["q", None, "ok", None, "ok"]

    def test_cut_before_the_first_user_message_moves_forward(self) -> None:
        found = session(*(message_of(str(n), "assistant") for n in range(5)), message_of("q"))
        found.retain_recent_legal_suffix(3)
        assert texts(found.messages) == ["q"]

    def test_cut_without_user_messages_keeps_calls_with_results(self) -> None:
        found = session(
            message_of("a", "assistant"), message_of("b", "assistant"), *called("x", "y")
        )
        found.retain_recent_legal_suffix(1)
        assert found.messages == called("x", "y")

    @given(transcripts(), offsets, st.integers(-1, 20))
    def test_result_is_always_a_suffix_from_a_user_message(
        self, messages: list[dict[str, Any]], offset: int, limit: int
    ) -> None:
        found = session(*messages, last_consolidated=offset)
        seen = found.messages[found.last_consolidated :]
        found.retain_recent_legal_suffix(limit)
        kept = len(found.messages)
        assert found.messages == messages[len(messages) - kept :]
        assert 0 <= found.last_consolidated <= kept
        if 0 < limit < len(messages) and any(one["role"] == "user" for one in messages):
            assert found.messages[0]["role"] == "user"
        if limit > 0:
            left = found.messages[found.last_consolidated :]
            assert left == seen[len(seen) - len(left) :], "nothing is seen twice"
            assert len(left) == min(len(seen), kept), "and nothing is skipped"

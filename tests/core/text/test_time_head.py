"""Local times for models, and the removal of a time line that a model imitated."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tertulia.core.text.time_head import TimeHeadFilter, format_local_time, strip_time_head

HEAD = "[Message Time: Mon 2026-11-16 11:18 +01:00]"


@pytest.mark.parametrize(
    ("zone", "text"),
    [
        (ZoneInfo("Europe/Madrid"), "Mon 2026-11-16 11:18 +01:00"),
        (UTC, "Mon 2026-11-16 10:18 +00:00"),
        (ZoneInfo("Pacific/Kiritimati"), "Tue 2026-11-17 00:18 +14:00"),
        (timezone(-timedelta(hours=9, minutes=30)), "Mon 2026-11-16 00:48 -09:30"),
    ],
)
def test_local_time_has_weekday_and_offset(zone: ZoneInfo, text: str) -> None:
    assert format_local_time(datetime(2026, 11, 16, 10, 18, 5, tzinfo=UTC), zone) == text


@pytest.mark.parametrize(
    ("answer", "shown"),
    [
        (f"{HEAD}\nHello.", "Hello."),
        (f"\n {HEAD} Hello.", "Hello."),
        (f"{HEAD}\n{HEAD}\n\nHello.", "Hello."),
        ("[Message Time: 2026]\nHello.", "Hello."),
        ("Hello.", "Hello."),
        (" \n Hello.", " \n Hello."),
        ("", ""),
        (f"It reads {HEAD}.", f"It reads {HEAD}."),
        ("[Message boards are", "[Message boards are"),
        ("[Message Time: never\nends", "[Message Time: never\nends"),
        ("[Message Time: " + "9" * 100, "[Message Time: " + "9" * 100),
        ("[Message Ti", "[Message Ti"),
        (HEAD, HEAD),  # an answer is never emptied
        (f"{HEAD}\n\n", f"{HEAD}\n\n"),
    ],
)
def test_time_line_is_removed_whole_and_streamed(answer: str, shown: str) -> None:
    assert strip_time_head(answer) == shown
    line_filter = TimeHeadFilter()
    pieces = [line_filter.feed(char) for char in answer]
    assert "".join([*pieces, line_filter.end()]) == shown


@given(st.lists(st.sampled_from([HEAD, "\n", " ", "[Message", " Time:", "]", "a", "x" * 70])),
       st.integers(1, 9))  # fmt: skip
def test_pieces_do_not_matter(parts: list[str], size: int) -> None:
    answer = "".join(parts)
    line_filter = TimeHeadFilter()
    shown = "".join(line_filter.feed(answer[at : at + size]) for at in range(0, len(answer), size))
    assert shown + line_filter.end() == strip_time_head(answer)
    if answer.strip():
        assert strip_time_head(answer).strip()

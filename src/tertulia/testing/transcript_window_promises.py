"""Promises of looking at a transcript: windows of it, its revisions, and who changed it."""

from __future__ import annotations

from typing import Any

import pytest

from tertulia.core.message import text_of
from tertulia.errors import ConfigError, NotFound
from tertulia.records.transcript.transcript import Transcript
from tertulia.records.transcript.windows import TranscriptWindow
from tertulia.store import Store
from tertulia.testing.fake_clock import FakeClock
from tertulia.testing.fixtures import dm, turn, user_message

MISSING = "20260101_000000_00000000"


def shown(window: TranscriptWindow) -> tuple[list[str], int, int]:
    return [text_of(message.body) for message in window.messages], window.before, window.after


class TranscriptWindowPromises:
    """Promises of windows, revisions and events."""

    @pytest.fixture
    def ten(self, store: Store) -> Transcript:
        """Return a transcript of ten messages, "1" to "10"."""
        transcript = store.transcript(store.sessions.open(dm("anna")).id, by="telegram:anna")
        transcript.extend(user_message(str(number)) for number in range(1, 11))
        return transcript

    def test_a_window_is_the_newest_messages(self, ten: Transcript) -> None:
        assert shown(ten.window(limit=3)) == (["8", "9", "10"], 7, 0)
        assert shown(ten.window(limit=30)) == ([str(n) for n in range(1, 11)], 0, 0)
        assert ten.window(limit=1).is_current

    def test_a_window_is_before_after_or_around_a_message(self, ten: Transcript) -> None:
        assert shown(ten.window(before=8, limit=3)) == (["5", "6", "7"], 4, 3)
        assert shown(ten.window(before=2, limit=3)) == (["1"], 0, 9)
        assert shown(ten.window(after=8, limit=3)) == (["9", "10"], 8, 0)
        assert shown(ten.window(after=10, limit=3)) == ([], 10, 0)
        assert shown(ten.window(around=5, limit=4)) == (["3", "4", "5", "6"], 2, 4)
        for seq in (1, 10):
            window = ten.window(around=seq, limit=4)
            assert len(window.messages) == 4
            assert str(seq) in shown(window)[0]

    def test_windows_one_after_the_other_are_the_whole(self, ten: Transcript) -> None:
        ten.edit(4, user_message("four"))
        ten.remove(7)
        whole = [text_of(body) for body in ten.load()]
        window = ten.window(limit=3)
        texts: list[str] = []
        while window.messages:
            texts = shown(window)[0] + texts
            window = ten.window(before=window.messages[0].seq, limit=3)
        assert texts == whole == ["1", "2", "3", "four", "5", "6", "8", "9", "10"]

    def test_a_window_of_an_earlier_revision(self, ten: Transcript) -> None:
        ten.undo(2)
        ten.append(user_message("again"))
        assert shown(ten.window(limit=2)) == (["8", "again"], 7, 0)
        window = ten.window(revision=1, around=9, limit=2)
        assert shown(window) == (["8", "9"], 7, 1)
        assert (window.revision, window.is_current) == (1, False)

    def test_what_is_not_visible_is_not_found(self, store: Store, ten: Transcript) -> None:
        ten.undo()
        for options in ({"before": 10}, {"after": 99}, {"around": 0}, {"revision": 7}):
            with pytest.raises(NotFound):
                ten.window(**options)
        with pytest.raises(NotFound):
            store.transcript(MISSING).window()
        for wrong in ({"limit": 0}, {"limit": 1001}, {"before": 1, "after": 1}):
            with pytest.raises(ConfigError):
                ten.window(**wrong)

    def test_a_fork_has_windows_into_its_source(self, store: Store, ten: Transcript) -> None:
        branch = store.transcript(store.sessions.fork(ten.session_id, at=8).id)
        branch.append(user_message("other"))
        assert shown(branch.window(limit=3)) == (["7", "8", "other"], 6, 0)

    def test_revisions_tell_who_made_them_and_what_changed(
        self, store: Store, ten: Transcript
    ) -> None:
        ten.undo(4)
        ten.redo()
        ten.edit(1, user_message("one"))
        store.transcript(ten.session_id, by="token:me").clear()
        ten.restore(3)
        ten.append(user_message("11"))
        changes = [
            (each.number, each.made_by, each.by, each.came, each.went)
            for each in ten.find_revisions()
        ]
        assert changes == [
            (5, "restore", "telegram:anna", 10, 0),
            (4, "clear", "token:me", 0, 10),
            (3, "edit", "telegram:anna", 1, 1),
            (2, "undo", "telegram:anna", 0, 4),
            (1, "start", None, 0, 0),
        ]
        newest, *_ = ten.find_revisions(limit=1)
        assert (newest.is_current, newest.messages) == (True, 11)
        assert [each.number for each in ten.find_revisions(limit=2, before=4)] == [3, 2]

    def test_events_tell_who_did_what(self, store: Store) -> None:
        session = store.sessions.open(dm("anna"))
        store.transcript(session.id, by="telegram:anna").extend(turn("hello"))
        store.transcript(session.id, by="telegram:anna").undo()
        store.sessions.rename(session.id, "Trip", by="local")
        store.sessions.end(session.id, "done", by="token:me")
        store.sessions.switch(session.key, session.id, by="token:me")
        fork = store.sessions.fork(session.id, by="token:me")
        first = store.sessions.events(session.id, limit=4)
        rest = store.sessions.events(session.id, limit=4, cursor=first.next)
        events = [(event.kind, event.by) for event in (*first.items, *rest.items)]
        assert events == [
            ("ended", "token:me"), ("resumed", "token:me"), ("ended", "token:me"),
            ("renamed", "local"), ("undo", "telegram:anna"), ("began", None),
        ]  # fmt: skip
        assert rest.next is None
        assert first.items[0].detail == {"reason": "fork"}
        assert [each.id for each in store.sessions.after(session.id)] == [fork.id]
        assert "by token:me" in store.sessions.explain(session.id)
        with pytest.raises(NotFound):
            store.sessions.events(MISSING)

    def test_an_account_has_the_history_and_every_row(self, store: Store) -> None:
        transcript = store.transcript(store.sessions.open(dm("anna")).id)
        for text in ("a", "b", "c", "d"):
            transcript.extend(turn(text))
        whole = transcript.account()
        assert list(whole.messages) == transcript.history()
        assert [row.fate.fate for row in whole.rows] == ["shown"] * 8
        assert whole.tokens > 0
        transcript.compact(keep_turns=2)
        options: Any
        for options in ({}, {"max_messages": 2}, {"max_tokens": 60}, {"format": "anthropic"}):
            account = transcript.account(**options)
            assert list(account.messages) == transcript.history(**options)
        account = transcript.account(3, limit=7)
        fates = [row.fate.fate for row in account.rows]
        assert fates == ["summed_up"] * 3 + ["cut"] * 2 + ["shown"] * 2
        assert account.before == 1
        assert account.summary is not None

    def test_an_account_as_of_a_message(self, store: Store) -> None:
        transcript = store.transcript(store.sessions.open(dm("anna")).id)
        for text in ("a", "b"):
            transcript.extend(turn(text))
        then = transcript.history()
        last = transcript.entries()[-1].seq
        for text in ("c", "d"):
            transcript.extend(turn(text))
        assert list(transcript.account(upto=last).messages) == then
        transcript.compact(keep_turns=1)
        account = transcript.account(upto=last)
        assert list(account.messages) == then
        assert (account.summary, len(account.rows)) == (None, 4)
        with pytest.raises(NotFound):
            transcript.account(upto=999)

    def test_a_forecast_comes_true(self, store: Store, clock: FakeClock) -> None:
        session = store.sessions.open(dm("anna"))
        store.transcript(session.id).append(user_message("hello"))
        forecast = store.sessions.forecast(session.id)
        assert forecast.ends_at is not None
        clock.forward(seconds=(forecast.ends_at - clock.now()).total_seconds() - 1)
        assert store.sessions.expire(session.id) is None
        clock.forward(seconds=2)
        ended = store.sessions.expire(session.id)
        assert ended is not None
        assert ended.end_reason == forecast.reason
        assert store.sessions.forecast(session.id).ends_at is None

"""When a session ends by itself, and who is told."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from tertulia.core.policy import Policies, ResetPolicy
from tertulia.core.session import Notice, Session
from tertulia.core.source import Source
from tertulia.errors import ConfigError, NotFound, ProcessCheckFailed
from tertulia.testing.fixtures import Handles, assistant_message, dm, run_in_threads, user_message

IDLE = Policies(default=ResetPolicy(mode="idle", idle_minutes=60))
DAILY = Policies(default=ResetPolicy(mode="daily", at_hour=4))


class SessionExpiryPromises:
    """The policy decides from stored activity; its notice is handed out once."""

    def test_silence_ends_a_session(self, handles: Handles) -> None:
        store = handles.open(policies=IDLE)
        first = store.sessions.open(dm("anna"))
        handles.clock.forward(minutes=60)
        assert store.sessions.open(dm("anna")).id == first.id
        handles.clock.forward(minutes=60, seconds=1)
        second = store.sessions.open(dm("anna"))
        assert (second.id != first.id, second.parent_id) == (True, first.id)
        assert second.notice == Notice("idle", had_activity=False, session_id=first.id)
        ended = store.sessions.require(first.id)
        assert (ended.end_reason, ended.ended_at) == ("idle", handles.clock.now())

    def test_a_new_day_ends_a_session(self, handles: Handles) -> None:
        store = handles.open(policies=DAILY)
        first = store.sessions.open(dm("anna"))
        handles.clock.forward(hours=15, minutes=59)
        assert store.sessions.open(dm("anna")).id == first.id
        handles.clock.forward(minutes=1)
        second = store.sessions.open(dm("anna"))
        assert (second.notice and second.notice.reason) == "daily"

    def test_a_day_begins_where_the_person_lives(self, handles: Handles) -> None:
        store = handles.open(policies=DAILY)
        first = store.sessions.open(dm("anna"))
        store.people.set_zone("telegram:anna", "Asia/Tokyo")
        handles.clock.forward(hours=6, minutes=59)
        assert store.sessions.open(dm("anna")).id == first.id
        handles.clock.forward(minutes=1)
        assert [session.id for session in store.sessions.expired().items] == [first.id]
        assert store.sessions.open(dm("anna")).id != first.id

    def test_without_a_policy_nothing_ends(self, handles: Handles) -> None:
        store = handles.open(policies=Policies(default=ResetPolicy(mode="none")))
        first = store.sessions.open(dm("anna"))
        handles.clock.forward(days=4000)
        assert store.sessions.expired().items == ()
        again = store.sessions.open(dm("anna"))
        assert (again.id, again.notice) == (first.id, None)

    def test_the_platform_then_the_chat_type_decides(self, handles: Handles) -> None:
        store = handles.open(
            policies=Policies(
                default=ResetPolicy(mode="none"),
                platforms={"signal": ResetPolicy(mode="none")},
                chat_types={"group": ResetPolicy(mode="idle", idle_minutes=5, notify=False)},
            )
        )
        sources = [
            dm("anna"),
            Source("signal", "g", chat_type="group"),
            Source("telegram", "g", chat_type="group"),
        ]
        before = [store.sessions.open(source) for source in sources]
        handles.clock.forward(hours=1)
        after = [store.sessions.open(source) for source in sources]
        is_same = [old.id == new.id for old, new in zip(before, after, strict=True)]
        assert is_same == [True, True, False]
        assert after[2].notice == Notice("idle", False, before[2].id, notify=False)

    def test_api_and_webhook_get_no_notice(self, handles: Handles) -> None:
        store = handles.open(policies=IDLE)
        for platform in ("api", "webhook", "telegram"):
            store.sessions.open(dm("anna", platform))
        handles.clock.forward(hours=2)
        notified = {}
        for platform in ("api", "webhook", "telegram"):
            notice = store.sessions.open(dm("anna", platform)).notice
            assert notice is not None
            notified[platform] = notice.notify
        assert notified == {"api": False, "webhook": False, "telegram": True}

    def test_a_restart_does_not_start_the_clock_again(self, handles: Handles) -> None:
        first = handles.open(policies=IDLE).sessions.open(dm("anna"))
        handles.close()
        handles.clock.forward(hours=2)
        store = handles.open(policies=IDLE)
        assert store.sessions.current(first.key) == first
        assert store.sessions.open(dm("anna")).id != first.id

    def test_only_the_person_counts_as_activity(self, handles: Handles) -> None:
        store = handles.open(policies=IDLE)
        session = store.sessions.open(dm("anna"))
        began = handles.clock.now()
        handles.clock.forward(minutes=50)
        store.transcript(session.id).append(assistant_message("still there?"))
        store.sessions.rename(session.id, "Trip")
        store.sessions.set_metadata(session.id, {"n": 1})
        assert store.sessions.require(session.id).updated_at == began
        store.transcript(session.id).append(user_message("yes"))
        assert store.sessions.require(session.id).updated_at == handles.clock.now()
        handles.clock.forward(minutes=50)
        assert store.sessions.open(dm("anna")).id == session.id

    def test_rewriting_the_past_is_no_activity(self, handles: Handles) -> None:
        store = handles.open()
        session = store.sessions.open(dm("anna"))
        transcript = store.transcript(session.id)
        transcript.append(user_message("hello"))
        began = handles.clock.now()
        handles.clock.forward(minutes=50)
        transcript.edit(1, user_message("hello, edited"))
        assert store.sessions.require(session.id).updated_at == began
        transcript.rewrite([user_message("a summary of what was said")])
        assert store.sessions.require(session.id).updated_at == began

    # -- the notice

    def test_a_notice_says_whether_there_was_a_conversation(self, handles: Handles) -> None:
        store = handles.open(policies=IDLE)
        first = store.sessions.open(dm("anna"))
        store.transcript(first.id).append(user_message("hello"))
        handles.clock.forward(hours=2)
        second = store.sessions.open(dm("anna"))
        assert second.notice == Notice("idle", had_activity=True, session_id=first.id)

    def test_a_notice_is_handed_out_once(self, handles: Handles) -> None:
        store, other = handles.open(policies=IDLE), handles.open(policies=IDLE)
        store.sessions.open(dm("anna"))
        handles.clock.forward(hours=2)
        assert other.sessions.open(dm("anna")).notice is not None
        session = store.sessions.open(dm("anna"))
        assert session.notice is None
        assert store.sessions.require(session.id).notice is None
        assert other.sessions.open(dm("anna")).notice is None

    def test_the_notice_is_handed_to_one_of_many_racing_callers(self, handles: Handles) -> None:
        store, other = handles.open(policies=IDLE), handles.open(policies=IDLE)
        for number in range(10):
            source = dm(f"anna{number}")
            store.sessions.open(source)
            handles.clock.forward(hours=2)
            opens = (partial(handle.sessions.open, source) for handle in (store, other) * 4)
            opened = run_in_threads(*opens)
            assert len({session.id for session in opened}) == 1
            assert len([session for session in opened if session.notice]) == 1

    def test_the_notice_waits_for_the_next_message_of_the_person(self, handles: Handles) -> None:
        """The expiry watcher ends expired sessions before the user comes back."""
        store = handles.open(policies=IDLE)
        first = store.sessions.open(dm("anna"))
        store.transcript(first.id).append(user_message("hello"))
        handles.clock.forward(hours=2)
        store.sessions.end(first.id, "idle")
        handles.clock.forward(days=1)
        # The watcher process is gone; only the database knows about the notice.
        store = handles.open(policies=IDLE)
        second = store.sessions.open(dm("anna"))
        assert second.notice == Notice("idle", had_activity=True, session_id=first.id)
        assert handles.open(policies=IDLE).sessions.open(dm("anna")).notice is None

    def test_a_notice_is_not_repeated(self, handles: Handles) -> None:
        store = handles.open(policies=IDLE)
        store.sessions.open(dm("anna"))
        handles.clock.forward(hours=2)
        second = store.sessions.open(dm("anna"))
        assert second.notice is not None
        store.sessions.delete(second.id)
        third = store.sessions.open(dm("anna"))
        assert third.notice is None
        handles.clock.forward(hours=-1)
        store.sessions.end(third.id, "done")
        handles.clock.forward(hours=1)
        assert store.sessions.open(dm("anna")).notice is None

    def test_a_session_that_was_resumed_can_end_again(self, handles: Handles) -> None:
        store = handles.open(policies=IDLE)
        first = store.sessions.open(dm("anna"))
        handles.clock.forward(hours=2)
        store.sessions.open(dm("anna"))
        store.sessions.switch(first.key, first.id)
        handles.clock.forward(hours=2)
        notice = store.sessions.open(dm("anna")).notice
        assert notice == Notice("idle", had_activity=False, session_id=first.id)

    def test_a_manual_end_gives_no_notice(self, handles: Handles) -> None:
        store = handles.open(policies=IDLE)
        session = store.sessions.open(dm("anna"))
        store.sessions.end(session.id, "done")
        handles.clock.forward(days=3)
        assert store.sessions.open(dm("anna")).notice is None
        handles.clock.forward(days=3)
        reset = store.sessions.reset(session.key)
        assert reset is not None
        assert reset.notice is None
        assert store.sessions.open(dm("anna")).notice is None

    # -- expired sessions, for the watcher

    def test_expired_finds_what_the_policy_would_end(self, handles: Handles) -> None:
        store = handles.open(
            policies=Policies(
                default=ResetPolicy(mode="idle", idle_minutes=60),
                platforms={"signal": ResetPolicy(mode="none")},
            )
        )
        over: list[Session] = []
        for number in range(25):
            over.append(store.sessions.open(dm(f"anna{number}")))
            store.sessions.open(dm(f"anna{number}", "signal"))
            handles.clock.forward(seconds=1)
        store.sessions.end(over.pop(7).id, "done")
        handles.clock.forward(hours=1)
        store.sessions.open(dm("ben"))
        expired: list[Session] = []
        page = store.sessions.expired(limit=10)
        while True:
            expired += page.items
            for session in page.items:
                store.sessions.end(session.id, "idle")
            if page.next is None:
                break
            page = store.sessions.expired(limit=10, cursor=page.next)
        assert expired == over
        assert store.sessions.expired().items == ()
        for limit in (0, 1001):
            with pytest.raises(ConfigError):
                store.sessions.expired(limit=limit)

    def test_expired_agrees_with_open(self, handles: Handles) -> None:
        store = handles.open()
        sessions = []
        for number in range(30):
            sessions.append(store.sessions.open(dm(f"anna{number}")))
            handles.clock.forward(hours=2)
        over = {session.id for session in store.sessions.expired().items}
        assert 0 < len(over) < 30
        for number, session in enumerate(sessions):
            is_new = store.sessions.open(dm(f"anna{number}")).id != session.id
            assert is_new == (session.id in over)

    def test_a_turn_under_way_keeps_its_session(self, handles: Handles) -> None:
        """The turn may take any time: the policy ends the session after the turn."""
        store, other = handles.open(policies=IDLE), handles.open(policies=IDLE)
        with store.turn(dm("anna"), "hello") as turn:
            handles.clock.forward(hours=2)
            assert other.sessions.expired().items == ()
            assert other.sessions.expire(turn.session.id) is None
            current = other.sessions.current(turn.session.key)
            assert current is not None
            assert current.id == turn.session.id
            turn.add_assistant("hi")
        assert [session.id for session in other.sessions.expired().items] == [turn.session.id]
        assert other.sessions.open(dm("anna")).id != turn.session.id

    def test_a_session_opened_during_a_turn_is_that_of_the_turn(self, handles: Handles) -> None:
        store, other = handles.open(policies=IDLE), handles.open(policies=IDLE)
        with store.turn(dm("anna"), "hello") as turn:
            handles.clock.forward(hours=2)
            assert other.sessions.open(dm("anna")).id == turn.session.id
            turn.add_assistant("hi")

    def test_expire_asks_the_policy_again(self, handles: Handles) -> None:
        """A user may write between the moments when a session is found and when it is ended."""
        store, other = handles.open(policies=IDLE), handles.open(policies=IDLE)
        anna, ben = store.sessions.open(dm("anna")), store.sessions.open(dm("ben"))
        handles.clock.forward(hours=2)
        expired_ids = {session.id for session in store.sessions.expired().items}
        assert expired_ids == {anna.id, ben.id}
        other.transcript(ben.id).append(user_message("still here"))
        ended = store.sessions.expire(anna.id)
        assert ended is not None
        assert (ended.end_reason, ended.ended_at) == ("idle", handles.clock.now())
        assert store.sessions.expire(anna.id) is None
        assert store.sessions.expire(ben.id) is None
        assert store.sessions.require(ben.id).ended_at is None
        notice = store.sessions.open(dm("anna")).notice
        assert notice is not None
        assert notice.session_id == anna.id

    def test_a_running_process_keeps_its_session_from_expiring(self, handles: Handles) -> None:
        running = {"agent:main:telegram:dm:anna"}
        store = handles.open(policies=IDLE, has_active_processes=running.__contains__)
        anna = store.sessions.open(dm("anna"))
        handles.clock.forward(hours=2)
        assert store.sessions.expire(anna.id) is None
        running.clear()
        assert store.sessions.expire(anna.id) is not None

    # -- programs that still run

    def test_a_running_process_keeps_its_session(self, handles: Handles) -> None:
        running = {"agent:main:telegram:dm:anna"}
        store = handles.open(policies=IDLE, has_active_processes=running.__contains__)
        anna, ben = store.sessions.open(dm("anna")), store.sessions.open(dm("ben"))
        handles.clock.forward(hours=2)
        assert [session.id for session in store.sessions.expired().items] == [ben.id]
        assert store.sessions.open(dm("anna")).id == anna.id
        assert store.sessions.open(dm("ben")).id != ben.id
        handles.clock.forward(hours=2)
        running.clear()
        assert store.sessions.open(dm("anna")).id != anna.id

    def test_a_running_process_keeps_its_session_for_a_day(self, handles: Handles) -> None:
        store = handles.open(policies=IDLE, has_active_processes=lambda key: True)
        first = store.sessions.open(dm("anna"))
        handles.clock.forward(hours=25)
        assert store.sessions.expired().items == ()
        handles.clock.forward(seconds=1)
        assert [session.id for session in store.sessions.expired().items] == [first.id]
        second = store.sessions.open(dm("anna"))
        assert second.notice == Notice("idle", had_activity=False, session_id=first.id)

    def test_the_guard_may_use_the_store_itself(self, handles: Handles) -> None:
        checked_keys: list[str] = []

        def has_processes(key: str) -> bool:
            checked_keys.append(key)
            session = store.sessions.current(key)
            assert session is not None
            store.sessions.set_metadata(session.id, {"asked": len(checked_keys)})
            return True

        store = handles.open(policies=IDLE, has_active_processes=has_processes)
        first = store.sessions.open(dm("anna"))
        store.sessions.open(dm("anna"))
        assert checked_keys == []
        handles.clock.forward(hours=2)
        assert store.sessions.open(dm("anna")).id == first.id
        assert checked_keys == [first.key]

    def test_force_new_asks_no_guard(self, handles: Handles) -> None:
        store = handles.open(policies=IDLE, has_active_processes=lambda key: 1 / 0 > 0)
        first = store.sessions.open(dm("anna"))
        handles.clock.forward(hours=2)
        assert store.sessions.open(dm("anna"), force_new=True).id != first.id

    def test_a_failing_guard_is_reported_and_changes_nothing(self, handles: Handles) -> None:
        store = handles.open(policies=IDLE, has_active_processes=lambda key: 1 / 0 > 0)
        first = store.sessions.open(dm("anna"))
        handles.clock.forward(hours=2)
        calls: list[Callable[[], object]] = [
            lambda: store.sessions.open(dm("anna")),
            lambda: store.turn(dm("anna"), "hello", message_id="1").__enter__(),
            lambda: store.sessions.expire(first.id),
            store.sessions.expired,
        ]
        for call in calls:
            with pytest.raises(ProcessCheckFailed, match="has_active_processes") as caught:
                call()
            assert isinstance(caught.value.__cause__, ZeroDivisionError)
        assert store.sessions.count() == 1
        assert store.sessions.require(first.id) == first

    def test_an_error_of_the_store_passes_through_the_guard(self, handles: Handles) -> None:
        def has_processes(key: str) -> bool:
            return store.sessions.require(key).ended_at is None  # a key is no session id

        store = handles.open(policies=IDLE, has_active_processes=has_processes)
        store.sessions.open(dm("anna"))
        handles.clock.forward(hours=2)
        with pytest.raises(NotFound):
            store.sessions.open(dm("anna"))

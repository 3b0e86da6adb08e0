"""Promises of deletion: nothing of a session remains except its recorded usage."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from tertulia.core.usage import Usage
from tertulia.errors import ConfigError, NotFound
from tertulia.store import Store
from tertulia.testing.fixtures import Handles, assistant_message, dm, texts, turn, user_message


class DeletionPromises:
    """Promises of `delete` and `expunge`."""

    def stored_bytes(self, folder: Path) -> Iterator[bytes]:
        """Yield everything that the closed database in `folder` has on disk."""
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                yield path.read_bytes()

    def test_a_deleted_session_is_gone(self, store: Store, other: Store) -> None:
        session = store.sessions.open(dm("anna"))
        store.transcript(session.id).extend(turn("lighthouse"))
        store.sessions.rename(session.id, "Beacon")
        store.settle()
        child = store.sessions.open(dm("anna"), force_new=True)
        other.sessions.delete(session.id)
        assert store.sessions.get(session.id) is None
        assert store.sessions.require(child.id).parent_id is None
        assert [session.id for session in store.sessions.find().items] == [child.id]
        assert store.search("lighthouse").items == ()
        assert store.sessions.find(text="beacon").items == ()
        with pytest.raises(NotFound):
            store.transcript(session.id).load()
        with pytest.raises(NotFound):
            store.sessions.delete(session.id)
        assert store.sessions.rename(child.id, "Beacon").title == "Beacon"

    def test_a_message_of_a_deleted_session_is_not_answered_again(
        self, store: Store, other: Store
    ) -> None:
        """A platform that sends it again, or who has captured a signed request, changes nothing."""
        session_ids = []
        for number in (1, 2):
            store.inbox.put(dm("anna"), "lighthouse", message_id=number)
            (item,) = store.inbox.claim()
            with store.turn(dm("anna"), item.text, message_id=item.message_id) as turn:
                turn.add_assistant("Hello.")
            store.inbox.done(item)
            session_ids.append(turn.session.id)
        store.sessions.delete(session_ids[0])
        again = other.inbox.put(dm("anna"), "lighthouse", message_id=1)
        assert (again.is_new, again.state, again.text) == (False, "done", None)
        assert other.inbox.claim() == []
        assert other.inbox.put(dm("ben"), "lighthouse", message_id=1).is_new
        assert other.inbox.put(dm("anna"), "lighthouse", message_id=3).is_new

    def test_a_turn_forgets_the_messages_of_a_deleted_session(
        self, store: Store, other: Store
    ) -> None:
        """A message that the inbox never had is known as long as its session is kept."""
        with store.turn(dm("anna"), "lighthouse", message_id=1) as first:
            first.add_assistant("Hello.")
        store.sessions.delete(first.session.id)
        with other.turn(dm("anna"), "lighthouse", message_id=1) as again:
            assert not again.duplicate
            again.add_assistant("Hello again.")
        assert texts(store.transcript(again.session.id)) == ["lighthouse", "Hello again."]

    def test_the_current_session_can_be_deleted(self, store: Store) -> None:
        session = store.sessions.open(dm("anna"))
        store.sessions.delete(session.id)
        assert store.sessions.current(session.key) is None
        new = store.sessions.open(dm("anna"))
        assert (new.id != session.id, new.parent_id, new.notice) == (True, None, None)

    def test_a_new_session_has_nothing_of_a_deleted_one(self, store: Store) -> None:
        """A database may give the new session the same internal number."""
        for number in range(3):
            session = store.sessions.open(dm("anna"))
            assert len(store.sessions.explain(session.id).splitlines()) == 3
            transcript = store.transcript(session.id)
            assert (transcript.load(), len(transcript.revisions())) == ([], 1)
            transcript.extend([user_message(f"lighthouse {number}"), user_message("x" * 100_000)])
            transcript.undo()
            store.settle()
            assert len(store.search("lighthouse").items) == 1
            store.sessions.fork(session.id)
            for current in store.sessions.find().items:
                store.sessions.delete(current.id)
            assert store.search("lighthouse").items == ()

    def test_a_large_part_lives_as_long_as_a_message_with_it(self, store: Store) -> None:
        large = "a very large text " * 10_000
        anna, ben = store.sessions.open(dm("anna")), store.sessions.open(dm("ben"))
        store.transcript(anna.id).extend([user_message(large), assistant_message(large)])
        store.transcript(ben.id).append(user_message(large))
        fork = store.sessions.fork(ben.id)
        store.sessions.delete(anna.id)
        assert texts(store.transcript(ben.id)) == [large]
        store.sessions.delete(ben.id)
        assert texts(store.transcript(fork.id)) == [large]

    def test_no_text_of_a_deleted_session_stays_on_disk(
        self, handles: Handles, store: Store
    ) -> None:
        secrets = ["qahveh", "xylographer", "zwieback", "jabberwock", "vivisection", "kumquat"]
        kept_word = "wunderkammer"
        witness = store.sessions.open(dm("ben"))
        # A second session with content keeps the database from cleaning up by itself.
        store.transcript(witness.id).append(user_message(f"{kept_word} {kept_word}"))
        store.sessions.rename(witness.id, kept_word)
        session = store.sessions.open(dm("anna", chat_name=secrets[0]))
        transcript = store.transcript(session.id)
        for number in range(200):
            transcript.append(user_message(f"{secrets[1]} {number} " + "words " * 50))
        transcript.append(user_message(f"{secrets[2]} " * 5_000))
        transcript.append({"role": "user", "content": "x", "field": secrets[3]})
        store.sessions.rename(session.id, secrets[4])
        store.sessions.set_metadata(session.id, {"note": secrets[5]})
        store.settle()
        transcript.keep_recent(10)
        transcript.rewrite([user_message(secrets[1])])
        store.settle()
        store.usage.add(session.id, Usage(input=1, cost_usd=1))
        handles.close()
        before = b"".join(self.stored_bytes(handles.place)).lower()
        missing = [word for word in (*secrets, kept_word) if word.encode() not in before]
        # A large part is stored compressed, so its word cannot be found as plain bytes.
        assert missing in ([], [secrets[2]])

        store = handles.open()
        store.sessions.delete(session.id)
        handles.close()
        after = b"".join(self.stored_bytes(handles.place)).lower()
        assert [word for word in secrets if word.encode() in after] == []
        assert kept_word.encode() in after
        assert session.id.encode() in after  # its usage stays recorded

    def test_sessions_ended_before_a_time_are_expunged(
        self, handles: Handles, store: Store
    ) -> None:
        old = [store.sessions.open(dm("anna"), force_new=True).id for _ in range(4)]
        store.sessions.end(store.sessions.open(dm("ben")).id, "done")
        moment = handles.clock.forward(days=1)
        store.sessions.end(old[3], "done")
        running = store.sessions.open(dm("carl"))
        assert store.expunge(ended_before=moment) == 4
        assert {session.id for session in store.sessions.find().items} == {old[3], running.id}
        assert store.expunge(ended_before=moment + timedelta(days=1)) == 1
        assert {session.id for session in store.sessions.find().items} == {running.id}
        with pytest.raises(ConfigError):
            store.expunge(ended_before=moment.replace(tzinfo=None))

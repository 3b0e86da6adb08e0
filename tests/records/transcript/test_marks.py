"""Marks find a message again, and are deleted with it."""

from __future__ import annotations

from tertulia import Store
from tertulia.core.message import draft
from tertulia.records.transcript import marks
from tertulia.records.transcript.log import Entry, append_messages
from tests.records.store_inspection import ANA


def test_a_mark_finds_its_message_until_it_is_deleted(store: Store) -> None:
    session_id = store.sessions.open(ANA).id
    mark = marks.make_mark("sdk", "entry 1")
    marked = marks.add_marks(draft({"role": "assistant"}), [mark])
    entries = [Entry(draft({"role": "user"})), Entry(marked)]
    context = store.context
    context.write(lambda tx: append_messages(tx, session_id, entries, 1))
    ((_, seq),) = context.read(lambda tx: marks.find_positions(tx, mark))
    assert seq == 2
    assert context.read(lambda tx: marks.is_stored(tx, mark))
    assert not context.read(lambda tx: marks.is_stored(tx, marks.make_mark("sdk", "entry 2")))
    store.sessions.delete(session_id)
    assert not context.read(lambda tx: marks.is_stored(tx, mark))


def test_different_parts_give_different_marks() -> None:
    assert marks.make_mark("a", "bc") != marks.make_mark("ab", "c")
    assert marks.make_mark("a", "b") == marks.make_mark("a", "b")

"""Stores from before the review of queues are migrated with what is in them."""

from __future__ import annotations

from pathlib import Path

import apsw

import tertulia
from tertulia import Source

ANA = Source("telegram", "42", user_id="42")


def test_migration_keeps_revisions_and_finds_old_problems(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    with tertulia.open(path) as store:
        transcript = store.transcript(store.sessions.open(ANA).id)
        transcript.extend([{"role": "user", "content": "hello"}])
        transcript.undo()
        store.outbox.put("hello", "telegram:42")
        (delivery,) = store.outbox.claim()
        store.outbox.failed(delivery, "blocked", outcome="dead")
    connection = apsw.Connection(str(path))
    for index in ("dead_problem", "unknown_problem", "dead_platform", "unknown_platform"):
        connection.execute(f"drop index outbox_{index}")
    connection.execute("drop index inbox_dead_problem")
    connection.execute("drop table nodes")
    connection.execute("alter table revisions drop column actor")
    connection.execute("drop table browsers")
    connection.execute("delete from migrations where name in ('0017_browsers', '0018_console')")
    connection.close()
    with tertulia.open(path) as store:
        transcript = store.transcript(transcript.session_id, by="local")
        assert transcript.redo()
        transcript.undo()
        assert [(each.made_by, each.by) for each in transcript.find_revisions()] == [
            ("undo", "local"),
            ("undo", None),
            ("start", None),
        ]
        page = store.queues.deliveries(state="dead", platform="telegram", problem="blocked")
        assert [each.id for each in page.items] == [delivery.id]
        assert store.browsers.sign_in(store.browsers.request_code("owner"), address="a")
        assert store.nodes.find() == []
        assert store.check() == []

"""Sessions as JSONL and JSON, one by one and in folders."""

from __future__ import annotations

import json
import os
import stat
import tracemalloc
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tertulia import ConfigError, NotFound, Source, Store, StoreError, transfer
from tertulia.records import iterate
from tertulia.records.iterate import Selection
from tertulia.transfer.exporters.export import document, export_to
from tests.transfer.exporters.exported_lines import lines
from tests.transfer.filled_stores import ANA, BEN, GROUP, LARGE, opened, talk


class TestJsonl:
    json_values = st.recursive(
        st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=20),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
        max_leaves=8,
    )

    @settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
    @given(st.lists(st.dictionaries(st.text(max_size=8), json_values, max_size=4), max_size=5))
    def test_every_field_is_exported(self, store: Store, bodies: list[dict[str, Any]]) -> None:
        given_ = [{**body, "role": "user"} for body in bodies]
        session = store.sessions.open(ANA, force_new=True)
        store.transcript(session.id).extend(given_)
        assert lines(store, session.id, "jsonl") == given_

    def test_lone_surrogate_is_kept(self, store: Store) -> None:
        session = store.sessions.open(ANA)
        store.transcript(session.id).append({"role": "user", "content": "\ud83d \x00 \u2028"})
        text = "\n".join(document(store, session.id, "jsonl"))
        text.encode()  # it is valid UTF-8, and one line for whoever splits at any line break
        assert len(text.splitlines()) == 1
        assert json.loads(text)["content"] == "\ud83d \x00 \u2028"

    def test_hidden_messages_are_not_exported(self, store: Store) -> None:
        session = talk(store, ANA, "hello")
        talk(store, ANA, "wrong")
        store.transcript(session).undo()
        assert len(lines(store, session, "jsonl")) == 4

    def test_fork_is_exported_with_its_past(self, store: Store) -> None:
        session = talk(store, ANA, "hello")
        fork = store.sessions.fork(session).id
        talk(store, ANA, "and on")
        assert lines(store, fork, "jsonl") == store.transcript(fork).load()
        assert len(lines(store, fork, "jsonl")) == 8

    def test_report_counts_messages(self, store: Store) -> None:
        made = document(store, talk(store, ANA, "hello"), "html")
        for _ in range(2):  # it can be read again
            assert len(list(made)) > 20
            assert made.messages == 4

    def test_large_content_is_exported(self, store: Store) -> None:
        session = store.sessions.open(ANA)
        store.transcript(session.id).append({"role": "user", "content": LARGE})
        assert lines(store, session.id, "jsonl") == [{"role": "user", "content": LARGE}]


class TestJson:
    @pytest.mark.parametrize("count", [0, 1, 3])
    def test_json_has_session_messages_and_positions(self, store: Store, count: int) -> None:
        session = store.sessions.open(ANA).id
        given_ = [{"role": "user", "content": f"number {n}"} for n in range(count)]
        store.transcript(session).extend(given_)
        found = json.loads("\n".join(document(store, session, "json")))
        assert found["id"] == session
        assert found["messages"] == given_
        assert [place["seq"] for place in found["places"]] == [n + 1 for n in range(count)]


class TestFolder:
    def test_each_session_is_one_file(self, store: Store, tmp_path: Path) -> None:
        names = {talk(store, source, "hello") for source in (ANA, BEN, GROUP)}
        done = export_to(store, "jsonl", tmp_path / "out")
        assert (done.sessions, done.messages) == (3, 12)
        assert {path.stem for path in (tmp_path / "out").iterdir()} == names
        for path in (tmp_path / "out").iterdir():
            found = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
            assert found == store.transcript(path.stem).load()
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE((tmp_path / "out").stat().st_mode) == 0o700

    @pytest.mark.parametrize(
        ("selection", "count"),
        [
            (Selection(), 4),
            (Selection(platform="telegram"), 3),
            (Selection(state="current"), 3),
            (Selection(state="ended", platform="telegram"), 1),
            (Selection(person="telegram:12025550101"), 2),
            (Selection(person="12025550101"), 2),
            (Selection(key="agent:main:telegram:group:-100"), 1),
            (Selection(platform="nowhere"), 0),
        ],
        ids=str,
    )
    def test_selection_limits_the_export(
        self, store: Store, tmp_path: Path, selection: Selection, count: int
    ) -> None:
        for source in (ANA, BEN, GROUP):
            talk(store, source, "hello")
        store.sessions.reset(store.sessions.key(ANA))
        done = export_to(store, "jsonl", tmp_path / "out", selection=selection)
        assert done.sessions == count == len(os.listdir(tmp_path / "out"))

    def test_sessions_active_since_a_time_are_selected(self, tmp_path: Path) -> None:
        from tertulia.testing import FakeClock

        clock = FakeClock()
        with opened(tmp_path / "t.db", clock) as store:
            talk(store, ANA, "long ago")
            since = clock.forward(days=3)
            new = talk(store, BEN, "today")
            export_to(store, "json", tmp_path / "out", selection=Selection(active_since=since))
        assert os.listdir(tmp_path / "out") == [f"{new}.json"]

    def test_more_sessions_than_one_page_are_exported(self, store: Store, tmp_path: Path) -> None:
        for number in range(iterate._SESSIONS + 5):
            store.sessions.open(Source("telegram", str(number)))
        assert export_to(store, "jsonl", tmp_path / "out").sessions == iterate._SESSIONS + 5

    def test_named_sessions_are_exported_and_an_unknown_one_raises(
        self, store: Store, tmp_path: Path
    ) -> None:
        one = talk(store, ANA, "hello")
        talk(store, BEN, "hello")
        with pytest.raises(NotFound, match="nobody"):
            export_to(store, "jsonl", tmp_path / "out", selection=Selection(ids=(one, "nobody")))
        assert not (tmp_path / "out").exists()
        done = export_to(store, "jsonl", tmp_path / "out", selection=Selection(ids=(one, one)))
        assert done.sessions == 1

    def test_contradictory_options_are_refused(self, store: Store, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match="either ids"):
            Selection(ids=("x",), platform="telegram")
        with pytest.raises(ConfigError, match="no time zone"):
            Selection(active_since=datetime(2026, 1, 1))
        with pytest.raises(ConfigError, match="Allowed: all"):
            Selection(state="asleep")  # type: ignore[arg-type]
        chosen = Selection(platform="telegram")
        with pytest.raises(ConfigError, match="whole store"):
            export_to(store, "archive", tmp_path / "a.zip", selection=chosen)
        with pytest.raises(ConfigError, match="Unknown export format 'pdf'"):
            export_to(store, "pdf", tmp_path / "out")
        for form in ("nanobot", "archive"):
            with pytest.raises(ConfigError, match="real ids"):
                export_to(store, form, tmp_path / "out", redact=True)
        assert os.listdir(tmp_path) == [name for name in os.listdir(tmp_path) if "talk.db" in name]

    def test_folder_with_files_is_not_changed(self, store: Store, tmp_path: Path) -> None:
        session = talk(store, ANA, "hello")
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / f"{session}.jsonl").write_text("mine")
        with pytest.raises(ConfigError, match="is not empty"):
            export_to(store, "jsonl", tmp_path / "out")
        assert (tmp_path / "out" / f"{session}.jsonl").read_text() == "mine"
        export_to(store, "jsonl", tmp_path / "out", force=True)
        assert (tmp_path / "out" / f"{session}.jsonl").read_text() != "mine"
        with pytest.raises(StoreError, match="cannot be created"):
            export_to(store, "jsonl", tmp_path / "talk.db")

    def test_session_deleted_during_the_export_is_left_out(
        self, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(iterate, "_MESSAGES", 1)
        gone, kept = talk(store, ANA, "hello"), talk(store, BEN, "hello")
        read = iterate._rows

        def deleting(tx: Any, session_id: str, part: Any) -> Any:
            found = read(tx, session_id, part)
            if session_id == gone and part.first == 2:
                store.sessions.delete(gone)
            return found

        monkeypatch.setattr(iterate, "_rows", deleting)
        done = export_to(store, "jsonl", tmp_path / "out")
        assert (done.sessions, done.messages) == (1, 4)
        assert os.listdir(tmp_path / "out") == [f"{kept}.jsonl"]

    def test_archive_format_writes_one_file(self, store: Store, tmp_path: Path) -> None:
        talk(store, ANA, "hello")
        done = export_to(store, "archive", tmp_path / "a.zip")
        assert (done.sessions, done.messages) == (1, 4)
        with opened(tmp_path / "b.db") as copy:
            transfer.restore(copy, tmp_path / "a.zip")
            assert copy.sessions.count() == 1


@pytest.mark.check
def test_memory_does_not_grow_with_the_transcript(store: Store) -> None:
    store._indexer.stop()
    peaks = []
    for count in (1_000, 8_000):
        session = store.sessions.open(ANA, force_new=True).id
        for _ in range(count // 500):
            store.transcript(session).extend([{"role": "user", "content": "x" * 500}] * 500)
        tracemalloc.start()
        read = sum(1 for _ in document(store, session, "html"))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert read > count
    # Seven thousand messages more are 3.5 million characters more.
    assert peaks[1] < peaks[0] + 500_000

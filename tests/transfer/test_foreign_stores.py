"""Every tree comes in as its EXPECTED.json says: counts, hashes, times, states, damage."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import tertulia
from tertulia import Session, Store
from tertulia.transfer import Report, import_from
from tests.transfer.foreign_folders import (
    SETTINGS,
    all_sessions,
    digest_of,
    dump,
    expected,
    kind_of,
    moment,
    names,
    planted,
    print_of,
)

TOKENS = {
    "input_tokens": "input",
    "output_tokens": "output",
    "cache_read_tokens": "cache_read",
    "cache_write_tokens": "cache_write",
    "reasoning_tokens": "reasoning",
}
# What Hermes 0.19 knows of an ended session is when its last message was: a little earlier.
NEAR = timedelta(seconds=1)


class Imported:
    """A tree that was imported."""

    def __init__(self, tree: str, store: Store, folder: Path) -> None:
        self.tree = tree
        self.store = store
        self.folder = folder
        self.expected = expected(tree)
        self.before = print_of(folder.parent)
        self.report = self.again()
        self.sessions = {_name(session): session for session in all_sessions(store)}

    def again(self) -> Report:
        return import_from(self.store, kind_of(self.tree), self.folder)

    def each(self) -> Iterator[tuple[dict[str, Any], Session, list[dict[str, Any]]]]:
        for wanted in self.expected["sessions"]:
            found = self.sessions[wanted.get("session_id") or wanted["file"]]
            yield wanted, found, self.store.transcript(found.id).load()


def _name(session: Session) -> str:
    kept = session.metadata["imported"]
    return str(kept.get("session_id") or kept["file"])


# Searching what is left of a damaged database can take some seconds, in each test.
TREES = [
    pytest.param(name, marks=pytest.mark.check) if name.startswith("dmg_") else name
    for name in names()
]


@pytest.fixture(scope="module", params=TREES)
def imported(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Imported]:
    place = tmp_path_factory.mktemp(request.param)
    folder = planted(request.param, place)
    with tertulia.open(place / "talk.db", settings=SETTINGS) as store:
        yield Imported(request.param, store, folder)


def test_expected_number_of_sessions(imported: Imported) -> None:
    totals = imported.expected["totals"]
    assert imported.report.sessions == len(imported.sessions) == totals["sessions"]


def test_every_message_is_imported_once(imported: Imported) -> None:
    for wanted, _, messages in imported.each():
        intact, span = wanted["messages"]["total"], wanted.get("recoverable")
        if span is None:
            assert len(messages) == intact
        else:
            assert span["min_messages"] <= len(messages) <= span["max_messages"]
        if len(messages) == intact:
            assert digest_of(messages) == wanted["messages"]["sha256"]
        elif span is not None and "sha256_if_salvaged_with_U_FFFD" in span:
            assert digest_of(messages) == span["sha256_if_salvaged_with_U_FFFD"]


def test_report_counts_match_the_store(imported: Imported) -> None:
    assert imported.report.messages == sum(len(messages) for *_, messages in imported.each())


def test_each_damage_is_reported_with_its_place(imported: Imported) -> None:
    told = {(problem.kind, problem.file) for problem in imported.report.problems}
    lines = {(p.kind, p.file, p.line) for p in imported.report.problems}
    for wanted in imported.expected["problems"]:
        if wanted["must_report"]:
            files = [wanted["file"]] if "file" in wanted else wanted["files"]
            assert any((wanted["code"], file) in told for file in files), wanted
            if "line" in wanted:
                assert (wanted["code"], files[0], wanted["line"]) in lines, wanted


def test_valid_source_has_no_problems(imported: Imported) -> None:
    if not imported.expected["problems"]:
        assert imported.report.problems == ()


def test_keys_sources_and_people(imported: Imported) -> None:
    for wanted, found, _ in imported.each():
        assert found.origin.platform == wanted["platform"]
        is_lost = wanted.get("recoverable", {}).get("index_key_optional") and "~" in found.key
        if kind_of(imported.tree) == "nanobot":
            candidates = wanted.get("key_candidates", [wanted["key"]])
            is_named = wanted.get("key_note") is None
            assert not is_named or found.metadata["imported"]["key"] in candidates
        elif wanted["key"] is None:
            assert "~unknown" in found.key
        elif not is_lost:
            assert found.metadata["imported"]["key"] == wanted["key"]
            for name in ("chat_id", "user_id", "thread_id"):
                assert getattr(found.origin, name) == wanted["ids"].get(name)


def test_times_and_states(imported: Imported) -> None:
    for wanted, found, _ in imported.each():
        if wanted.get("recoverable", {}).get("index_key_optional") or wanted.get("damage") in (
            "db_truncated", "directory", "empty_file", "metadata_missing",
        ):  # fmt: skip
            continue  # these are what was lost
        created, updated = moment(wanted["created_at"]), moment(wanted["updated_at"])
        assert created is None or abs(found.created_at - created) < timedelta(milliseconds=1)
        assert updated is None or abs(found.updated_at - updated) < NEAR
        if wanted["state"] == "ended":
            assert found.end_reason == wanted["end_reason"]
            ended = moment(wanted["ended_at"])
            assert found.ended_at
            assert ended
            assert abs(found.ended_at - ended) < timedelta(milliseconds=1)
        elif wanted["state"] == "orphan":
            assert found.end_reason == "imported"


def test_a_current_session_is_current_and_one_for_each_key(imported: Imported) -> None:
    for wanted, found, _ in imported.each():
        is_second = wanted.get("duplicate_key") or wanted.get("duplicate_of")
        is_lost = wanted.get("recoverable", {}).get("index_key_optional")
        if wanted["state"] == "current" and not is_second and not is_lost:
            assert found.ended_at is None
            current = imported.store.sessions.current(found.key)
            assert current is not None
            assert current.id == found.id


def test_titles_and_chains(imported: Imported) -> None:
    for wanted, found, _ in imported.each():
        if wanted.get("damage") != "db_truncated":
            assert found.title == wanted.get("title", found.title)
            assert found.parent_id == wanted.get("parent_session_id", found.parent_id)


def test_usage(imported: Imported) -> None:
    for wanted, found, _ in imported.each():
        used = wanted["usage"]
        if not used or wanted.get("damage") in ("db_truncated", "index_truncated"):
            continue
        for theirs, ours in TOKENS.items():
            assert getattr(found.usage, ours) == used.get(theirs, 0)
        if wanted["state"] == "current":
            assert found.last_prompt_tokens == used.get(
                "last_prompt_tokens", found.last_prompt_tokens
            )
        cost = used.get("estimated_cost_usd")
        if cost:
            assert found.cost_usd == pytest.approx(cost, abs=1e-6)


def test_metadata_of_the_source_is_kept(imported: Imported) -> None:
    for wanted, found, _ in imported.each():
        for name, value in (wanted.get("metadata") or {}).items():
            assert found.metadata[name] == value
        if "last_consolidated_effective" not in wanted and "last_consolidated" in wanted:
            kept = found.metadata["imported"].get("last_consolidated", 0)
            assert kept == wanted["last_consolidated"] or "damage" in wanted


def test_consolidated_messages_are_not_in_the_history(imported: Imported) -> None:
    for wanted, found, messages in imported.each():
        given = wanted.get("last_consolidated_effective", wanted.get("last_consolidated"))
        if not isinstance(given, int) or not given or "damage" in wanted:
            continue
        history = imported.store.transcript(found.id).history()
        assert len(history) <= max(len(messages) - given, 0) + 30  # its last turn at least
        if any(message["role"] == "user" for message in messages):
            assert history


def test_hidden_messages_are_in_the_log(imported: Imported) -> None:
    for wanted, found, messages in imported.each():
        hidden = wanted.get("inactive_rows")
        if hidden:
            whole = imported.store.transcript(found.id).at(1)
            assert len(whole) > len(messages)


def test_nothing_outside_the_folder_is_read(imported: Imported) -> None:
    assert "SECRET-OUTSIDE" not in repr(dump(imported.store))
    assert "SECRET-OUTSIDE" not in repr(imported.report)


def test_second_import_adds_nothing(imported: Imported) -> None:
    before = dump(imported.store)
    report = imported.again()
    assert (report.sessions, report.messages) == (0, 0)
    assert report.skipped == imported.report.sessions
    assert report.problems == imported.report.problems
    assert dump(imported.store) == before


def test_source_is_unchanged(imported: Imported) -> None:
    assert print_of(imported.folder.parent) == imported.before


def test_store_passes_its_check(imported: Imported) -> None:
    assert imported.store.check() == []


def test_dry_run_reports_the_same_and_writes_nothing(imported: Imported, tmp_path: Path) -> None:
    kind = kind_of(imported.tree)
    assert import_from(None, kind, imported.folder, dry_run=True, zone="UTC") == imported.report
    with tertulia.open(tmp_path / "other.db", settings=SETTINGS) as store:
        assert import_from(store, kind, imported.folder, dry_run=True) == imported.report
        assert store.sessions.count() == 0

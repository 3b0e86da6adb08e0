"""nanobot's session manager: reading, saving, merging, listing and deleting."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from tertulia.compat.nanobot import manager as module
from tertulia.compat.nanobot.manager import Session, SessionManager
from tertulia.compat.nanobot.session_keys import source_of
from tertulia.errors import ConfigError, IllegalMove, StaleWrite

KEY = "telegram:42"
CHANGES = ("add", "add", "add", "edit", "drop", "swap", "trim", "new", "twice", "offset")


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[SessionManager]:
    with SessionManager(tmp_path) as found:
        yield found


@pytest.fixture
def other(tmp_path: Path, manager: SessionManager) -> Iterator[SessionManager]:
    """Another program on the same workspace."""
    with SessionManager(tmp_path) as found:
        yield found


def message_of(text: str, role: str = "user", **more: Any) -> dict[str, Any]:
    return {"role": role, "content": text, **more}


def filled(manager: SessionManager, *words: str, key: str = KEY) -> Session:
    session = manager.get_or_create(key)
    session.messages += [message_of(word) for word in words]
    manager.save(session)
    return session


def words(session: Session) -> list[Any]:
    return [message["content"] for message in session.messages]


def log_of(manager: SessionManager, key: str = KEY) -> list[int]:
    """Where what is seen lies in the log."""
    found = manager.store.sessions.current(manager.store.sessions.key(source_of(key)))
    assert found is not None
    return [entry.seq for entry in manager.store.transcript(found.id).entries()]


class TestGetOrCreate:
    def test_new_session_is_stored_on_save(
        self, manager: SessionManager, other: SessionManager
    ) -> None:
        session = manager.get_or_create(KEY)
        assert (session.key, session.messages, session.metadata) == (KEY, [], {})
        assert manager.list_sessions() == []
        assert manager.read_session_file(KEY) is None
        manager.save(session)
        assert [one["key"] for one in other.list_sessions()] == [KEY]

    def test_returns_the_same_value_again(self, manager: SessionManager) -> None:
        session = manager.get_or_create(KEY)
        session.add_message("user", "not saved yet")
        assert manager.get_or_create(KEY) is session

    def test_session_survives_a_restart(
        self, manager: SessionManager, other: SessionManager
    ) -> None:
        session = manager.get_or_create(KEY)
        session.add_message("user", "hi", media=["a.png"], odd={"x": [1, None, 2.5]})
        session.add_message("assistant", None, tool_calls=[{"id": "c"}])
        session.add_message("tool", "\ud83d\u2028", tool_call_id="c", name="f")
        session.metadata["runtime"] = {"any": ["thing", 1]}
        session.last_consolidated = 1
        session.created_at = datetime(2026, 1, 2, 3, 4, 5, 678901)
        session.updated_at = datetime(2026, 2, 3, 4, 5, 6, 789012)
        manager.save(session)
        assert other.get_or_create(KEY) == session

    def test_value_gets_changes_of_others(
        self, manager: SessionManager, other: SessionManager
    ) -> None:
        session = filled(manager, "a")
        filled(other, "b")
        assert words(manager.get_or_create(KEY)) == ["a", "b"]
        assert manager.get_or_create(KEY) is session

    def test_invalidate_discards_unsaved_changes(self, manager: SessionManager) -> None:
        session = filled(manager, "a")
        session.add_message("user", "b")
        manager.invalidate(KEY)
        manager.invalidate("unknown")
        assert words(manager.get_or_create(KEY)) == ["a"]

    def test_value_in_use_is_never_replaced(
        self, manager: SessionManager, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(module, "_MAX_RECENT", 2)
        held = filled(manager, "a")
        manager.get_or_create("unsaved:1").add_message("user", "kept")
        for number in range(5):
            filled(manager, "x", key=f"cli:{number}")
        assert manager.get_or_create(KEY) is held
        assert words(manager.get_or_create("unsaved:1")) == ["kept"]
        assert len(manager._recent) <= 3


class TestSave:
    def test_save_appends_new_messages(self, manager: SessionManager) -> None:
        session = filled(manager, "a", "b")
        session.add_message("user", "c")
        manager.save(session)
        assert log_of(manager) == [1, 2, 3]

    def test_save_without_changes_writes_nothing(self, manager: SessionManager) -> None:
        session = filled(manager, "a")
        before = _current(manager)
        manager.save(session)
        manager.save(session, fsync=True)
        assert _current(manager) == before

    def test_edit_writes_only_that_message(
        self, manager: SessionManager, other: SessionManager
    ) -> None:
        session = filled(manager, "a", "b", "c")
        session.messages[1]["content"] = "B"
        manager.save(session)
        assert words(other.get_or_create(KEY)) == ["a", "B", "c"]
        assert log_of(manager) == [1, 4, 3]

    def test_trimming_writes_no_message(
        self, manager: SessionManager, other: SessionManager
    ) -> None:
        session = filled(manager, *"abcdef")
        session.retain_recent_legal_suffix(2)
        session.add_message("user", "g")
        manager.save(session)
        assert words(other.get_or_create(KEY)) == ["e", "f", "g"]
        assert log_of(manager) == [5, 6, 7]

    def test_recreated_messages_are_recognised(self, manager: SessionManager) -> None:
        session = filled(manager, *"abc")
        session.messages = [*deepcopy(session.messages), message_of("d")]
        manager.save(session)
        assert log_of(manager) == [1, 2, 3, 4]
        session.messages = deepcopy(session.messages[2:])
        manager.save(session)
        assert log_of(manager) == [3, 4]

    def test_earlier_messages_can_be_restored(self, manager: SessionManager) -> None:
        session = filled(manager, "a", "b")
        session.clear()
        manager.save(session)
        assert manager.read_session_file(KEY)["messages"] == []  # type: ignore[index]
        transcript = manager.store.transcript(_current(manager).id)
        transcript.restore(1)
        assert words(manager.get_or_create(KEY)) == ["a", "b"]

    def test_value_without_base_replaces_the_session(
        self, manager: SessionManager, other: SessionManager
    ) -> None:
        filled(manager, "a", "b")
        manager.invalidate(KEY)
        manager.save(Session(KEY, [message_of("a"), message_of("x")], metadata={"m": 1}))
        assert words(other.get_or_create(KEY)) == ["a", "x"]
        assert other.get_or_create(KEY).metadata == {"m": 1}
        assert log_of(manager) == [1, 3]

    def test_times_of_a_value_are_stored(
        self, manager: SessionManager, other: SessionManager
    ) -> None:
        filled(manager, "a")
        early = datetime(2026, 1, 1)
        manager.save(Session(KEY, created_at=early, updated_at=early))
        found = other.get_or_create(KEY)
        assert (found.created_at, found.updated_at) == (early, early)

    def test_message_objects_keep_their_identity(self, manager: SessionManager) -> None:
        session = filled(manager, "a", "b")
        session.messages = deepcopy(session.messages)
        held = list(session.messages)
        manager.save(session)
        assert all(one is other for one, other in zip(session.messages, held, strict=True))
        held[0]["content"] = "A"
        manager.save(session)
        manager.invalidate(KEY)
        assert words(manager.get_or_create(KEY)) == ["A", "b"]

    def test_changed_key_makes_another_session(
        self, manager: SessionManager, other: SessionManager
    ) -> None:
        session = filled(manager, "a")
        session.key = "telegram:43"
        manager.save(session)
        assert words(other.get_or_create(KEY)) == ["a"]
        assert words(other.get_or_create("telegram:43")) == ["a"]

    @pytest.mark.parametrize("wrong", [{"content": "x"}, 7, {"role": "user", "content": object()}])
    def test_invalid_message_is_refused_and_changes_nothing(
        self, manager: SessionManager, other: SessionManager, wrong: Any
    ) -> None:
        session = filled(manager, "a")
        session.messages += [message_of("b"), wrong]
        with pytest.raises(IllegalMove):
            manager.save(session)
        assert words(other.get_or_create(KEY)) == ["a"]
        session.messages.pop()
        manager.save(session)
        assert words(other.get_or_create(KEY)) == ["a", "b"]

    def test_invalid_metadata_and_times_are_refused(self, manager: SessionManager) -> None:
        session = filled(manager, "a")
        session.metadata["x"] = object()
        with pytest.raises(IllegalMove):
            manager.save(session)
        del session.metadata["x"]
        session.updated_at = "yesterday"  # type: ignore[assignment]
        with pytest.raises(ConfigError):
            manager.save(session)

    def test_aware_time_keeps_its_moment(
        self, manager: SessionManager, other: SessionManager
    ) -> None:
        session = manager.get_or_create(KEY)
        session.updated_at = datetime(2026, 1, 1, tzinfo=UTC)
        manager.save(session)
        found = other.get_or_create(KEY).updated_at
        assert found.tzinfo is None
        assert found.astimezone(UTC) == session.updated_at

    @given(st.data())
    @hypothesis_settings(max_examples=hypothesis_settings().max_examples // 3)
    def test_any_change_is_stored(self, data: st.DataObject) -> None:
        with (
            TemporaryDirectory() as place,
            SessionManager(Path(place)) as manager,
            SessionManager(Path(place)) as other,
        ):
            session = manager.get_or_create(KEY)
            for _ in range(data.draw(st.integers(1, 6))):
                for _ in range(data.draw(st.integers(0, 3))):
                    _change(session, data)
                expected = deepcopy(session.messages)
                manager.save(session)
                assert session.messages == expected
                assert other.get_or_create(KEY).messages == expected
                assert other.get_or_create(KEY).last_consolidated == session.last_consolidated
            assert manager.store.check() == []


def _change(session: Session, data: st.DataObject) -> None:
    messages = session.messages
    at = data.draw(st.integers(0, max(0, len(messages) - 1)))
    match data.draw(
        st.sampled_from(
            ["add", "add", "add", "edit", "drop", "swap", "trim", "new", "twice", "offset"]
        )
    ):
        case "add":
            role = data.draw(st.sampled_from(["user", "assistant", "tool"]))
            messages.append(message_of(data.draw(st.text(max_size=3)), role))
        case "edit" if messages:
            messages[at]["content"] = data.draw(st.text(max_size=3))
        case "drop" if messages:
            del messages[at]
        case "swap":
            messages.reverse()
        case "trim":
            session.retain_recent_legal_suffix(data.draw(st.integers(0, 5)))
        case "new":
            session.messages = deepcopy(messages)
        case "twice" if messages:
            messages.insert(at, messages[-1])
        case "offset":
            session.last_consolidated = at


class TestTwoPrograms:
    def test_additions_of_both_are_kept(
        self, manager: SessionManager, other: SessionManager
    ) -> None:
        mine = filled(manager, "a")
        theirs = other.get_or_create(KEY)
        mine.add_message("user", "mine")
        theirs.add_message("user", "theirs")
        other.save(theirs)
        manager.save(mine)
        assert words(mine) == ["a", "theirs", "mine"]
        assert words(other.get_or_create(KEY)) == ["a", "theirs", "mine"]
        assert log_of(manager) == [1, 2, 3]

    def test_two_programs_start_the_same_session(
        self, manager: SessionManager, other: SessionManager
    ) -> None:
        mine, theirs = manager.get_or_create(KEY), other.get_or_create(KEY)
        theirs.add_message("user", "theirs")
        other.save(theirs)
        mine.add_message("user", "mine")
        manager.save(mine)
        assert words(mine) == ["theirs", "mine"]
        assert len(manager.list_sessions()) == 1

    def test_trim_then_addition_of_another(
        self, manager: SessionManager, other: SessionManager
    ) -> None:
        mine = filled(manager, *"abcd")
        theirs = other.get_or_create(KEY)
        theirs.add_message("user", "new")
        other.save(theirs)
        mine.retain_recent_legal_suffix(2)
        manager.save(mine)
        assert words(other.get_or_create(KEY)) == ["c", "d", "new"]

    def test_addition_then_trim_of_another(
        self, manager: SessionManager, other: SessionManager
    ) -> None:
        mine = filled(manager, *"abcd")
        theirs = other.get_or_create(KEY)
        theirs.retain_recent_legal_suffix(2)
        other.save(theirs)
        mine.add_message("user", "new")
        manager.save(mine)
        assert words(mine) == words(other.get_or_create(KEY)) == ["c", "d", "new"]

    def test_conflicting_changes_are_refused(
        self, manager: SessionManager, other: SessionManager
    ) -> None:
        mine = filled(manager, *"abcd")
        theirs = other.get_or_create(KEY)
        theirs.messages[0]["content"] = "A"
        other.save(theirs)
        mine.messages[1]["content"] = "B"
        with pytest.raises(StaleWrite, match="invalidate"):
            manager.save(mine)
        assert words(other.get_or_create(KEY)) == ["A", "b", "c", "d"]

    def test_metadata_is_merged_by_name(
        self, manager: SessionManager, other: SessionManager
    ) -> None:
        mine = filled(manager, "a")
        mine.metadata.update(one=1, two=2, three=3)
        manager.save(mine)
        theirs = other.get_or_create(KEY)
        theirs.metadata["one"] = "theirs"
        del theirs.metadata["three"]
        other.save(theirs)
        mine.metadata["two"] = "mine"
        manager.save(mine)
        assert mine.metadata == {"one": "theirs", "two": "mine"}
        assert other.get_or_create(KEY).metadata == mine.metadata

    def test_deleted_session_stays_deleted(
        self, manager: SessionManager, other: SessionManager
    ) -> None:
        mine = filled(manager, "a")
        assert other.delete_session(KEY)
        assert manager.flush_all() == 1
        assert manager.list_sessions() == []
        mine.add_message("user", "b")
        with pytest.raises(StaleWrite, match="deleted"):
            manager.save(mine)
        manager.invalidate(KEY)
        assert manager.get_or_create(KEY).messages == []

    def test_newer_updated_at_wins(self, manager: SessionManager, other: SessionManager) -> None:
        mine = filled(manager, "a")
        theirs = other.get_or_create(KEY)
        late = theirs.updated_at = theirs.updated_at + timedelta(hours=1)
        other.save(theirs)
        mine.add_message("user", "b")
        manager.save(mine)
        assert mine.updated_at == manager.get_or_create(KEY).updated_at == late

    @given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from(["add", "save", "get"]))))
    @hypothesis_settings(max_examples=hypothesis_settings().max_examples // 3)
    def test_saved_messages_are_never_lost_or_duplicated(
        self, steps: list[tuple[int, str]]
    ) -> None:
        with TemporaryDirectory() as place, ExitStack() as stack:
            managers = [stack.enter_context(SessionManager(Path(place))) for _ in range(3)]
            held = [manager.get_or_create(KEY) for manager in managers]
            said_by: list[list[str]] = [[], [], []]
            for number, (who, step) in enumerate([*steps, (0, "save"), (1, "save"), (2, "save")]):
                if step == "add":
                    said_by[who].append(f"{who} {number}")
                    held[who].add_message("user", said_by[who][-1])
                elif step == "save":
                    managers[who].save(held[who])
                else:
                    assert managers[who].get_or_create(KEY) is held[who]
            found = words(managers[0].get_or_create(KEY))
            assert sorted(found) == sorted(text for texts in said_by for text in texts)
            for who in range(3):
                assert [text for text in found if text.startswith(f"{who} ")] == said_by[who]
            assert len(managers[0].list_sessions()) == 1


class TestOffset:
    def test_offset_stays_at_its_message(
        self, manager: SessionManager, other: SessionManager
    ) -> None:
        session = filled(manager, *"abcdef")
        session.last_consolidated = 4
        manager.save(session)
        session.retain_recent_legal_suffix(4)
        assert session.last_consolidated == 2
        manager.save(session)
        found = other.get_or_create(KEY)
        assert (words(found), found.last_consolidated) == (["c", "d", "e", "f"], 2)

    def test_offset_never_goes_back(self, manager: SessionManager) -> None:
        session = filled(manager, *"abcdef")
        session.last_consolidated = 4
        manager.save(session)
        session.last_consolidated = 2
        manager.save(session)
        assert session.last_consolidated == 4

    def test_trim_with_unchanged_offset_skips_nothing(self, manager: SessionManager) -> None:
        session = filled(manager, *"abcdef")
        session.last_consolidated = 4
        manager.save(session)
        session.messages = session.messages[3:]  # and the offset was forgotten
        manager.save(session)
        assert session.last_consolidated == 1
        assert words(session) == ["d", "e", "f"]

    def test_clear_resets_the_offset(self, manager: SessionManager, other: SessionManager) -> None:
        session = filled(manager, *"abc")
        session.last_consolidated = 2
        manager.save(session)
        session.clear()
        session.add_message("user", "d")
        manager.save(session)
        assert other.get_or_create(KEY).last_consolidated == 0

    def test_offset_does_not_skip_messages_of_others(
        self, manager: SessionManager, other: SessionManager
    ) -> None:
        mine = filled(manager, "a", "b")
        filled(other, "theirs")
        mine.add_message("user", "mine")
        mine.last_consolidated = 2
        manager.save(mine)
        assert mine.last_consolidated == 2
        assert [one["content"] for one in mine.get_history()] == ["theirs", "mine"]

    def test_store_history_uses_the_same_offset(self, manager: SessionManager) -> None:
        session = filled(manager, *"abcd")
        session.last_consolidated = 2
        manager.save(session)
        history = manager.store.transcript(_current(manager).id).history()
        assert history == session.get_history() == [message_of("c"), message_of("d")]


class TestFlush:
    def test_flush_saves_all_and_counts(self, manager: SessionManager, tmp_path: Path) -> None:
        assert manager.flush_all() == 0
        held = [manager.get_or_create(f"cli:{number}") for number in range(3)]
        held[1].add_message("user", "hi")
        assert manager.flush_all() == 3
        with SessionManager(tmp_path) as other:
            assert words(other.get_or_create("cli:1")) == ["hi"]
            assert len(other.list_sessions()) == 3

    def test_flush_saves_the_others_after_an_error(self, manager: SessionManager) -> None:
        held = [manager.get_or_create(f"cli:{number}") for number in range(3)]
        held[0].messages.append({})
        held[2].add_message("user", "hi")
        with pytest.raises(IllegalMove):
            manager.flush_all()
        assert {one["key"] for one in manager.list_sessions()} == {"cli:1", "cli:2"}


class TestReadListDelete:
    def test_read_returns_plain_values(self, manager: SessionManager) -> None:
        session = filled(manager, "a")
        session.metadata["x"] = 1
        manager.save(session)
        found = manager.read_session_file(KEY)
        assert found == {
            "key": KEY,
            "created_at": session.created_at.isoformat(),
            "updated_at": session.updated_at.isoformat(),
            "metadata": {"x": 1},
            "messages": [message_of("a")],
        }

    def test_read_returns_a_copy(self, manager: SessionManager) -> None:
        filled(manager, "a")
        found = manager.read_session_file(KEY)
        assert found is not None
        found["messages"][0]["content"] = "forged"
        assert words(manager.get_or_create(KEY)) == ["a"]

    def test_list_is_newest_first(self, manager: SessionManager) -> None:
        for number, day in enumerate((2, 3, 1)):
            session = manager.get_or_create(f"cli:{number}")
            session.updated_at = datetime(2026, 1, day)
            manager.save(session)
        found = manager.list_sessions()
        assert [one["key"] for one in found] == ["cli:1", "cli:0", "cli:2"]
        assert found[0]["updated_at"] == "2026-01-03T00:00:00"
        assert all(set(one) == {"key", "created_at", "updated_at", "path"} for one in found)

    def test_list_has_more_than_one_page(
        self, manager: SessionManager, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(module, "_PAGE_SIZE", 2)
        for number in range(5):
            filled(manager, "x", key=f"cli:{number}")
        assert len({one["key"] for one in manager.list_sessions()}) == 5

    def test_export_writes_to_the_listed_path(self, manager: SessionManager) -> None:
        session = filled(manager, "a", "b\u2028")
        session.last_consolidated = 1
        manager.save(session)
        assert manager.export("unknown") is None
        path = manager.export(KEY)
        assert path is not None
        assert str(path) == manager.list_sessions()[0]["path"]
        head, *rest = map(json.loads, path.read_text("utf-8").split("\n")[:-1])
        assert head["_type"] == "metadata"
        assert (head["key"], head["last_consolidated"]) == (KEY, 1)
        assert rest == session.messages

    def test_delete_removes_everything(
        self, manager: SessionManager, other: SessionManager
    ) -> None:
        filled(manager, "secret")
        exported = manager.export(KEY)
        assert exported is not None
        filled(manager, "stays", key="telegram:43")
        kept = manager.export("telegram:43")
        assert kept is not None
        assert other.get_or_create(KEY).messages
        assert manager.delete_session(KEY)
        assert not manager.delete_session(KEY)
        assert manager.get_or_create(KEY).messages == []
        assert other.get_or_create(KEY).messages == []
        assert other.read_session_file(KEY) is None
        assert [one["key"] for one in manager.list_sessions()] == ["telegram:43"]
        assert manager.store.search("secret").items == ()
        assert not exported.exists()
        assert kept.exists()


class TestKeys:
    ODD = (
        "telegram:1", "telegram_1", "Telegram:1", "telegram:1:", "telegram::1", "telegram", ":",
        "", ":telegram", "telegram:", "a/b", "../x", "a b", "a\u0301", "\u00e1", "x" * 500, "CON",
        "con", "nul.txt", "a~b", "a%3Ab", "a:b:c", "slack:C1:2.3", "discord:1:thread:2",
        "telegram:-1:topic:2", "\ud800", "a\x00b", "A:B", "a:B", "nanobot:x", "local:nanobot:x",
        "slack:d05", "slack:D05", "heartbeat", "heartbeat:", "telegram:-100", "cron:1.", "cron:.1",
    )  # fmt: skip

    def test_each_key_has_its_own_session(
        self, manager: SessionManager, other: SessionManager
    ) -> None:
        for key in self.ODD:
            filled(manager, f"of {key!r}", key=key)
        for key in self.ODD:
            assert words(other.get_or_create(key)) == [f"of {key!r}"]
        assert {one["key"] for one in other.list_sessions()} == set(self.ODD)
        assert len({one["path"].casefold() for one in other.list_sessions()}) == len(self.ODD)

    @given(st.lists(st.text("ab:_.-~A/ \u00e1", max_size=6), min_size=2, max_size=2, unique=True))
    def test_safe_names_differ_ignoring_case(self, keys: list[str]) -> None:
        one, other = (SessionManager.safe_key(key) for key in keys)
        assert one.casefold() != other.casefold()

    @pytest.mark.parametrize("key", ODD)
    def test_safe_names_are_valid_everywhere(self, key: str) -> None:
        name = SessionManager.safe_key(key)
        assert name == SessionManager.safe_key(key)
        assert name.isascii()
        assert 0 < len(name.encode()) <= 120
        assert not set(name) & set('<>:"/\\|?* \x00')
        assert name == name.strip(". ")
        assert name.split(".")[0] not in ("con", "prn", "aux", "nul")

    def test_common_keys_keep_their_names(self) -> None:
        assert SessionManager.safe_key("telegram:42") == "telegram_42"
        assert SessionManager.safe_key("cli:direct") == "cli_direct"
        assert SessionManager.safe_key("telegram_42") != "telegram_42"

    def test_safe_key_is_static(self) -> None:
        assert isinstance(vars(SessionManager)["safe_key"], staticmethod)

    def test_sessions_dir_is_in_the_workspace(
        self, manager: SessionManager, tmp_path: Path
    ) -> None:
        assert manager.sessions_dir == tmp_path / "sessions"
        assert (manager.sessions_dir / "tertulia.db").exists()


def _current(manager: SessionManager) -> Any:
    found = manager.store.sessions.current(manager.store.sessions.key(source_of(KEY)))
    assert found is not None
    return found


@pytest.mark.parametrize("key", [None, 5, b"telegram:42", ["telegram:42"]])
def test_key_that_is_no_text_is_refused(manager: SessionManager, key: Any) -> None:
    for call in (manager.get_or_create, manager.delete_session, manager.read_session_file):
        with pytest.raises(ConfigError, match=r"^key is "):
            call(key)

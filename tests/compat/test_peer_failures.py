"""Known failures of Hermes Agent and nanobot do not occur with the compatible APIs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tertulia.compat.hermes.config import GatewayConfig, Platform, SessionResetPolicy
from tertulia.compat.hermes.session import SessionSource, SessionStore
from tertulia.compat.nanobot.manager import SessionManager
from tertulia.errors import StoreError
from tertulia.testing.fake_clock import FakeClock

ANN = SessionSource(Platform.TELEGRAM, "42", user_id="42", user_name="Ann")
BEN = SessionSource(Platform.TELEGRAM, "43", user_id="43", user_name="Ben")

RESET_AND_DIE = """
import os, sys
from pathlib import Path
from tertulia.compat.hermes.config import GatewayConfig, Platform
from tertulia.compat.hermes.session import SessionSource, SessionStore

store = SessionStore(Path(sys.argv[1]), GatewayConfig())
ann = SessionSource(Platform.TELEGRAM, "42", user_id="42", user_name="Ann")
first = store.get_or_create_session(ann)
store.append_to_transcript(first.session_id, {"role": "user", "content": "a day of tokens"})
second = store.reset_session(first.session_key)
store.append_to_transcript(second.session_id, {"role": "user", "content": "fresh"})
print(first.session_id, second.session_id, flush=True)
os._exit(9)
"""

HERMES_WRITER = """
import sys
from pathlib import Path
from tertulia.compat.hermes.config import GatewayConfig, Platform
from tertulia.compat.hermes.session import SessionSource, SessionStore

sys.stdin.readline()
with SessionStore(Path(sys.argv[1]), GatewayConfig()) as store:
    for number in range(int(sys.argv[3])):
        entry = store.get_or_create_session(SessionSource(Platform.TELEGRAM, "42", user_id="42"))
        said = {"role": "user", "content": f"{sys.argv[2]} {number}"}
        store.append_to_transcript(entry.session_id, said)
        store.update_session(entry.session_key, 3, 2, estimated_cost_usd=0.25)
"""

NANOBOT_WRITER = """
import sys
from pathlib import Path
from tertulia.compat.nanobot.manager import SessionManager

sys.stdin.readline()
with SessionManager(Path(sys.argv[1])) as manager:
    for number in range(int(sys.argv[3])):
        session = manager.get_or_create("telegram:42")
        session.add_message("user", f"{sys.argv[2]} {number}")
        manager.save(session)
"""

SAVE_UNTIL_KILLED = """
import sys
from itertools import count
from pathlib import Path
from tertulia.compat.nanobot.manager import SessionManager

manager = SessionManager(Path(sys.argv[1]))
session = manager.get_or_create("telegram:42")
for number in count():
    session.add_message("user", str(number))
    if number % 7 == 6:
        session.retain_recent_legal_suffix(5)
    session.metadata["last"] = number
    manager.save(session)
    print(number, flush=True)
"""


def message_of(text: str, role: str = "user") -> dict[str, Any]:
    return {"role": role, "content": text}


def write_at_once(program: str, place: Path, *, writers: int = 3, each: int = 15) -> None:
    running = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(place), str(number), str(each)],
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(writers)
    ]
    for writer in running:
        assert writer.stdin is not None
        writer.stdin.write("go\n")
        writer.stdin.flush()
    for writer in running:
        _, problem = writer.communicate(timeout=120)
        assert writer.returncode == 0, problem


def check_all_came_in_order(contents: list[str], *, writers: int = 3, each: int = 15) -> None:
    assert len(contents) == writers * each
    for writer in range(writers):
        mine = [text for text in contents if text.startswith(f"{writer} ")]
        assert mine == [f"{writer} {number}" for number in range(each)]


class TestHermes:
    def test_reset_survives_a_crash(self, tmp_path: Path) -> None:
        died = subprocess.run(
            [sys.executable, "-c", RESET_AND_DIE, str(tmp_path)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert died.returncode == 9, died.stderr
        first, second = died.stdout.split()
        with SessionStore(tmp_path, GatewayConfig()) as store:
            assert store.get_or_create_session(ANN).session_id == second
            assert store.load_transcript(second) == [message_of("fresh")]
            assert store.load_transcript(first) == [message_of("a day of tokens")]

    def test_key_never_points_to_an_ended_session(self, tmp_path: Path) -> None:
        with SessionStore(tmp_path, GatewayConfig()) as store:
            first = store.get_or_create_session(ANN)
            store.store.sessions.end(first.session_id, "crash")
            second = store.get_or_create_session(ANN)
            assert second.session_id != first.session_id
            assert [one.session_id for one in store.list_sessions()] == [second.session_id]

    def test_restart_does_not_reset_the_idle_time(self, tmp_path: Path, clock: FakeClock) -> None:
        config = GatewayConfig(default_reset_policy=SessionResetPolicy("idle", idle_minutes=60))
        with SessionStore(tmp_path, config) as store:
            store.get_or_create_session(ANN)
        clock.forward(minutes=59)
        with SessionStore(tmp_path, config) as store:
            store.list_sessions()
        clock.forward(minutes=2)
        with SessionStore(tmp_path, config) as store:
            assert store.get_or_create_session(ANN).auto_reset_reason == "idle"

    def test_two_stores_do_not_overwrite_each_other(self, tmp_path: Path) -> None:
        config = GatewayConfig()
        with SessionStore(tmp_path, config) as one, SessionStore(tmp_path, config) as other:
            ann, ben = one.get_or_create_session(ANN), other.get_or_create_session(BEN)
            one.reset_session(ann.session_key)
            assert other.get_or_create_session(BEN).session_id == ben.session_id
            assert len(one.list_sessions()) == len(other.list_sessions()) == 2

    def test_failing_database_is_not_an_empty_history(self, tmp_path: Path) -> None:
        store = SessionStore(tmp_path, GatewayConfig())
        entry = store.get_or_create_session(ANN)
        store.append_to_transcript(entry.session_id, message_of("old friend"))
        store.close()
        with pytest.raises(StoreError):
            store.load_transcript(entry.session_id)
        with pytest.raises(StoreError):
            store.append_to_transcript(entry.session_id, message_of("lost?"))
        with pytest.raises(StoreError):
            store.get_or_create_session(ANN)
        with pytest.raises(StoreError):
            store.has_any_sessions()

    def test_clock_that_steps_back_keeps_the_order(self, tmp_path: Path, clock: FakeClock) -> None:
        with SessionStore(tmp_path, GatewayConfig()) as store:
            session_id = store.get_or_create_session(ANN).session_id
            for text in ("one", "two", "three"):
                store.append_to_transcript(session_id, message_of(text))
                clock.forward(hours=-1)
            contents = [one["content"] for one in store.load_transcript(session_id)]
            assert contents == ["one", "two", "three"]

    def test_chat_ids_with_colons_are_separate(self, tmp_path: Path) -> None:
        one = SessionSource(Platform.MATRIX, "a:b", chat_type="group", thread_id="c")
        other = SessionSource(Platform.MATRIX, "a", chat_type="group", thread_id="b:c")
        with SessionStore(tmp_path, GatewayConfig()) as store:
            ids = {store.get_or_create_session(source).session_id for source in (one, other)}
        assert len(ids) == 2

    def test_end_reason_is_explained(self, tmp_path: Path, clock: FakeClock) -> None:
        config = GatewayConfig(default_reset_policy=SessionResetPolicy("idle", idle_minutes=5))
        with SessionStore(tmp_path, config) as store:
            first = store.get_or_create_session(ANN)
            clock.forward(minutes=6)
            store.get_or_create_session(ANN)
            assert "ended: reason idle" in store.store.sessions.explain(first.session_id)

    def test_unknown_price_is_not_zero(self, tmp_path: Path) -> None:
        with SessionStore(tmp_path, GatewayConfig()) as store:
            entry = store.get_or_create_session(ANN)
            store.update_session(entry.session_key, 10, 5, model="nobody-sells-this")
            assert store.list_sessions()[0].cost_status == "unknown"
            assert store.store.sessions.require(entry.session_id).cost_usd is None

    @pytest.mark.check
    def test_concurrent_programs_lose_nothing(self, tmp_path: Path) -> None:
        write_at_once(HERMES_WRITER, tmp_path)
        with SessionStore(tmp_path, GatewayConfig()) as store:
            (entry,) = store.list_sessions()
            contents = [one["content"] for one in store.load_transcript(entry.session_id)]
        check_all_came_in_order(contents)
        assert entry.total_tokens == 45 * 5
        assert entry.estimated_cost_usd == 45 * 0.25


class TestNanobot:
    @pytest.mark.check
    def test_concurrent_programs_lose_nothing(self, tmp_path: Path) -> None:
        write_at_once(NANOBOT_WRITER, tmp_path)
        with SessionManager(tmp_path) as manager:
            session = manager.get_or_create("telegram:42")
            check_all_came_in_order([one["content"] for one in session.messages])
            assert manager.store.check() == []

    def test_kill_loses_no_saved_message(self, tmp_path: Path) -> None:
        writer = subprocess.Popen(
            [sys.executable, "-c", SAVE_UNTIL_KILLED, str(tmp_path)],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert writer.stdout is not None
        told = -1
        while told < 30:
            told = int(writer.stdout.readline())
        writer.kill()
        writer.stdout.read()
        writer.wait()
        writer.stdout.close()
        with SessionManager(tmp_path) as manager:
            session = manager.get_or_create("telegram:42")
            last = session.metadata["last"]
            assert last >= told
            newest = [int(one["content"]) for one in session.messages]
            assert newest == list(range(last - len(newest) + 1, last + 1))
            assert 5 <= len(newest) <= 11
            session.add_message("user", "goes on")
            manager.save(session)
            assert manager.store.check() == []

    def test_save_writes_only_changes(self, tmp_path: Path) -> None:
        with SessionManager(tmp_path) as manager:
            manager.store._indexer.stop()  # what it writes later is no part of a save
            session = manager.get_or_create("telegram:42")
            for number in range(200):
                session.add_message("user", f"{number} " + os.urandom(2000).hex())
            manager.save(session)
            before = _bytes(tmp_path)
            for _ in range(20):
                session.add_message("assistant", "ok")
                manager.save(session)
            # 20 saves of 800 KB would be 16 MB.
            assert _bytes(tmp_path) - before < 1_000_000
            found = manager.store.sessions.find(limit=1).items[0]
            assert len(manager.store.transcript(found.id).revisions()) == 1

    def test_save_does_not_overwrite_damage(self, tmp_path: Path) -> None:
        path = tmp_path / "sessions" / "telegram_42.jsonl"
        path.parent.mkdir()
        head = b'{"_type": "metadata", "key": "telegram:42"}\n'
        damaged = head + b'{"role": "user", "content": "\xff"}\n{"role": "user", "content": "b"}\n'
        path.write_bytes(damaged)
        with SessionManager(tmp_path) as manager:
            session = manager.get_or_create("telegram:42")
            assert session.messages[-1]["content"] == "b"
            session.add_message("user", "c")
            manager.save(session)
            assert [report.problems != () for report in manager.imported] == [True]
        assert path.read_bytes() == damaged

    def test_failing_database_is_not_a_new_session(self, tmp_path: Path) -> None:
        manager = SessionManager(tmp_path)
        session = manager.get_or_create("telegram:42")
        session.add_message("user", "old friend")
        manager.save(session)
        manager.close()
        with pytest.raises(StoreError):
            manager.get_or_create("telegram:42")
        with pytest.raises(StoreError):
            manager.get_or_create("telegram:43")
        with pytest.raises(StoreError):
            manager.save(session)
        with pytest.raises(StoreError):
            manager.list_sessions()

    def test_huge_tool_result_does_not_fill_the_window(self, tmp_path: Path) -> None:
        with SessionManager(tmp_path) as manager:
            session = manager.get_or_create("telegram:42")
            session.add_message("user", "read that page")
            call = {"id": "c", "type": "function", "function": {"name": "get", "arguments": "{}"}}
            session.add_message("assistant", None, tool_calls=[call])
            session.add_message("tool", "<p>word</p>" * 100_000, tool_call_id="c", name="get")
            manager.save(session)
            found = manager.store.sessions.find(limit=1).items[0]
            history = manager.store.transcript(found.id).history(max_tokens=4000)
            assert [one["role"] for one in history] == ["user", "assistant", "tool"]
            assert len(history[2]["content"]) < 40_000


def _bytes(place: Path) -> int:
    return sum(path.stat().st_size for path in place.rglob("*") if path.is_file())

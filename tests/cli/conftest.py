"""A store with sessions, and ways to run commands on it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner, Result

import tertulia
from tertulia import Settings, Source, Usage
from tertulia.cli import main
from tertulia.records.processes import Process

HOSTILE_NAME = "[red]Mallory[/red] \x1b[31m\x9b31m\u202eevil"

ANA = Source("telegram", "42", user_id="42", user_name="Ana López")
OPS = Source(
    "slack", "C1", chat_type="channel", chat_name="ops", user_id="U1", user_name=HOSTILE_NAME
)

WEATHER: list[dict[str, Any]] = [
    {"role": "user", "content": "¿Qué tiempo hará mañana?"},
    {
        "role": "assistant",
        "content": None,
        "reasoning_content": "Ask the tool.",
        "tool_calls": [
            {
                "id": "c1",
                "type": "function",
                "function": {"name": "get_weather", "arguments": '{"city":"Lisboa"}'},
            }
        ],
    },
    {"role": "tool", "tool_call_id": "c1", "name": "get_weather", "content": "sunny " * 200},
    {"role": "assistant", "content": "Soleado, 24 °C ☀️\n\n- sin viento"},
]


class FakeClock:
    """A clock that shows the time it is set to."""

    def __init__(self, moment: datetime) -> None:
        self.moment = moment

    def now(self) -> datetime:
        return self.moment


class Demo(NamedTuple):
    """A store with an old and a new session of Ana, and one of a person with a hostile name."""

    path: str
    old: str
    new: str
    hostile: str


class CommandLine:
    """Runs commands on a store and checks their exit code."""

    def __init__(self, store: str | None) -> None:
        self._store = [] if store is None else ["--store", store]

    def __call__(self, *args: str, stdin: str | None = None, expect: int = 0) -> Result:
        result = CliRunner().invoke(main, [*self._store, *args], input=stdin)
        assert result.exit_code == expect, f"{result.output}\n{result.exception!r}"
        return result

    def json(self, *args: str, expect: int = 0) -> Any:
        return json.loads(self(*args, "--json", expect=expect).stdout)

    def error(self, *args: str, expect: int) -> Any:
        """Return the JSON error of a command, after checking the error lines for people."""
        text = self(*args, expect=expect).stderr
        error = json.loads(self(*args, "--json", expect=expect).stderr)["error"]
        assert set(error) == {"code", "message", "hint"}
        assert text.startswith("error: ")
        assert len(text.splitlines()) <= 2
        assert "Traceback" not in text
        return error


def run(*args: str | bytes, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run the program as a process."""
    return subprocess.run(
        [sys.executable, "-m", "tertulia", *args],
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=False,
        env=os.environ | options.pop("env", {}),
        **options,
    )


@pytest.fixture(autouse=True)
def _isolated_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the stores, folders, terminal width and colours of the machine."""
    for name in (
        "TERTULIA_STORE",
        "COLUMNS",
        "NO_COLOR",
        "FORCE_COLOR",
        "XDG_DATA_HOME",
        "TERTULIA_CONFIG",
        "XDG_CONFIG_HOME",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def demo(tmp_path: Path, _made_demo: Demo) -> Demo:
    """A store of its own for each test: a copy, which takes a tenth of the time to make one."""
    path = str(tmp_path / "talk.db")
    shutil.copy(_made_demo.path, path)
    return _made_demo._replace(path=path)


@pytest.fixture(scope="session")
def _made_demo(tmp_path_factory: pytest.TempPathFactory) -> Demo:
    path = str(tmp_path_factory.mktemp("demo") / "talk.db")
    clock = FakeClock(datetime.now(UTC) - timedelta(days=40))
    with tertulia.open(path, settings=Settings(zone="UTC"), clock=clock) as store:
        old = store.sessions.open(ANA).id
        used = Usage(input=812, output=64, cache_read=2048, model="gpt-5-mini", cost_usd=0.0123)
        store.transcript(old).extend(WEATHER, usage=used)
        store.sessions.rename(old, "Viaje a Lisboa")
        clock.moment = datetime.now(UTC) - timedelta(hours=3)
        new = store.sessions.open(ANA).id
        store.transcript(new).extend(
            [{"role": "user", "content": f"message {number}"} for number in range(1, 31)],
            usage=Usage(input=10_000, output=10, model="nobody-knows-its-price"),
        )
        hostile = store.sessions.open(OPS).id
        store.transcript(hostile).append({"role": "user", "content": f"deploy {HOSTILE_NAME}"})
        store.settle()
    return Demo(path, old, new, hostile)


@pytest.fixture
def cli(demo: Demo) -> CommandLine:
    return CommandLine(demo.path)


@pytest.fixture
def set_width(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Return a function that sets the width of the terminal."""
    return lambda width: monkeypatch.setenv("COLUMNS", str(width))


def background_process(store: tertulia.Store) -> Process:
    """Return a process that an agent could have started for Ana."""
    return Process(
        id="p1",
        key=store.sessions.key(ANA),
        session_id=None,
        origin=ANA,
        node="here",
        folder="p1",
        command="sleep 600",
        cwd="/",
        is_pty=True,
        state="starting",
        began_at=store.now(),
        told_at=store.now(),
    )

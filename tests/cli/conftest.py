"""A store to look at, and a hand to type commands."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner, Result

import tertulia
from tertulia import Source, Usage
from tertulia.cli import main

STRANGE = "[red]Mallory[/red] \x1b[31m\x9b31m\u202eevil"

ANA = Source("telegram", "42", user_id="42", user_name="Ana López")
OPS = Source("slack", "C1", chat_type="channel", chat_name="ops", user_id="U1", user_name=STRANGE)

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
    """Stands where it is put."""

    def __init__(self, moment: datetime) -> None:
        self.moment = moment

    def now(self) -> datetime:
        return self.moment


class Demo(NamedTuple):
    """A store with an old session of Ana's, her new one, and one of a stranger's."""

    path: str
    old: str
    new: str
    strange: str


class Typed:
    """Runs commands on a store and looks at what they say."""

    def __init__(self, store: str | None) -> None:
        self._store = [] if store is None else ["--store", store]

    def __call__(self, *args: str, stdin: str | None = None, expect: int = 0) -> Result:
        result = CliRunner().invoke(main, [*self._store, *args], input=stdin)
        assert result.exit_code == expect, f"{result.output}\n{result.exception!r}"
        return result

    def json(self, *args: str, expect: int = 0) -> Any:
        return json.loads(self(*args, "--json", expect=expect).stdout)

    def error(self, *args: str, expect: int) -> Any:
        """The error of a command, which is the same for people and for programs."""
        told = self(*args, expect=expect).stderr
        error = json.loads(self(*args, "--json", expect=expect).stderr)["error"]
        assert set(error) == {"code", "message", "hint"}
        assert told.startswith("error: ")
        assert len(told.splitlines()) <= 2
        assert "Traceback" not in told
        return error


@pytest.fixture(autouse=True)
def _apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No store, folder, width or colour of the machine is seen."""
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
def demo(tmp_path: Path) -> Demo:
    path = str(tmp_path / "talk.db")
    clock = FakeClock(datetime.now(UTC) - timedelta(days=40))
    with tertulia.open(path, clock=clock) as store:
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
        strange = store.sessions.open(OPS).id
        store.transcript(strange).append({"role": "user", "content": f"deploy {STRANGE}"})
        store.settle()
    return Demo(path, old, new, strange)


@pytest.fixture
def typed(demo: Demo) -> Typed:
    return Typed(demo.path)


@pytest.fixture
def at_terminal(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Makes the screen as wide as a terminal of so many columns."""
    return lambda width: monkeypatch.setenv("COLUMNS", str(width))

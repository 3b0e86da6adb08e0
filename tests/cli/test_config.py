"""`tertulia config` and `tertulia pair`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import tertulia
from tertulia import Source
from tests.cli.conftest import Demo, Typed


@pytest.fixture
def alone() -> Typed:
    return Typed(None)


def test_what_init_writes_is_right(alone: Typed, tmp_path: Path) -> None:
    told = alone.json("config", "init")
    assert told["config"] == str(tmp_path / "home/.config/tertulia/config.toml")
    assert os.stat(told["config"]).st_mode & 0o777 == 0o600
    assert alone.json("config", "check") == {**told, "variables": [], "valid": True}
    assert "is right" in alone("config", "check").stdout


def test_init_writes_over_nothing_unasked(alone: Typed) -> None:
    alone("config", "init")
    error = alone.error("config", "init", expect=2)
    assert "already" in error["message"]
    alone("config", "init", "--force", "--agent", "openai", "--model", "m", "--key-env", "NO_KEY")
    assert alone.json("config", "show")["settings"]["agent"]["api_key_env"] == "NO_KEY"
    assert "NO_KEY, which is not set" in alone.error("config", "check", expect=2)["message"]


def test_init_refuses_what_does_not_fit(alone: Typed, tmp_path: Path) -> None:
    assert "needs model" in alone.error("config", "init", "--agent", "openai", expect=2)["message"]
    assert not (tmp_path / "home/.config").exists()


def test_a_mistake_is_told_by_every_command(alone: Typed, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text("[agent]\nkinds = 'parrot'\n")
    for command in (("config", "check"), ("sessions", "list"), ("chat",), ("run",)):
        told = alone(*command, "--config", str(path), expect=2).stderr
        assert f"{path}, line 2: agent.kinds" in told
        assert "Did you mean kind?" in told


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[platforms.telegram]\n", "platforms.telegram: this version has no adapter"),
        ("[platforms.web]\n", "reached over HTTP, which is not enabled"),
        ("[http]\nenabled = true\nhost = '0.0.0.0'\n", "open to everybody"),
        ("[http]\nenabled = true\n[[http.tokens]]\nname = 'a'\ntoken = 'b'\n", "too short"),
        ("[http]\nenabled = true\n[platforms.webhook]\n", "no secret to sign with"),
        ("[agent]\nkind = 'http'\nurl = 'localhost'\n", "address of an agent's server"),
    ],
)
def test_what_run_would_refuse_is_told_by_check(
    alone: Typed, tmp_path: Path, text: str, told: str
) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    for command in (("config", "check"), ("run",)):
        assert told in alone(*command, "--config", str(path), expect=2).stderr


def test_the_order_is_file_variable_option(
    alone: Typed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "mine.toml"
    path.write_text("[store]\nwhere = 'file.db'\n")
    monkeypatch.setenv("TERTULIA_CONFIG", str(path))
    assert alone.json("store", "migrate")["store"] == str(tmp_path / "file.db")
    monkeypatch.setenv("TERTULIA_STORE", str(tmp_path / "variable.db"))
    assert alone.json("store", "migrate")["store"].endswith("variable.db")
    assert alone.json("store", "migrate", "--store", "option.db")["store"].endswith("option.db")


def test_show_hides_secrets(alone: Typed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERTULIA_AGENT_KIND", "openai")
    monkeypatch.setenv("TERTULIA_AGENT_MODEL", "m")
    monkeypatch.setenv("TERTULIA_AGENT_API_KEY", "TOPSECRET")
    shown = alone("config", "show").stdout
    assert "TOPSECRET" not in shown
    assert 'model = "m"' in shown
    assert "# variable: TERTULIA_AGENT_API_KEY" in shown


def test_somebody_is_let_in_and_out(typed: Typed, demo: Demo) -> None:
    with tertulia.open(demo.path) as store:
        code = store.people.ask(Source("signal", "7", user_id="7", user_name="Bo"))
    assert code is not None
    waiting = typed.json("pair", "list")["waiting"]
    assert [one["id"] for one in waiting] == ["signal:7"]
    assert code not in str(waiting)
    assert "asks" in typed("pair", "list").stdout
    assert typed.error("pair", "approve", "WRONG000", expect=3)["code"] == "not_found"
    assert typed.json("pair", "approve", code)["role"] == "member"
    assert [one["id"] for one in typed.json("pair", "list")["people"]] == ["signal:7"]
    assert "may write no longer" in typed("pair", "revoke", "signal:7").stdout
    assert typed.json("pair", "list") == {"waiting": [], "people": []}

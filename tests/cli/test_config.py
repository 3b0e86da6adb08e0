"""`tertulia config`: init, show and check."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import CommandLine


@pytest.fixture
def cli_without_store() -> CommandLine:
    return CommandLine(None)


def test_init_writes_a_valid_private_file(cli_without_store: CommandLine, tmp_path: Path) -> None:
    text = cli_without_store.json("config", "init")
    assert text["config"] == str(tmp_path / "home/.config/tertulia/config.toml")
    assert os.stat(text["config"]).st_mode & 0o777 == 0o600
    assert cli_without_store.json("config", "check") == {**text, "variables": [], "valid": True}
    assert "is valid" in cli_without_store("config", "check").stdout


def test_init_overwrites_only_with_force(cli_without_store: CommandLine) -> None:
    cli_without_store("config", "init")
    error = cli_without_store.error("config", "init", expect=2)
    assert "already" in error["message"]
    cli_without_store(
        "config", "init", "--force", "--agent", "openai", "--model", "m", "--key-env", "NO_KEY"
    )
    assert cli_without_store.json("config", "show")["settings"]["agent"]["api_key_env"] == "NO_KEY"
    assert (
        "NO_KEY, which is not set"
        in cli_without_store.error("config", "check", expect=2)["message"]
    )


@pytest.mark.skipif(os.name != "posix", reason="there is no limit of file sizes")
@pytest.mark.parametrize("is_new", [True, False])
def test_init_that_cannot_be_written_whole_changes_nothing(tmp_path: Path, is_new: bool) -> None:
    import resource

    path = tmp_path / "config.toml"
    if not is_new:
        path.write_text("# mine\n")
    done = subprocess.run(
        [sys.executable, "-m", "tertulia", "config", "init", "--force", "--config", str(path)],
        capture_output=True, text=True, check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100)),
    )  # fmt: skip
    assert done.returncode == 2
    assert "config.toml cannot be written: File too large." in done.stderr
    assert [entry.name for entry in tmp_path.iterdir()] == ([] if is_new else ["config.toml"])
    assert is_new or path.read_text() == "# mine\n"


def test_init_keeps_a_link_and_replaces_no_device(
    cli_without_store: CommandLine, tmp_path: Path
) -> None:
    (tmp_path / "real.toml").write_text("")
    (tmp_path / "link.toml").symlink_to("real.toml")
    cli_without_store("config", "init", "--force", "--config", str(tmp_path / "link.toml"))
    assert (tmp_path / "link.toml").is_symlink()
    assert "[agent]" in (tmp_path / "real.toml").read_text("utf-8")
    os.mkfifo(tmp_path / "pipe")
    error = cli_without_store.error(
        "config", "init", "--force", "--config", str(tmp_path / "pipe"), expect=2
    )
    assert "is not a regular file" in error["message"]


def test_init_refuses_an_incomplete_agent(cli_without_store: CommandLine, tmp_path: Path) -> None:
    assert (
        "needs model"
        in cli_without_store.error("config", "init", "--agent", "openai", expect=2)["message"]
    )
    arguments = ("--agent", "openai", "--model", "m", "--key-env", "sk-proj-1")
    problem = cli_without_store.error("config", "init", *arguments, expect=2)
    assert "no name of an environment variable" in problem["message"]
    assert "sk-proj-1" not in str(problem)
    assert not (tmp_path / "home/.config").exists()


def test_every_command_reports_a_wrong_configuration(
    cli_without_store: CommandLine, tmp_path: Path
) -> None:
    path = tmp_path / "mine.toml"
    path.write_text("[agent]\nkinds = 'parrot'\n")
    for command in (("config", "check"), ("sessions", "list"), ("chat",), ("run",)):
        text = cli_without_store(*command, "--config", str(path), expect=2).stderr
        assert f"{path}, line 2: agent.kinds" in text
        assert "Did you mean kind?" in text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[platforms.api]\n", "platforms.api: this version has no adapter"),
        ("[platforms.discord]\n", "platforms.discord has no token"),
        ("[platforms.web]\n", "reached over HTTP, which is not enabled"),
        ("[http]\nenabled = true\nhost = '0.0.0.0'\n", "open to everybody"),
        ("[http]\nenabled = true\n[[http.tokens]]\nname = 'a'\ntoken = 'b'\n", "too short"),
        ("[http]\nenabled = true\n[platforms.webhook]\n", "platforms.webhook has no secret"),
        ("[agent]\nkind = 'http'\nurl = 'localhost'\n", "address of an agent's server"),
    ],
)
def test_check_reports_what_run_would_refuse(
    cli_without_store: CommandLine, tmp_path: Path, text: str, message: str
) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    for command in (("config", "check"), ("run",)):
        assert message in cli_without_store(*command, "--config", str(path), expect=2).stderr


def test_option_overrides_variable_overrides_file(
    cli_without_store: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "mine.toml"
    path.write_text("[store]\nwhere = 'file.db'\n")
    monkeypatch.setenv("TERTULIA_CONFIG", str(path))
    assert cli_without_store.json("store", "migrate")["store"] == str(tmp_path / "file.db")
    monkeypatch.setenv("TERTULIA_STORE", str(tmp_path / "variable.db"))
    assert cli_without_store.json("store", "migrate")["store"].endswith("variable.db")
    assert cli_without_store.json("store", "migrate", "--store", "option.db")["store"].endswith(
        "option.db"
    )


def test_show_hides_secrets(
    cli_without_store: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERTULIA_AGENT_KIND", "openai")
    monkeypatch.setenv("TERTULIA_AGENT_MODEL", "m")
    monkeypatch.setenv("TERTULIA_AGENT_API_KEY", "TOPSECRET")
    shown = cli_without_store("config", "show").stdout
    assert "TOPSECRET" not in shown
    assert 'model = "m"' in shown
    assert "# variable: TERTULIA_AGENT_API_KEY" in shown


def test_check_tells_all_mistakes_at_once(cli_without_store: CommandLine, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        "[agent]\nkinds = 'parrot'\n[gateway]\nmeanwhile = 'later'\n[[store.budgets]]\nper = 'x'\n"
        "[store]\nzone = 'Nowhere/Town'\n[log]\nlevel = 'loud'\n"
    )
    lines = cli_without_store("config", "check", "--config", str(path), expect=2).stderr
    for number, key in ((2, "agent.kinds"), (4, "gateway.meanwhile"), (10, "log.level")):
        assert f"line {number}: {key}" in lines
    assert "store.budgets[0].per" in lines
    assert "store.zone" in lines


def test_check_prints_all_mistakes_as_one_json_document(
    cli_without_store: CommandLine, tmp_path: Path
) -> None:
    path = tmp_path / "mine.toml"
    path.write_text("[agent]\nkinds = 'parrot'\n[log]\nlevel = 'loud'\n")
    command = ("config", "check", "--json", "--config", str(path))
    printed = json.loads(cli_without_store(*command, expect=2).stderr)
    first, second = printed["errors"]
    assert printed["error"] == first
    assert "agent.kinds" in first["message"]
    assert "log.level" in second["message"]
    path.write_text("[agent]\nkinds = 'parrot'\n")
    assert json.loads(cli_without_store(*command, expect=2).stderr) == {"error": first}


def test_check_tells_everything_that_cannot_be_built(
    cli_without_store: CommandLine, tmp_path: Path
) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        "[agent]\nkind = 'openai'\nmodel = 'm'\napi_key_env = 'NO_SUCH_KEY'\n"
        "[platforms.telegram]\ntoken_env = 'NO_SUCH_TOKEN'\n"
    )
    text = cli_without_store("config", "check", "--config", str(path), expect=2).stderr
    assert "NO_SUCH_KEY" in text
    assert "NO_SUCH_TOKEN" in text


@pytest.mark.parametrize(
    ("options", "key", "value"),
    [
        (["--agent", "command", "--command", "python 'my agent.py'"], "command", "python"),
        (["--agent", "http", "--url", "http://127.0.0.1:5000/answer"], "url", None),
        (["--agent", "openai", "--model", "m", "--base-url", "http://[::1]:1/v1"], "model", None),
    ],
)  # fmt: skip
def test_init_makes_every_kind_of_agent(
    cli_without_store: CommandLine, options: list[str], key: str, value: str | None
) -> None:
    path = cli_without_store.json("config", "init", *options)["config"]
    shown = cli_without_store.json("config", "show")["settings"]["agent"]
    assert shown["kind"] == options[1]
    assert shown[key]
    text = Path(path).read_text("utf-8")
    assert value is None or f'["{value}", "my agent.py"]' in text
    assert "is valid" in cli_without_store("config", "check").stdout


def test_path_is_printed_whether_or_not_the_file_exists(
    cli_without_store: CommandLine, tmp_path: Path
) -> None:
    expected = str(tmp_path / "home/.config/tertulia/config.toml")
    assert cli_without_store("config", "path").stdout == f"{expected}\n"
    assert cli_without_store.json("config", "path") == {"config": expected, "exists": False}


def test_hints_name_the_file_that_was_given(cli_without_store: CommandLine) -> None:
    written = cli_without_store("config", "init", "--config", "my own.toml").stdout
    assert written.endswith("--config 'my own.toml' chat\n")
    checked = cli_without_store("config", "check", "--config", "my own.toml").stdout
    assert checked.endswith("--config 'my own.toml' doctor\n")
    error = cli_without_store.error("config", "init", "--config", "my own.toml", expect=2)
    assert "config show --config 'my own.toml'" in error["hint"]


def test_program_is_named_once_in_the_hint(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.touch()
    command = [sys.executable, "-m", "tertulia", "config", "init", "--config", str(path)]
    result = subprocess.run(
        command, check=False, capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    assert "Show it with: python -m tertulia config show" in result.stderr


def test_init_names_a_file_where_a_folder_is_needed(
    cli_without_store: CommandLine, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("x")
    path = str(tmp_path / "file/config.toml")
    error = cli_without_store.error("config", "init", "--config", path, expect=2)
    assert error["message"].endswith("file is not a folder.")


@pytest.mark.parametrize("option", ["--url", "--base-url"])
def test_init_refuses_an_address_that_no_agent_accepts(
    cli_without_store: CommandLine, option: str, tmp_path: Path
) -> None:
    kind = {"--url": ("http",), "--base-url": ("openai", "--model", "m")}[option]
    path = tmp_path / "new.toml"
    cli_without_store.error(
        "config", "init", "--config", str(path), "--agent", *kind, option, "nope", expect=2
    )
    assert not path.exists()

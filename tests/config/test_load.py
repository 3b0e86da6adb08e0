"""Reading the configuration: files, variables, mistakes, and hidden secrets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tertulia.agents import OpenAIOptions
from tertulia.config.load import HIDDEN, LoadedConfig, load_config, to_redacted_dict, variables
from tertulia.config.schema import Config
from tertulia.errors import ConfigError
from tertulia.platforms.local import LocalSettings
from tests.config.config_file import load_error, load_text


def test_file_with_every_section_is_read(tmp_path: Path) -> None:
    text = """
[store]
where = "talk.db"
zone = "Europe/Madrid"
[store.policies.default]
mode = "idle"
idle_minutes = 60
[store.policies.platforms.telegram]
mode = "none"
[[store.budgets]]
per = "person"
usd = 2
[store.homes.telegram]
chat_id = "42"
[gateway]
meanwhile = "steer"
gather_seconds = 1
[platforms.telegram]
admission = "nobody"
owners = ["42"]
[platforms.local]
history = ""
[agent]
kind = "openai"
model = "m"
api_key_env = "SOME_KEY"
[agent.limits]
total = 5
[http]
port = 0
[[http.tokens]]
name = "console"
role = "owner"
token_env = "CONSOLE"
[log]
format = "json"
"""
    config = load_text(tmp_path, text).config
    assert config.store.where == str(tmp_path / "talk.db")
    settings = config.store_settings
    assert settings.zone == "Europe/Madrid"
    assert settings.policies.for_chat("telegram", "dm").mode == "none"
    assert settings.policies.default.idle_minutes == 60
    assert settings.budgets[0].usd == 2
    assert settings.homes["telegram"].chat_id == "42"
    assert settings.platforms == ("telegram",)
    assert config.gateway_settings.meanwhile == "steer"
    assert config.gateway_settings.of("telegram").owners == ("42",)
    assert config.gateway_settings.of("discord").admission == "paired"
    assert isinstance(config.agent, OpenAIOptions)
    assert config.agent.limits.total == 5
    assert config.agent.resolve_api_key({"SOME_KEY": "sk"}) == "sk"
    assert config.http.tokens[0].role == "owner"
    local = config.platform("local")
    assert isinstance(local, LocalSettings)
    assert local.history == ""


@pytest.mark.parametrize(
    ("text", "where", "hint"),
    [
        ("[agnt]", "line 1: agnt", "Did you mean agent?"),
        ("# a\n\n[agent]\nkid = 'x'", "line 4: agent.kid", "Did you mean kind?"),
        ("[agent]\nkind = 'opnai'", "line 2: agent.kind", "Did you mean openai?"),
        ("agent.kind = 'zzz'", "line 1: agent.kind", "Allowed: anthropic, "),
        ("[gateway]\nturns = 'many'", "line 2: gateway.turns", "a whole number"),
        ("[gateway]\nturns = true", "line 2: gateway.turns", "a whole number"),
        ("[gateway]\nturns = 0", "line 2: gateway.turns", "above 0"),
        ("[http]\nport = 70000", "line 2: http.port", "up to 65535"),
        ("[store]\nzone = 'Mars'", "line 2: store.zone", "IANA"),
        ("[store.policies.default]\nmode = 'dayly'", "line 2: store.policies.default.mode",
         "Did you mean daily?"),
        ("[store.policies]\ndefault = { idle_minutes = 0 }",
         "line 2: store.policies.default.idle_minutes", "above 0"),
        ("[[store.budgets]]\nper='session'\nusd=1\n[[store.budgets]]\nper='session'\nusd='x'",
         "line 6: store.budgets[1].usd", "a number"),
        ("[[store.budgets]]\nusd = 1", "line 1: store.budgets[0] has no per", "per ="),
        ("[platforms.telegarm]", "line 1: platforms.telegarm", "Did you mean telegram?"),
        ("[platforms.telegram]\nallow = [\n 'a',\n 3,\n]", "line 2: platforms.telegram.allow[1]",
         "a text"),
        ("xyz = '''\n[agent]\n'''\n[log]\nlevel = 'loud'", "line 1: xyz", "Allowed: store"),
        ("[log]\nfile = '''a\nkind = 1'''\nlevel = 'loud'", "line 4: log.level", "Allowed: debug"),
        ("store = 3", "line 1: store", "[store]"),
        ("[agent]\nkind = 'openai'", "line 2: agent.kind", "Set model"),
        ("[agent]\nkind = 'parrot'\nmodel = 'm'", "line 3: agent.model", "It takes: "),
        ("[agent]\nmodle = 'm'", "line 2: agent.modle", "Did you mean model?"),
        ("[[http.tokens]]\nname = 'a'", "line 1: http.tokens[0].token", "Give either"),
        ("[[http.tokens]]\nname = 'a'\ntoken = 'x'", "line 3: http.tokens[0].token",
         "at least 16"),
        ("[http]\nhost = '0.0.0.0'", "line 2: http.host", "Add a token"),
        ("[platforms.webhook]\nsecrt = 'x'", "line 2: platforms.webhook.secrt",
         "Did you mean secret?"),
        ("x =", "is not TOML", "Correct that line"),
        (f"x = {'[' * 100_000}", "is not TOML", "Correct that line"),
        (f"# {'x' * 1_000_000}", "has more than 1,000,000 characters", "Check the path"),
    ],
)  # fmt: skip
def test_mistake_is_reported_with_line_and_hint(
    tmp_path: Path, text: str, where: str, hint: str
) -> None:
    problem = load_error(tmp_path, text)
    assert where in problem.message
    assert str(tmp_path / "config.toml") in problem.message
    assert problem.hint is not None
    assert hint in problem.hint


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("[store]\nplatforms = ['telegram']", "store.platforms"),
        ("[store]\nhas_active_processes = true", "store.has_active_processes"),
        ("[gateway.platforms.telegram]\nadmission = 'everyone'", "gateway.platforms"),
    ],
)
def test_runtime_only_field_is_refused_in_the_file(tmp_path: Path, text: str, key: str) -> None:
    problem = load_error(tmp_path, text)
    assert f": {key}: there is no such key." in problem.message
    assert ", line " in problem.message
    assert str(problem.hint).startswith(("Did you mean ", "Allowed: "))
    assert key.rpartition(".")[2] not in str(problem.hint)


def test_runtime_only_field_has_no_variable() -> None:
    with pytest.raises(ConfigError, match="Unknown setting") as caught:
        load_config(None, {"TERTULIA_STORE_HAS_ACTIVE_PROCESSES": "true"})
    assert str(caught.value.hint).startswith("Did you mean TERTULIA_")


def test_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="There is no configuration"):
        load_config(str(tmp_path / "nothing.toml"), {})


class TestVariables:
    def test_variables_override_the_file(self, tmp_path: Path) -> None:
        text = "[agent]\nkind = 'openai'\nmodel = 'one'\n[gateway]\nturns = 3"
        loaded = load_text(
            tmp_path,
            text,
            TERTULIA_AGENT_MODEL="two",
            TERTULIA_GATEWAY_TURNS="7",
            TERTULIA_STORE="postgresql://h/db",
            TERTULIA_STORE_REDACT_PII="true",
            TERTULIA_PLATFORMS_TELEGRAM_ALLOW='["1", "2"]',
            TERTULIA_STORE_POLICIES_DEFAULT_MODE="none",
        )
        assert isinstance(loaded.config.agent, OpenAIOptions)
        assert loaded.config.agent.model == "two"
        assert loaded.config.gateway.turns == 7
        assert loaded.config.store.where == "postgresql://h/db"
        assert loaded.config.store_settings.redact_pii
        assert loaded.config.store_settings.policies.default.mode == "none"
        assert loaded.config.gateway_settings.of("telegram").allow == ("1", "2")
        assert "TERTULIA_AGENT_MODEL" in loaded.variables

    def test_invalid_value_is_reported_with_its_variable(self, tmp_path: Path) -> None:
        problem = load_error(tmp_path, "[gateway]\nturns = 3", TERTULIA_GATEWAY_TURNS="x")
        assert problem.message.startswith("TERTULIA_GATEWAY_TURNS (gateway.turns) is 'x'")

    def test_unknown_variable_is_reported_with_the_closest_name(self, tmp_path: Path) -> None:
        problem = load_error(tmp_path, "", TERTULIA_AGENT_MODLE="x")
        assert problem.message == "Unknown setting in environment variable TERTULIA_AGENT_MODLE."
        assert problem.hint == "Did you mean TERTULIA_AGENT_MODEL?"

    def test_other_variables_are_ignored(self) -> None:
        others = {"TERTULIA_CONFIG": "x", "TERTULIANA": "y", "TERTULIA_AGENT_MODEL": ""}
        assert load_config(None, others) == LoadedConfig(Config(), None)

    def test_each_variable_sets_a_different_key(self) -> None:
        key_paths = variables()
        del key_paths["TERTULIA_STORE"]
        assert len(set(key_paths.values())) == len(key_paths)


class TestSecrets:
    text = """
[store]
where = "postgresql://ana:TOPSECRET@host/db"
[agent]
kind = "openai"
model = "m"
api_key = "TOPSECRET"
base_url = "http://u:TOPSECRET@host/v1?api_key=TOPSECRET"
headers = { X-Key = "TOPSECRET" }
[[http.tokens]]
name = "a"
token = "TOPSECRET-0123456789"
"""

    def test_secrets_are_hidden(self, tmp_path: Path) -> None:
        config = load_text(tmp_path, self.text).config
        values = to_redacted_dict(config)
        assert "TOPSECRET" not in repr(values)
        assert values["agent"]["api_key"] == HIDDEN
        assert values["agent"]["model"] == "m"
        assert isinstance(config.agent, OpenAIOptions)
        assert config.agent.resolve_api_key() == "TOPSECRET"
        assert "TOPSECRET" not in repr(config.agent.api_key) + repr(config.http)

    def test_arguments_and_variables_of_a_command_are_hidden(self, tmp_path: Path) -> None:
        text = "[agent]\nkind = 'command'\ncommand = ['run', '--key=TOPSECRET']\n"
        text += "variables = { KEY = 'TOPSECRET' }"
        values = to_redacted_dict(load_text(tmp_path, text).config)
        assert values["agent"]["command"] == ["run", HIDDEN]
        assert "TOPSECRET" not in repr(values)


_KEYS = st.text("abcdefgh_-.\"'é ", min_size=1, max_size=6)
_VALUES = st.recursive(
    st.one_of(st.integers(-5, 5), st.booleans(), st.text(max_size=5)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(_KEYS, inner, max_size=3)),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from(["store", "agent", "platforms", "http", "x"]), _VALUES))
def test_whatever_stands_there_is_read_or_load_error(
    tmp_path_factory: pytest.TempPathFactory, table: dict[str, Any]
) -> None:
    text = "\n".join(f"{name} = {_toml(value)}" for name, value in table.items())
    path = tmp_path_factory.getbasetemp() / "config.toml"
    path.write_text(text, "utf-8")
    message = ""
    try:
        load_config(str(path), {})
    except ConfigError as problem:
        message = problem.message
    assert not message or message.startswith(f"{path}, line ")


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        pairs = (f"{msgspec.json.encode(k).decode()} = {_toml(v)}" for k, v in value.items())
        return f"{{ {', '.join(pairs)} }}"
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    return msgspec.json.encode(value).decode().replace("\x7f", "\\u007f")


def test_program_of_an_mcp_server_may_be_a_text_beside_its_arguments(tmp_path: Path) -> None:
    text = """
[mcp.servers.files]
command = "mcp-server-filesystem"
args = ["/srv/docs"]
env = { LOG = "off" }
[mcp.servers.time]
command = ["mcp-server-time", "--utc"]
"""
    servers = load_text(tmp_path, text).config.mcp.servers
    assert servers["files"].arguments == ("mcp-server-filesystem", "/srv/docs")
    assert servers["files"].environment({}) == {"LOG": "off"}
    assert servers["time"].arguments == ("mcp-server-time", "--utc")

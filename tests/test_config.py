"""The configuration: what is read, what is refused and where, and that secrets stay hidden."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tertulia import Settings
from tertulia.cli.config_reference import reference
from tertulia.config.build import agent_of
from tertulia.config.load import (
    HIDDEN,
    LoadedConfig,
    read,
    shown,
    variables,
)
from tertulia.config.schema import (
    AgentConfig,
    Config,
    GatewayConfig,
    StoreConfig,
)
from tertulia.errors import ConfigError
from tertulia.gateway.settings import GatewaySettings
from tests.docs.markdown import ROOT


def given_file(folder: Path, text: str, **environ: str) -> LoadedConfig:
    path = folder / "config.toml"
    path.write_text(text, "utf-8")
    return read(str(path), environ)


def refused(folder: Path, text: str, **environ: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        given_file(folder, text, **environ)
    return caught.value


def test_nothing_is_needed() -> None:
    assert read(None, {}).config == Config()
    assert Config().settings == Settings()
    assert Config().rules == GatewaySettings()


def test_a_whole_file(tmp_path: Path) -> None:
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
    config = given_file(tmp_path, text).config
    assert config.store.where == str(tmp_path / "talk.db")
    settings = config.settings
    assert settings.zone == "Europe/Madrid"
    assert settings.policies.for_chat("telegram", "dm").mode == "none"
    assert settings.policies.default.idle_minutes == 60
    assert settings.budgets[0].usd == 2
    assert settings.homes["telegram"].chat_id == "42"
    assert settings.platforms == ("telegram",)
    assert config.rules.meanwhile == "steer"
    assert config.rules.of("telegram").owners == ("42",)
    assert config.rules.of("discord").admission == "paired"
    assert config.agent.limits.total == 5
    assert config.agent.key({"SOME_KEY": "sk"}) == "sk"
    assert config.http.tokens[0].role == "owner"
    assert config.local.history == ""


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
        ("note = '''\n[agent]\n'''\n[log]\nlevel = 'loud'", "line 1: note", "Allowed: store"),
        ("[log]\nfile = '''a\nkind = 1'''\nlevel = 'loud'", "line 4: log.level", "Allowed: debug"),
        ("store = 3", "line 1: store", "[store]"),
        ("[agent]\nkind = 'openai'", "line 2: agent.kind", "Set model"),
        ("[agent]\nkind = 'parrot'\nmodel = 'm'", "line 3: agent.model", "It takes: "),
        ("[[http.tokens]]\nname = 'a'", "line 1: http.tokens[0].token", "Give either"),
        ("x =", "is not TOML", "Mend that line"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(tmp_path: Path, text: str, where: str, hint: str) -> None:
    problem = refused(tmp_path, text)
    assert where in problem.message
    assert str(tmp_path / "config.toml") in problem.message
    assert problem.hint is not None
    assert hint in problem.hint


def test_a_file_that_is_named_has_to_exist(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="There is no configuration"):
        read(str(tmp_path / "nothing.toml"), {})


class TestVariables:
    def test_go_over_the_file(self, tmp_path: Path) -> None:
        text = "[agent]\nkind = 'openai'\nmodel = 'one'\n[gateway]\nturns = 3"
        found = given_file(
            tmp_path,
            text,
            TERTULIA_AGENT_MODEL="two",
            TERTULIA_GATEWAY_TURNS="7",
            TERTULIA_STORE="postgresql://h/db",
            TERTULIA_STORE_REDACT_PII="true",
            TERTULIA_PLATFORMS_TELEGRAM_ALLOW='["1", "2"]',
            TERTULIA_STORE_POLICIES_DEFAULT_MODE="none",
        )
        assert found.config.agent.model == "two"
        assert found.config.gateway.turns == 7
        assert found.config.store.where == "postgresql://h/db"
        assert found.config.settings.redact_pii
        assert found.config.settings.policies.default.mode == "none"
        assert found.config.rules.of("telegram").allow == ("1", "2")
        assert "TERTULIA_AGENT_MODEL" in found.variables

    def test_a_wrong_value_names_the_variable(self, tmp_path: Path) -> None:
        problem = refused(tmp_path, "[gateway]\nturns = 3", TERTULIA_GATEWAY_TURNS="x")
        assert problem.message.startswith("TERTULIA_GATEWAY_TURNS (gateway.turns) is 'x'")

    def test_a_wrong_name_is_told_with_the_nearest(self, tmp_path: Path) -> None:
        problem = refused(tmp_path, "", TERTULIA_AGENT_MODLE="x")
        assert problem.hint == "Did you mean TERTULIA_AGENT_MODEL?"

    def test_what_is_not_ours_is_left_alone(self) -> None:
        others = {"TERTULIA_CONFIG": "x", "TERTULIANA": "y", "TERTULIA_AGENT_MODEL": ""}
        assert read(None, others) == LoadedConfig(Config(), None)

    def test_no_two_keys_share_one(self) -> None:
        found = variables()
        del found["TERTULIA_STORE"]
        assert len(set(found.values())) == len(found)


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
token = "TOPSECRET"
"""

    def test_are_not_shown(self, tmp_path: Path) -> None:
        config = given_file(tmp_path, self.text).config
        told = shown(config)
        assert "TOPSECRET" not in repr(told)
        assert told["agent"]["api_key"] == HIDDEN
        assert told["agent"]["model"] == "m"
        assert config.agent.key() == "TOPSECRET"
        assert "TOPSECRET" not in repr(config.agent.api_key) + repr(config.http)

    def test_of_a_program_are_not_shown(self, tmp_path: Path) -> None:
        text = "[agent]\nkind = 'command'\ncommand = ['run', '--key=TOPSECRET']\n"
        text += "variables = { KEY = 'TOPSECRET' }"
        told = shown(given_file(tmp_path, text).config)
        assert told["agent"]["command"] == ["run", HIDDEN]
        assert "TOPSECRET" not in repr(told)

    def test_a_variable_that_is_not_set_is_told(self) -> None:
        agent = AgentConfig(kind="anthropic", model="m", api_key_env="NO_SUCH_KEY")
        with pytest.raises(ConfigError, match="NO_SUCH_KEY, which is not set"):
            agent.key({})


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ({}, "ParrotAgent"),
        ({"kind": "openai", "model": "m", "api_key": "k"}, "OpenAIAgent"),
        ({"kind": "anthropic", "model": "m", "max_tokens": 9}, "AnthropicAgent"),
        ({"kind": "command", "command": ("true",), "variables": {"A": "b"}}, "CommandAgent"),
        ({"kind": "http", "url": "http://127.0.0.1:1/x"}, "HttpAgent"),
    ],
)
def test_every_kind_of_agent_is_made(given: dict[str, Any], kind: str) -> None:
    assert type(agent_of(AgentConfig(**given))).__name__ == kind


@pytest.mark.parametrize(
    ("ours", "theirs", "without"),
    [
        (StoreConfig, Settings, {"platforms", "has_active_processes"}),
        (GatewayConfig, GatewaySettings, {"platforms"}),
    ],
)
def test_the_sections_have_what_can_be_set_and_the_same_defaults(
    ours: type, theirs: type, without: set[str]
) -> None:
    left, right = ours(), theirs()
    names = set(theirs.__struct_fields__) - without  # type: ignore[attr-defined]
    assert set(ours.__struct_fields__) - {"where", "memory"} == names  # type: ignore[attr-defined]
    assert {name: getattr(left, name) for name in names} == {
        name: getattr(right, name) for name in names
    }


_KEYS = st.text("abcdefgh_-.\"'é ", min_size=1, max_size=6)
_VALUES = st.recursive(
    st.one_of(st.integers(-5, 5), st.booleans(), st.text(max_size=5)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(_KEYS, inner, max_size=3)),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from(["store", "agent", "platforms", "http", "x"]), _VALUES))
def test_whatever_stands_there_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, table: dict[str, Any]
) -> None:
    text = "\n".join(f"{name} = {_toml(value)}" for name, value in table.items())
    path = tmp_path_factory.getbasetemp() / "config.toml"
    path.write_text(text, "utf-8")
    told = ""
    try:
        read(str(path), {})
    except ConfigError as problem:
        told = problem.message
    assert not told or told.startswith(f"{path}, line ")


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        pairs = (f"{msgspec.json.encode(k).decode()} = {_toml(v)}" for k, v in value.items())
        return f"{{ {', '.join(pairs)} }}"
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    return msgspec.json.encode(value).decode().replace("\x7f", "\\u007f")


def test_the_page_is_up_to_date() -> None:
    told = (ROOT / "docs/config.md").read_text("utf-8")
    assert told == reference(), "run: python -m tertulia.cli.config_reference > docs/config.md"

"""Several API keys: a session keeps to one, and goes on with the next when it is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from tertulia.agents.agent_options import OpenAIOptions
from tertulia.agents.key_ring import KeyRing
from tertulia.errors import AgentFailed, AgentUnavailable, ConfigError
from tertulia.testing.scripted_gateway import ScriptedGateway
from tests.agents.agent_fixtures import ANTHROPIC, OPENAI, Provider, run_turn
from tests.servers.models import ModelServer, refuses

KEYS = ("sk-first-0123456789", "sk-second-0123456789", "sk-third-0123456789")


@pytest.fixture(autouse=True)
def variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, key in zip("ABC", KEYS, strict=True):
        monkeypatch.setenv(f"KEY_{name}", key)


@pytest.mark.parametrize("provider", [OPENAI, ANTHROPIC], ids=lambda provider: provider.name)
@pytest.mark.parametrize("status", [401, 402, 403, 429])
def test_the_next_key_is_used_when_one_is_refused(
    tmp_path: Path, provider: Provider, status: int
) -> None:
    with ModelServer() as server:
        server.script(refuses(status), provider.says("hello"))
        agent = provider.agent(server, api_key=None, api_key_envs=("KEY_A", "KEY_B"))
        recorded = run_turn(ScriptedGateway(tmp_path), agent)
        assert recorded.answer == "hello"
        sent = [str(sorted(call.headers.items())) for call in server.seen]
    used = [[key for key in KEYS if key in headers] for headers in sent]
    assert sorted(used) == [[KEYS[0]], [KEYS[1]]]


def test_the_error_of_the_last_key_is_raised_and_hides_all_keys(tmp_path: Path) -> None:
    text = f"wrong key {KEYS[0]} or {KEYS[1]}"
    with ModelServer() as server:
        server.script(refuses(401, text), refuses(401, text))
        agent = OPENAI.agent(server, api_key=None, api_key_envs=("KEY_A", "KEY_B"))
        problem = run_turn(ScriptedGateway(tmp_path), agent).problem
        assert len(server.seen) == 2
    assert isinstance(problem, AgentFailed)
    assert problem.status == 401
    assert not any(key in str(problem) for key in KEYS)
    assert problem.hint == "Check the key in KEY_A, KEY_B."


def test_a_session_keeps_its_key_and_a_refused_key_rests() -> None:
    time = [0.0]
    ring = KeyRing(KEYS, now=lambda: time[0])
    chosen = {name: ring.choose(name).current for name in map(str, range(50))}
    assert set(chosen.values()) == set(KEYS)
    assert {name: ring.choose(name).current for name in chosen} == chosen
    choice = ring.choose("1")
    first = choice.current
    assert not choice.replace_after(AgentUnavailable("down", status=503))
    assert choice.replace_after(AgentFailed("no", status=401))
    assert choice.current != first
    assert first not in {ring.choose(name).current for name in chosen}
    time[0] = 31.0
    assert {name: ring.choose(name).current for name in chosen} == chosen


def test_one_key_alone_is_never_replaced() -> None:
    assert not KeyRing(KEYS[:1]).choose("1").replace_after(AgentFailed("no", status=401))
    assert KeyRing(()).choose("1").current is None


def test_keys_must_be_set_and_given_in_one_way() -> None:
    options = OpenAIOptions(model="m", api_key_envs=("KEY_A", "NOT_SET_ANYWHERE"))
    with pytest.raises(ConfigError, match="NOT_SET_ANYWHERE"):
        options.resolve_api_keys()
    with pytest.raises(ConfigError, match="api_key_envs"):
        OpenAIOptions(model="m", api_key="x", api_key_envs=("KEY_A",))
    twice = OpenAIOptions(model="m", api_key_envs=("KEY_A", "KEY_A"))
    assert twice.resolve_api_keys() == (KEYS[0],)

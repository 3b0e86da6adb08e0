"""The `model` of a request to OpenAI's APIs chooses the agent, and one of its models."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from typing import Any

import openai
import pytest

from tertulia.agents.base import Event, Request, Step
from tertulia.gateway.agent_table import AgentTable, ConfiguredAgent
from tests.http.served_gateway import ServedGateway, served_gateway


class Named:
    """Answers with its name and the length of its history."""

    def __init__(self, name: str) -> None:
        self.name = f"kind-{name}"
        self.model = name

    async def run(self, request: Request) -> AsyncGenerator[Event, None]:
        yield Step(f"{self.model}: {len(await request.history())}")

    async def close(self) -> None:
        pass


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedGateway]:
    table = AgentTable(
        [
            ConfiguredAgent("main", Named("big"), {"big": Named("big"), "small": Named("small")}),
            ConfiguredAgent("support", Named("helper"), {"tiny": Named("tiny")}),
            ConfiguredAgent("root", Named("secret"), {"deep": Named("deep")}, role="owner"),
        ]
    )
    path = tmp_path_factory.mktemp("models") / "talk.db"
    with served_gateway(path, agents=table) as gateway:
        yield gateway


def say(server: ServedGateway, model: str, *texts: str, name: str = "ana") -> str:
    messages: Any = [
        {"role": "assistant" if number % 2 else "user", "content": text}
        for number, text in enumerate(texts)
    ]
    client = server.openai(name)
    response = client.chat.completions.create(model=model, messages=messages)
    return str(response.choices[0].message.content)


def test_agents_and_models_are_listed(server: ServedGateway) -> None:
    names = [model.id for model in server.openai().models.list()]
    assert names == ["kind-big", "main", "support", "big", "small", "support/tiny"]


@pytest.mark.parametrize(
    ("model", "answer"),
    [
        ("main", "big: 1"),
        ("big", "big: 1"),
        ("small", "small: 1"),
        ("support", "helper: 1"),
        ("support/tiny", "tiny: 1"),
        ("kind-big", "big: 1"),
    ],
)
def test_the_name_selects(server: ServedGateway, model: str, answer: str) -> None:
    assert say(server, model, f"hello {model}") == answer


def test_an_unknown_name_is_refused(server: ServedGateway) -> None:
    with pytest.raises(openai.NotFoundError, match="There is no model 'tiny'"):
        say(server, "tiny", "hello")


def test_an_agent_of_the_owner_is_for_the_owner(server: ServedGateway) -> None:
    for model in ("root", "root/deep"):
        with pytest.raises(openai.NotFoundError, match="There is no model") as refusal:
            say(server, model, "hello")
        assert "root" not in str(refusal.value).partition("Use:")[2]
    assert say(server, "root", "hello", name="root") == "secret: 1"
    names = [model.id for model in server.openai("root").models.list()]
    assert names == [
        "kind-big",
        "main",
        "support",
        "root",
        "big",
        "small",
        "support/tiny",
        "root/deep",
    ]


def test_the_same_words_to_two_agents_are_two_conversations(server: ServedGateway) -> None:
    assert say(server, "main", "Hi there") == "big: 1"
    assert say(server, "main", "Hi there", "big: 1", "more") == "big: 3"
    assert say(server, "small", "Hi there", "big: 1", "more", "big: 3", "and") == "small: 5"
    assert say(server, "support", "Hi there") == "helper: 1"
    assert say(server, "support", "Hi there", "helper: 1", "more") == "helper: 3"
    with server.store() as store:
        agents = [session.agent for session in store.sessions.find(text="Hi there").items]
    assert sorted(agents) == ["main", "support"]

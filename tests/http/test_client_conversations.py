"""Clients that send the whole conversation: one session per chat, forks for edits, no titles.

The bodies have the shape of those of Open WebUI and LibreChat, with texts of our own.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tertulia.agents import Delta, ParrotAgent, Step
from tertulia.agents.base import Event, Request
from tertulia.core.usage import Usage
from tertulia.http import Token
from tests.http.served_gateway import SECRETS, TOKENS, ServedGateway, served_gateway

FAMILY = Token(name="family", secret="family-secret-0123456789", person_header="X-Person")
CROWD = Token(name="crowd", secret="crowd-secret-0123456789", is_shared=True)
SECRETS |= {"family": FAMILY.resolve_secret(), "crowd": CROWD.resolve_secret()}
TITLE = "### Task:\nGenerate a concise title for the chat.\n### Chat:\nUSER: Hi"
_numbers = itertools.count(1)


class NumberedAgent(ParrotAgent):
    """Answers with a number, and keeps the texts that it was shown."""

    def __init__(self) -> None:
        super().__init__()
        self.shown: list[list[str]] = []
        self.fixed: str | None = None

    async def run(self, request: Request) -> AsyncGenerator[Event, None]:
        history = await request.history()
        self.shown.append([text_after_head(str(message["content"])) for message in history])
        text = self.fixed or f"answer {next(_numbers)}"
        yield Delta(text)
        yield Step(text, usage=Usage(5, 1, model="m"))


def text_after_head(text: str) -> str:
    return text.partition("]\n")[2] if text.startswith("[Message Time") else text


class Chat:
    """A client that keeps the messages of one chat, as a web application does."""

    def __init__(
        self,
        client: httpx2.Client,
        kind: str,
        chat: str = "",
        headers: dict[str, str] | None = None,
    ) -> None:
        self.client = client
        self.kind = kind
        self.headers = dict(headers or {})
        if kind == "openwebui":
            self.headers["X-OpenWebUI-Chat-Id"] = chat
        self.messages: list[dict[str, Any]] = []

    def body(self, messages: list[dict[str, Any]], stream: bool) -> dict[str, Any]:
        body: dict[str, Any] = {"model": "parrot", "messages": messages, "stream": stream}
        if self.kind == "librechat":
            system = {"role": "system", "content": f"You help. Today is day {next(_numbers)}."}
            body |= {"user": "65f0c0ffee", "messages": [system, *messages], "temperature": 1}
        else:
            body |= {"chat_id": "ignored", "metadata": {"task": "chat"}, "features": {}}
        return body

    def request(self, messages: list[dict[str, Any]], *, stream: bool = True) -> str:
        response = self.client.post(
            "/v1/chat/completions", json=self.body(messages, stream), headers=self.headers
        )
        assert response.status_code == 200, response.text
        if not stream:
            return str(response.json()["choices"][0]["message"]["content"])
        lines = [line[6:] for line in response.text.splitlines() if line.startswith("data: {")]
        chunks = [json.loads(line) for line in lines]
        return "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks)

    def say(self, text: str) -> str:
        self.messages.append({"role": "user", "content": text})
        answer = self.request(self.messages)
        # Clients trim what they keep, and some change the normal form.
        self.messages.append({"role": "assistant", "content": f" {answer}\n"})
        return answer

    def regenerate(self) -> str:
        self.messages.pop()
        answer = self.request(self.messages)
        self.messages.append({"role": "assistant", "content": answer})
        return answer

    def edit(self, index: int, text: str) -> str:
        self.messages = self.messages[:index]
        return self.say(text)


class Setup:
    def __init__(self, server: ServedGateway, agent: NumberedAgent) -> None:
        self.server = server
        self.agent = agent

    def sessions(self, state: str = "all") -> list[dict[str, Any]]:
        with self.server.client() as client:
            page = client.get("/sessions", params={"state": state, "limit": 100}).json()
        return list(page["items"])


@pytest.fixture
def setup(tmp_path: Path) -> Iterator[Setup]:
    agent = NumberedAgent()
    with served_gateway(
        tmp_path / "talk.db", agent=agent, tokens=(*TOKENS, FAMILY, CROWD)
    ) as server:
        yield Setup(server, agent)


KINDS = ("openwebui", "librechat")


@pytest.mark.parametrize("kind", KINDS)
def test_one_session_per_chat(setup: Setup, kind: str) -> None:
    with setup.server.client("ana") as client:
        first, second = Chat(client, kind, "a"), Chat(client, kind, "b")
        for chat in (first, second):
            chat.say("Hi")  # all chats begin so
        first.say("One")
        second.say("Two")
        first.say("Three")
    assert len(setup.sessions()) == 2
    assert setup.agent.shown[-1][0::2] == ["Hi", "One", "Three"]
    assert len(setup.agent.shown[-1]) == 5
    assert setup.agent.shown[-2][0::2] == ["Hi", "Two"]


@pytest.mark.parametrize("kind", KINDS)
def test_equal_beginnings_do_not_mix(setup: Setup, kind: str) -> None:
    setup.agent.fixed = "Hello!"
    with setup.server.client("ana") as client:
        first, second = Chat(client, kind, "a"), Chat(client, kind, "b")
        first.say("Hi")
        second.say("Hi")
        first.say("My secret is 7.")
        second.say("What is my secret?")
        first.say("Thanks.")
    assert [texts[0::2] for texts in setup.agent.shown] == [
        ["Hi"],
        ["Hi"],
        ["Hi", "My secret is 7."],
        ["Hi", "What is my secret?"],
        ["Hi", "My secret is 7.", "Thanks."],
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_edit_and_regenerate_fork(setup: Setup, kind: str) -> None:
    with setup.server.client("ana") as client:
        chat = Chat(client, kind, "a")
        chat.say("Hi")
        old = chat.say("One")
        new = chat.regenerate()
        assert new != old
        assert setup.agent.shown[-1][0::2] == ["Hi", "One"]
        assert len(setup.agent.shown[-1]) == 3  # the answer that is written again is not shown
        chat.say("Two")
        assert setup.agent.shown[-1][2:] == ["One", new, "Two"]
        chat.edit(2, "Other")
        assert setup.agent.shown[-1][0::2] == ["Hi", "Other"]
        chat.say("More")
        assert setup.agent.shown[-1][0::2] == ["Hi", "Other", "More"]
    sessions = setup.sessions()
    assert len(sessions) == 3
    with setup.server.client() as client:
        texts = [
            [entry["body"]["content"] for entry in client.get(
                f"/sessions/{session['id']}/transcript").json()["items"]]
            for session in sessions
        ]  # fmt: skip
    assert any(old in transcript for transcript in texts)  # nothing is destroyed


def test_titles_of_open_webui_are_answered_and_not_stored(setup: Setup) -> None:
    with setup.server.client("ana") as client:
        chat = Chat(client, "openwebui", "a")
        chat.say("Hi")
        title = chat.request([{"role": "user", "content": TITLE}], stream=False)
        assert title.startswith("answer ")
        assert setup.agent.shown[-1] == [TITLE]
        chat.say("One")
        assert setup.agent.shown[-1][0::2] == ["Hi", "One"]
    (session,) = setup.sessions()
    with setup.server.client() as client:
        transcript = client.get(f"/sessions/{session['id']}/transcript").text
    assert "### Task" not in transcript
    with setup.server.store() as store:
        assert store.usage.sum("session")[session["id"]].input == 3 * 5  # the title has its price


@pytest.mark.parametrize(
    "title",
    ["Name this chat in five words.\n\nUser: {said}\nAI: {answer}",
     "Detect the language and name it:\n1. language\n2. title\n\nUser: {said}\nAI: {answer}\n"],
)  # fmt: skip
def test_titles_of_librechat_are_answered_and_not_stored(setup: Setup, title: str) -> None:
    with setup.server.client("ana") as client, setup.server.client("bob") as bob:
        Chat(client, "librechat").say("An earlier chat")
        chat = Chat(client, "librechat")
        answer = chat.say("How tall is the lighthouse?\nIn metres.")
        text = title.format(said="How tall is the lighthouse?\nIn metres.", answer=answer)
        asked = [{"role": "user", "content": text}]
        assert chat.request(asked, stream=False).startswith("answer ")
        assert len(setup.sessions()) == 2
        chat.say("And how old?")
        assert setup.agent.shown[-1][0::2][-1] == "And how old?"
        assert len(setup.agent.shown[-1]) == 3
        # What somebody else writes is no title of this chat, and what is streamed is no title.
        Chat(bob, "librechat").request(asked, stream=False)
        assert len(setup.sessions()) == 3
        Chat(client, "librechat").request(asked)
        assert len(setup.sessions()) == 4
    with setup.server.client() as client:
        texts = [
            client.get(f"/sessions/{session['id']}/transcript").text for session in setup.sessions()
        ]
    assert sum("User: How tall" in text for text in texts) == 2


def test_a_question_about_one_text_alone_is_stored(setup: Setup) -> None:
    with setup.server.client("ana") as client:
        chat = Chat(client, "librechat")
        answer = chat.say("Hi")
        for text in ("Hi\nagain", f"What does this mean?\n{answer}", f"{answer}\nHi"):
            chat.request([{"role": "user", "content": text}], stream=False)
    assert len(setup.sessions()) == 4


def test_first_message_is_stored_even_if_it_is_not_streamed(setup: Setup) -> None:
    with setup.server.client("ana") as client:
        chat = Chat(client, "openwebui", "a")
        answer = chat.request([{"role": "user", "content": "Hi"}], stream=False)
        chat.messages = [
            {"role": "user", "content": "Hi"}, {"role": "assistant", "content": answer},
        ]  # fmt: skip
        chat.say("One")
    assert len(setup.sessions()) == 1


def test_unknown_past_begins_a_session_with_it(setup: Setup) -> None:
    with setup.server.client("ana") as client:
        chat = Chat(client, "librechat")
        chat.messages = [
            {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "never said here"},
        ]  # fmt: skip
        chat.say("One")
        chat.say("Two")
    assert len(setup.sessions()) == 1
    assert setup.agent.shown[-1][:3] == ["Hi", "never said here", "One"]


def test_nobody_goes_on_with_the_conversation_of_another(setup: Setup) -> None:
    with setup.server.client("ana") as ana, setup.server.client("bob") as bob:
        chat = Chat(ana, "librechat")
        chat.say("Hi")
        other = Chat(bob, "librechat")
        other.messages = list(chat.messages)
        other.say("One")
        assert len({session["key"] for session in setup.sessions()}) == 2


def test_token_of_several_people_needs_their_names(setup: Setup) -> None:
    with setup.server.client("family") as client:
        ana = Chat(client, "librechat", headers={"X-Person": "ana"})
        ben = Chat(client, "librechat", headers={"X-Person": "ben"})
        ana.say("Hi")
        ben.messages = list(ana.messages)
        ben.say("One")
        ana.say("Two")
        assert len(setup.sessions()) == 2
    with setup.server.client("crowd") as client:
        chat = Chat(client, "librechat")
        chat.say("Hi")
        chat.say("One")  # nobody knows who that is: what was said before comes from the request
        assert setup.agent.shown[-1][0::2] == ["Hi", "One"]
    assert len(setup.sessions()) == 4


def test_repeated_request_does_not_fork(setup: Setup) -> None:
    with setup.server.client("ana") as client:
        chat = Chat(client, "librechat", headers={"Idempotency-Key": "k-1"})
        first = chat.say("Hi")
        chat.headers["Idempotency-Key"] = "k-2"
        second = chat.say("One")
        chat.messages.pop()
        assert chat.request(chat.messages, stream=False) == second != first
    assert len(setup.sessions()) == 1
    assert len(setup.agent.shown) == 2


def test_deleted_session_is_not_found_again(setup: Setup) -> None:
    with setup.server.client("ana") as client, setup.server.client() as root:
        chat = Chat(client, "librechat")
        chat.say("Hi")
        (session,) = setup.sessions()
        assert root.delete(f"/sessions/{session['id']}").status_code in (200, 204)
        chat.say("One")
        assert session["id"] not in {item["id"] for item in setup.sessions()}


@pytest.mark.parametrize(
    ("path", "options", "status"),
    [
        ("chat/completions", {"n": 2}, 400),
        ("chat/completions", {"n": 1}, 200),
        ("chat/completions", {"response_format": {"type": "json_object"}}, 400),
        ("chat/completions", {"response_format": {"type": "text"}}, 200),
        ("responses", {"text": {"format": {"type": "json_schema"}}}, 400),
        ("responses", {"text": {"format": {"type": "text"}}}, 200),
        ("responses", {"background": True}, 400),
    ],
)
def test_unsupported_options_are_refused(
    setup: Setup, path: str, options: dict[str, Any], status: int
) -> None:
    said = {"messages": [{"role": "user", "content": "Hi"}]} if path != "responses" else {}
    body = {"model": "parrot", **({"input": "Hi"} if path == "responses" else said), **options}
    with setup.server.client("ana") as client:
        response = client.post(f"/v1/{path}", json=body)
    assert response.status_code == status
    if status == 400:
        assert next(iter(options)) in response.text


def test_responses_with_the_whole_conversation(setup: Setup) -> None:
    with setup.server.client("ana") as client:
        messages: list[dict[str, Any]] = []
        for text in ("Hi", "One", "Two"):
            messages.append({"role": "user", "content": [{"type": "input_text", "text": text}]})
            body = client.post("/v1/responses", json={"input": messages}).json()
            (item,) = body["output"]
            messages.append({"role": "assistant", "content": item["content"]})
    assert len(setup.sessions()) == 1
    assert setup.agent.shown[-1][0::2] == ["Hi", "One", "Two"]

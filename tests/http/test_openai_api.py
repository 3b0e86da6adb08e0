"""OpenAI's own client works with the server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from tertulia import Source
from tertulia.agents import OpenAIAgent, OpenAIOptions
from tests.http.served_gateway import ServedGateway, served_gateway
from tests.servers.models import Call, ModelServer, refuses
from tests.servers.models import openai as wire

TOOL: Any = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather somewhere.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}
FLAT: Any = {"type": "function", **TOOL["function"], "strict": False}
CALL = 'call weather {"city": "Cádiz"}'


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedGateway]:
    with served_gateway(tmp_path_factory.mktemp("openai") / "talk.db") as gateway:
        yield gateway


def say(client: openai.OpenAI, text: str, chat: str | None = None, **options: Any) -> Any:
    headers = {"X-Conversation-Id": chat} if chat else {}
    return client.chat.completions.create(
        model="parrot",
        messages=[{"role": "user", "content": text}],
        extra_headers=headers | options.pop("headers", {}),
        **options,
    )


class TestChat:
    def test_an_answer(self, server: ServedGateway) -> None:
        response = say(server.openai(), "hola")
        assert response.choices[0].message.content.startswith("You said: hola")
        assert response.choices[0].finish_reason == "stop"
        assert response.usage.prompt_tokens > 0
        assert (
            response.usage.total_tokens
            == response.usage.prompt_tokens + response.usage.completion_tokens
        )

    def test_streamed_text_equals_stored_text(self, server: ServedGateway) -> None:
        chunks = list(
            say(server.openai(), "hola", "streamed", stream=True,
                stream_options={"include_usage": True})
        )  # fmt: skip
        deltas = [chunk.choices[0].delta.content for chunk in chunks if chunk.choices]
        assert len([delta for delta in deltas if delta]) > 3
        text = "".join(delta or "" for delta in deltas)
        assert chunks[-1].usage.completion_tokens > 0
        assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "stop"
        with server.client() as client:
            (session,) = client.get(
                "/sessions", params={"key": "agent:main:api:ana:dm:streamed"}
            ).json()["items"]
            entries = client.get(f"/sessions/{session['id']}/transcript").json()["items"]
        assert [entry["body"]["content"] for entry in entries] == ["hola", text]

    def test_named_conversation_continues_from_the_store(self, server: ServedGateway) -> None:
        client = server.openai()
        say(client, "I am called Ana", "kept")
        response = client.chat.completions.create(
            model="parrot",
            messages=[
                {"role": "user", "content": "this was never said"},
                {"role": "assistant", "content": "nor was this"},
                {"role": "user", "content": "history"},
            ],
            extra_headers={"X-Conversation-Id": "kept"},
        )
        text = response.choices[0].message.content or ""
        assert "I am called Ana" in text
        assert "never said" not in text

    def test_unnamed_request_starts_a_new_conversation(self, server: ServedGateway) -> None:
        raw = server.openai().chat.completions.with_raw_response.create(
            model="parrot",
            messages=[
                {"role": "system", "content": "Speak like a sailor."},
                {"role": "user", "content": "one"},
                {"role": "assistant", "content": "two"},
                {"role": "user", "content": "history"},
            ],
        )
        text = raw.parse().choices[0].message.content or ""
        assert "shown 3 messages" in text
        name = raw.headers["X-Conversation-Id"]
        next_text = say(server.openai(), "history", name).choices[0].message.content
        assert "shown 5 messages" in next_text

    def test_user_does_not_choose_the_conversation(self, server: ServedGateway) -> None:
        """A client sends the same user in all its chats; one must not see the other's words."""
        client = server.openai()
        say(client, "my secret is opensesame", user="ana@example.org")
        answer = say(client, "history", user="ana@example.org")
        assert "opensesame" not in answer.choices[0].message.content
        assert "shown 1 message" in answer.choices[0].message.content

    def test_system_message_reaches_the_agent(self, server: ServedGateway) -> None:
        response = server.openai().chat.completions.create(
            model="parrot",
            messages=[
                {"role": "system", "content": "Speak like a sailor."},
                {"role": "user", "content": "context"},
            ],
        )
        assert (response.choices[0].message.content or "").endswith("Speak like a sailor.")

    def test_conversation_names_are_separate_for_each_token(self, server: ServedGateway) -> None:
        say(server.openai("ana"), "the password is swordfish", "same")
        text = say(server.openai("bob"), "history", "same").choices[0].message.content
        assert "swordfish" not in text
        assert "shown 1 message:" in text

    def test_repeated_request_gets_the_same_answer(self, server: ServedGateway) -> None:
        options: Any = {"headers": {"Idempotency-Key": "once-1"}}
        first = say(server.openai(), "hola", "twice", **options)
        options = {"headers": {"Idempotency-Key": "once-1"}}
        again = say(server.openai(), "hola", "twice", **options)
        assert again.choices[0].message.content == first.choices[0].message.content
        text = say(server.openai(), "history", "twice").choices[0].message.content
        assert "shown 3 messages" in text

    @pytest.mark.parametrize("is_named", [True, False])
    def test_tool_calls_are_returned_to_the_client(
        self, server: ServedGateway, is_named: bool
    ) -> None:
        client = server.openai()
        headers = {"X-Conversation-Id": "tools-chat"} if is_named else {}
        messages: Any = [{"role": "user", "content": CALL}]
        response = client.chat.completions.create(
            model="parrot", messages=messages, tools=[TOOL], extra_headers=headers
        )
        assert response.choices[0].finish_reason == "tool_calls"
        message = response.choices[0].message
        assert message.tool_calls is not None
        (call,) = message.tool_calls
        assert call.type == "function"
        assert (call.function.name, call.function.arguments) == ("weather", '{"city": "Cádiz"}')
        messages += [
            message.model_dump(exclude_none=True),
            {"role": "tool", "tool_call_id": call.id, "content": "sunny"},
        ]
        again = client.chat.completions.create(
            model="parrot", messages=messages, extra_headers=headers
        )
        if is_named:
            # The same turn continues: the parrot gets the message of the user again.
            with server.client() as raw:
                (session,) = raw.get(
                    "/sessions", params={"key": "agent:main:api:ana:dm:tools-chat"}
                ).json()["items"]
                entries = raw.get(f"/sessions/{session['id']}/transcript").json()["items"]
            assert [entry["body"]["role"] for entry in entries][:3] == ["user", "assistant", "tool"]
            assert entries[2]["body"]["content"] == "sunny"
            assert {entry["turn"] for entry in entries} == {1}
        else:
            assert again.choices[0].message.content is not None


class TestToolsOverTwoRequests:
    """A model calls the client's tools: two requests, one turn."""

    def test_tool_results_continue_the_same_turn(self, tmp_path: Path) -> None:
        with ModelServer() as model_server:
            model_server.script(
                wire.says("", Call("call_a", "weather", '{"city": "Cádiz"}'),
                          Call("call_b", "weather", '{"city": "Graz"}')),
                refuses(401),
                wire.says("Sunny in both."),
            )  # fmt: skip
            agent = OpenAIAgent(
                OpenAIOptions(model="test-1", base_url=model_server.url, api_key="sk-0123456789")
            )
            with served_gateway(tmp_path / "talk.db", agent=agent) as server:
                client = server.openai()
                options: Any = {
                    "model": "test-1", "tools": [TOOL], "extra_headers": {"X-Conversation-Id": "c"},
                }  # fmt: skip
                messages: Any = [{"role": "user", "content": "Weather?"}]
                first = client.chat.completions.create(messages=messages, **options)
                message = first.choices[0].message
                assert message.tool_calls is not None
                assert [call.id for call in message.tool_calls] == ["call_a", "call_b"]
                messages += [message.model_dump(exclude_none=True)]
                half = [*messages, {"role": "tool", "tool_call_id": "call_a", "content": "sun"}]
                with pytest.raises(openai.BadRequestError, match="No call waits"):
                    client.chat.completions.create(messages=half, **options)
                whole = [*half, {"role": "tool", "tool_call_id": "call_b", "content": "sun too"}]
                # The model fails after the results were stored; then the same request succeeds.
                with pytest.raises(openai.InternalServerError):
                    client.chat.completions.create(messages=whole, **options)
                last = client.chat.completions.create(messages=whole, **options)
                again = client.chat.completions.create(messages=whole, **options)
                with server.client("root") as root:
                    (session,) = root.get("/sessions").json()["items"]
                    entries = root.get(f"/sessions/{session['id']}/transcript").json()["items"]
        assert last.choices[0].message.content == "Sunny in both."
        assert again.choices[0].message.content == "Sunny in both."
        assert [entry["role"] for entry in entries] == [
            "user", "assistant", "tool", "tool", "assistant",
        ]  # fmt: skip
        assert [entry["body"]["content"] for entry in entries[2:4]] == ["sun", "sun too"]
        assert {entry["turn"] for entry in entries} == {1}
        sent = model_server.seen[-1].body["messages"]
        assert [entry["role"] for entry in sent[-4:]] == ["user", "assistant", "tool", "tool"]
        assert sent[-1]["content"] == "sun too"
        assert model_server.seen[-1].body["tools"][0]["function"]["name"] == "weather"

    def test_other_message_interrupts_open_tool_calls(self, tmp_path: Path) -> None:
        with served_gateway(tmp_path / "talk.db") as server:
            client = server.openai()
            headers = {"X-Conversation-Id": "c"}
            requests: list[tuple[str, Any]] = [(CALL, {"tools": [TOOL]}), ("history", {})]
            for text, options in requests:
                response = client.chat.completions.create(
                    model="parrot",
                    messages=[{"role": "user", "content": text}],
                    extra_headers=headers,
                    **options,
                )
            assert "interrupted" in (response.choices[0].message.content or "").lower()
            with server.client() as raw:
                metrics = raw.get("/metrics").text
        assert 'tertulia_turns_total{outcome="handed_over",platform="api"} 1.0' in metrics


class TestResponses:
    def test_an_answer_and_the_next_one(self, server: ServedGateway) -> None:
        client = server.openai()
        first = client.responses.create(model="parrot", input="I am called Ana")
        assert first.output_text.startswith("You said: I am called Ana")
        assert first.status == "completed"
        again = client.responses.create(
            model="parrot", input="history", previous_response_id=first.id
        )
        assert "I am called Ana" in again.output_text
        assert again.usage is not None
        assert again.usage.input_tokens > 0

    def test_conversation_is_given_as_text_or_object(self, server: ServedGateway) -> None:
        client = server.openai()
        for conversation in ("resp-kept", {"id": "resp-kept"}):
            response = client.responses.create(
                model="parrot",
                input="history",
                conversation=conversation,  # type: ignore[arg-type]
            )
        assert "shown 3 messages" in response.output_text

    def test_streamed_response_has_all_event_types(self, server: ServedGateway) -> None:
        client = server.openai()
        with client.responses.stream(model="parrot", input="hola") as stream:
            kinds = [event.type for event in stream]
            final = stream.get_final_response()
        assert kinds[0] == "response.created"
        assert kinds[-1] == "response.completed"
        assert kinds.count("response.output_text.delta") > 3
        assert final.output_text.startswith("You said: hola")

    @pytest.mark.parametrize("streams", [True, False])
    def test_function_call_and_its_output(self, server: ServedGateway, streams: bool) -> None:
        client = server.openai()
        if streams:
            with client.responses.stream(model="parrot", input=CALL, tools=[FLAT]) as stream:
                list(stream)
                first: Any = stream.get_final_response()
        else:
            first = client.responses.create(model="parrot", input=CALL, tools=[FLAT])
        (item,) = first.output
        assert (item.type, item.name) == ("function_call", "weather")
        result: Any = {
            "type": "function_call_output", "call_id": item.call_id, "output": "sunny",
        }  # fmt: skip
        again = client.responses.create(
            model="parrot", input=[result], previous_response_id=first.id
        )
        assert again.status == "completed"

    def test_unexpected_tool_result_returns_the_stored_answer(self, server: ServedGateway) -> None:
        client = server.openai()
        first = client.responses.create(model="parrot", input="hola")
        result: Any = {"type": "function_call_output", "call_id": "nonsense", "output": "x"}
        response = client.responses.create(
            model="parrot", input=[result], previous_response_id=first.id
        )
        # The turn was answered already: its answer is returned again, and nothing is stored.
        assert response.output_text == first.output_text


class TestStoredResponses:
    @pytest.mark.parametrize("streams", [True, False])
    def test_response_is_read_again(self, server: ServedGateway, streams: bool) -> None:
        client = server.openai()
        if streams:
            with client.responses.stream(model="parrot", input="hola") as stream:
                list(stream)
                first: Any = stream.get_final_response()
        else:
            first = client.responses.create(model="parrot", input="hola")
        client.responses.create(model="parrot", input="more", previous_response_id=first.id)
        again = client.responses.retrieve(first.id)
        assert again.output_text == first.output_text
        assert [item.id for item in again.output] == [item.id for item in first.output]
        assert (again.id, again.status, again.model) == (first.id, "completed", "parrot")
        assert again.created_at == first.created_at
        assert again.conversation == first.conversation

    @pytest.mark.parametrize("tools", [{}, {"tools": [FLAT]}], ids=["no tools", "tools again"])
    def test_each_response_of_a_turn_with_tools_is_read_again(
        self, server: ServedGateway, tools: dict[str, Any]
    ) -> None:
        client = server.openai()
        first: Any = client.responses.create(model="parrot", input=CALL, tools=[FLAT])
        result: Any = {
            "type": "function_call_output", "call_id": first.output[0].call_id, "output": "sunny",
        }  # fmt: skip
        second = client.responses.create(
            model="parrot", input=[result], previous_response_id=first.id, **tools
        )
        assert client.responses.retrieve(first.id).output == first.output
        assert client.responses.retrieve(second.id).output == second.output
        assert second.output != first.output
        named = client.responses.create(
            model="parrot", input=[result], conversation=first.conversation.id
        )
        with pytest.raises(openai.NotFoundError):  # it does not tell which turn it belongs to
            client.responses.retrieve(named.id)

    def test_only_its_owner_reads_a_response(self, server: ServedGateway) -> None:
        first = server.openai("ana").responses.create(model="parrot", input="swordfish")
        for other in ("bob", "eve"):
            with pytest.raises(openai.NotFoundError) as caught:
                server.openai(other).responses.retrieve(first.id)
            assert "swordfish" not in str(caught.value)

    def test_response_that_was_taken_back_is_not_there(self, server: ServedGateway) -> None:
        client = server.openai()
        first: Any = client.responses.create(model="parrot", input="hola")
        with server.store() as store:
            key = store.sessions.key(Source("api", first.conversation.id, account="ana"))
            (session,) = store.sessions.find(key=key).items
            store.transcript(session.id).undo()
            with pytest.raises(openai.NotFoundError):
                client.responses.retrieve(first.id)
            store.transcript(session.id).redo()
            assert client.responses.retrieve(first.id).output == first.output
            store.sessions.delete(session.id)
        with pytest.raises(openai.NotFoundError):
            client.responses.retrieve(first.id)

    @pytest.mark.parametrize("response_id", ["resp_nonsense", "resp_W10", "x"])
    def test_unknown_response_is_not_found(self, server: ServedGateway, response_id: str) -> None:
        with pytest.raises(openai.NotFoundError):
            server.openai().responses.retrieve(response_id)


class TestPreviousResponse:
    def test_response_of_somebody_else_is_not_found(self, where: str) -> None:
        with served_gateway(where) as server:
            first = server.openai().responses.create(model="parrot", input="hola")
            with pytest.raises(openai.NotFoundError):
                server.openai("eve").responses.create(
                    model="parrot", input="and?", previous_response_id=first.id
                )

    def test_response_of_a_deleted_conversation_is_not_found(self, where: str) -> None:
        with served_gateway(where) as server:
            client = server.openai()
            first = client.responses.create(model="parrot", input="hola")
            with server.store() as store:
                (session,) = store.sessions.find().items
                store.sessions.delete(session.id)
            with pytest.raises(openai.NotFoundError):
                client.responses.create(model="parrot", input="and?", previous_response_id=first.id)
            with server.store() as store:
                assert store.sessions.count() == 0


class TestInputItems:
    @pytest.fixture
    def server(self, where: str) -> Iterator[ServedGateway]:
        with served_gateway(where) as gateway:
            yield gateway

    def test_message_of_a_response(self, server: ServedGateway) -> None:
        client = server.openai()
        first = client.responses.create(model="parrot", input="hola")
        second = client.responses.create(
            model="parrot", input="and now?", previous_response_id=first.id
        )
        for response, text in ((first, "hola"), (second, "and now?")):
            item: Any
            (item,) = client.responses.input_items.list(response.id)
            assert (item.type, item.role, item.status) == ("message", "user", "completed")
            assert [(part.type, part.text) for part in item.content] == [("input_text", text)]

    def test_calls_and_results_page_by_page(self, server: ServedGateway) -> None:
        client = server.openai()
        first: Any = client.responses.create(model="parrot", input=CALL, tools=[FLAT])
        call = first.output[0]
        second = client.responses.create(
            model="parrot",
            input=[{"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}],
            previous_response_id=first.id,
            tools=[FLAT],
        )
        items: Any = list(client.responses.input_items.list(second.id, order="asc"))
        assert [item.type for item in items] == ["message", "function_call", "function_call_output"]
        assert (items[1].call_id, items[1].name) == (call.call_id, "weather")
        assert items[1].arguments == call.arguments
        assert (items[2].call_id, items[2].output) == (call.call_id, "sunny")
        page = client.responses.input_items.list(second.id, limit=2)
        assert [item.id for item in page.data] == [items[2].id, items[1].id]
        assert page.has_more
        assert [item.id for item in page.get_next_page().data] == [items[0].id]
        # All of them, by pages of one.
        one_by_one = client.responses.input_items.list(second.id, limit=1)
        assert [item.id for item in one_by_one] == [item.id for item in reversed(items)]
        assert [item.type for item in client.responses.input_items.list(first.id)] == ["message"]

    def test_tools_of_the_agent_are_not_shown(self, tmp_path: Path) -> None:
        with served_gateway(tmp_path / "talk.db") as server:
            client = server.openai()
            response = client.responses.create(model="parrot", input='call schedule {"do": "list"}')
            (item,) = client.responses.input_items.list(response.id)
            assert item.type == "message"

    def test_only_its_owner_lists_them(self, server: ServedGateway) -> None:
        first = server.openai("ana").responses.create(model="parrot", input="swordfish")
        for other in ("bob", "eve"):
            with pytest.raises(openai.NotFoundError) as caught:
                server.openai(other).responses.input_items.list(first.id)
            assert "swordfish" not in str(caught.value)

    def test_wrong_page_is_refused(self, server: ServedGateway) -> None:
        client = server.openai()
        first = client.responses.create(model="parrot", input="hola")
        wrong: list[dict[str, Any]] = [
            {"limit": 0},
            {"limit": 101},
            {"order": "up"},
            {"after": "x"},
        ]
        for query, status in zip(wrong, (400, 400, 400, 404), strict=True):
            with pytest.raises(openai.APIStatusError) as caught:
                client.responses.input_items.list(first.id, **query)
            assert caught.value.status_code == status


class TestErrors:
    def test_missing_part_of_the_api_is_named(self, server: ServedGateway) -> None:
        with pytest.raises(openai.NotFoundError) as caught:
            server.openai().conversations.create()
        assert "/v1/conversations" in caught.value.message
        body: Any = caught.value.body
        assert "/v1/responses" in body["hint"]

    def test_agent_is_listed_as_model(self, server: ServedGateway) -> None:
        assert [model.id for model in server.openai("eve").models.list()] == ["parrot"]

    def test_wrong_token_is_an_authentication_error(self, server: ServedGateway) -> None:
        with (
            openai.OpenAI(base_url=f"{server.url}/v1", api_key="wrong", max_retries=0) as client,
            pytest.raises(openai.AuthenticationError) as caught,
        ):
            say(client, "hola")
        assert caught.value.code == "unauthorized"

    def test_invalid_request_is_a_bad_request_error(self, server: ServedGateway) -> None:
        with pytest.raises(openai.BadRequestError) as caught:
            server.openai().chat.completions.create(
                model="parrot", messages=[{"role": "assistant", "content": "me"}]
            )
        assert caught.value.type == "invalid_request_error"
        assert caught.value.param == "messages"
        with pytest.raises(openai.BadRequestError):
            server.openai().responses.create(
                model="parrot", input="hola", previous_response_id="resp_nonsense"
            )


def test_conversations_survive_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "talk.db"
    with served_gateway(path) as first:
        say(first.openai(), "I am called Ana", "kept")
        before = first.openai().responses.create(model="parrot", input="and Bob")
    with served_gateway(path) as second:
        assert "Ana" in say(second.openai(), "history", "kept").choices[0].message.content
        after = second.openai().responses.create(
            model="parrot", input="history", previous_response_id=before.id
        )
        assert "and Bob" in after.output_text

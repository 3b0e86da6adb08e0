"""OpenAI's own client talks with the server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.http.scene import ServedGateway, served_gateway

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
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedGateway]:
    with served_gateway(tmp_path_factory.mktemp("openai") / "talk.db") as found:
        yield found


def say(client: openai.OpenAI, text: str, chat: str | None = None, **options: Any) -> Any:
    headers = {"X-Conversation-Id": chat} if chat else {}
    return client.chat.completions.create(
        model="parrot",
        messages=[{"role": "user", "content": text}],
        extra_headers=headers | options.pop("headers", {}),
        **options,
    )


class TestChat:
    def test_an_answer(self, here: ServedGateway) -> None:
        found = say(here.openai(), "hola")
        assert found.choices[0].message.content.startswith("You said: hola")
        assert found.choices[0].finish_reason == "stop"
        assert found.usage.prompt_tokens > 0
        assert found.usage.total_tokens == found.usage.prompt_tokens + found.usage.completion_tokens

    def test_a_stream_is_what_is_stored(self, here: ServedGateway) -> None:
        chunks = list(
            say(here.openai(), "hola", "streamed", stream=True,
                stream_options={"include_usage": True})
        )  # fmt: skip
        deltas = [chunk.choices[0].delta.content for chunk in chunks if chunk.choices]
        assert len([delta for delta in deltas if delta]) > 3
        text = "".join(delta or "" for delta in deltas)
        assert chunks[-1].usage.completion_tokens > 0
        assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "stop"
        with here.client() as client:
            (session,) = client.get(
                "/sessions", params={"key": "agent:main:api:ana:dm:streamed"}
            ).json()["items"]
            entries = client.get(f"/sessions/{session['id']}/transcript").json()["items"]
        assert [entry["body"]["content"] for entry in entries] == ["hola", text]

    def test_a_conversation_goes_on_with_what_is_stored(self, here: ServedGateway) -> None:
        client = here.openai()
        say(client, "I am called Ana", "kept")
        found = client.chat.completions.create(
            model="parrot",
            messages=[
                {"role": "user", "content": "this was never said"},
                {"role": "assistant", "content": "nor was this"},
                {"role": "user", "content": "history"},
            ],
            extra_headers={"X-Conversation-Id": "kept"},
        )
        shown = found.choices[0].message.content or ""
        assert "I am called Ana" in shown
        assert "never said" not in shown

    def test_without_a_conversation_the_request_is_one_of_its_own(
        self, here: ServedGateway
    ) -> None:
        raw = here.openai().chat.completions.with_raw_response.create(
            model="parrot",
            messages=[
                {"role": "system", "content": "Speak like a sailor."},
                {"role": "user", "content": "one"},
                {"role": "assistant", "content": "two"},
                {"role": "user", "content": "history"},
            ],
        )
        shown = raw.parse().choices[0].message.content or ""
        assert "shown 3 messages" in shown
        name = raw.headers["X-Conversation-Id"]
        went_on = say(here.openai(), "history", name).choices[0].message.content
        assert "shown 5 messages" in went_on

    def test_instructions_are_given_to_the_agent(self, here: ServedGateway) -> None:
        found = here.openai().chat.completions.create(
            model="parrot",
            messages=[
                {"role": "system", "content": "Speak like a sailor."},
                {"role": "user", "content": "context"},
            ],
        )
        assert (found.choices[0].message.content or "").endswith("Speak like a sailor.")

    def test_two_tokens_may_use_the_same_name_for_a_conversation(self, here: ServedGateway) -> None:
        say(here.openai("ana"), "the password is swordfish", "same")
        heard = say(here.openai("bob"), "history", "same").choices[0].message.content
        assert "swordfish" not in heard
        assert "shown 1 message:" in heard

    def test_a_repeated_request_gets_the_same_answer(self, here: ServedGateway) -> None:
        options: Any = {"headers": {"Idempotency-Key": "once-1"}}
        first = say(here.openai(), "hola", "twice", **options)
        options = {"headers": {"Idempotency-Key": "once-1"}}
        again = say(here.openai(), "hola", "twice", **options)
        assert again.choices[0].message.content == first.choices[0].message.content
        shown = say(here.openai(), "history", "twice").choices[0].message.content
        assert "shown 3 messages" in shown

    @pytest.mark.parametrize("is_kept", [True, False])
    def test_tools_are_the_clients_to_run(self, here: ServedGateway, is_kept: bool) -> None:
        client = here.openai()
        headers = {"X-Conversation-Id": "tools-chat"} if is_kept else {}
        messages: Any = [{"role": "user", "content": CALL}]
        found = client.chat.completions.create(
            model="parrot", messages=messages, tools=[TOOL], extra_headers=headers
        )
        assert found.choices[0].finish_reason == "tool_calls"
        message = found.choices[0].message
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
        if is_kept:
            # The same turn goes on: the parrot is asked again for what the person had said.
            with here.client() as raw:
                (session,) = raw.get(
                    "/sessions", params={"key": "agent:main:api:ana:dm:tools-chat"}
                ).json()["items"]
                entries = raw.get(f"/sessions/{session['id']}/transcript").json()["items"]
            assert [one["body"]["role"] for one in entries][:3] == ["user", "assistant", "tool"]
            assert entries[2]["body"]["content"] == "sunny"
            assert {one["turn"] for one in entries} == {1}
        else:
            assert again.choices[0].message.content is not None


class TestResponses:
    def test_an_answer_and_the_next_one(self, here: ServedGateway) -> None:
        client = here.openai()
        first = client.responses.create(model="parrot", input="I am called Ana")
        assert first.output_text.startswith("You said: I am called Ana")
        assert first.status == "completed"
        again = client.responses.create(
            model="parrot", input="history", previous_response_id=first.id
        )
        assert "I am called Ana" in again.output_text
        assert again.usage is not None
        assert again.usage.input_tokens > 0

    def test_a_conversation_by_its_id(self, here: ServedGateway) -> None:
        client = here.openai()
        for given in ("resp-kept", {"id": "resp-kept"}):
            found = client.responses.create(
                model="parrot",
                input="history",
                conversation=given,  # type: ignore[arg-type]
            )
        assert "shown 3 messages" in found.output_text

    def test_a_stream(self, here: ServedGateway) -> None:
        client = here.openai()
        with client.responses.stream(model="parrot", input="hola") as stream:
            kinds = [one.type for one in stream]
            final = stream.get_final_response()
        assert kinds[0] == "response.created"
        assert kinds[-1] == "response.completed"
        assert kinds.count("response.output_text.delta") > 3
        assert final.output_text.startswith("You said: hola")

    @pytest.mark.parametrize("streams", [True, False])
    def test_tools(self, here: ServedGateway, streams: bool) -> None:
        client = here.openai()
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

    def test_a_result_that_nobody_waits_for(self, here: ServedGateway) -> None:
        client = here.openai()
        first = client.responses.create(model="parrot", input="hola")
        result: Any = {"type": "function_call_output", "call_id": "nonsense", "output": "x"}
        answered = client.responses.create(
            model="parrot", input=[result], previous_response_id=first.id
        )
        # The turn was answered: it is told its answer again, and nothing is stored.
        assert answered.output_text == first.output_text

    def test_another_persons_response_is_not_gone_on_with(self, here: ServedGateway) -> None:
        first = here.openai("ana").responses.create(model="parrot", input="swordfish")
        found = here.openai("bob").responses.create(
            model="parrot", input="history", previous_response_id=first.id
        )
        assert "swordfish" not in found.output_text


class TestErrors:
    def test_models(self, here: ServedGateway) -> None:
        assert [model.id for model in here.openai("eve").models.list()] == ["parrot"]

    def test_a_wrong_token(self, here: ServedGateway) -> None:
        with (
            openai.OpenAI(base_url=f"{here.url}/v1", api_key="wrong", max_retries=0) as client,
            pytest.raises(openai.AuthenticationError) as caught,
        ):
            say(client, "hola")
        assert caught.value.code == "unauthorized"

    def test_nonsense(self, here: ServedGateway) -> None:
        with pytest.raises(openai.BadRequestError) as caught:
            here.openai().chat.completions.create(
                model="parrot", messages=[{"role": "assistant", "content": "me"}]
            )
        assert caught.value.type == "invalid_request_error"
        assert caught.value.param == "messages"
        with pytest.raises(openai.BadRequestError):
            here.openai().responses.create(
                model="x", input="hola", previous_response_id="resp_nonsense"
            )


def test_conversations_outlive_the_server(tmp_path: Path) -> None:
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

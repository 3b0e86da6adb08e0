"""Error responses: one form, the right status, and nothing that belongs in the log."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import msgspec
import openai
import pytest

from tertulia import errors
from tertulia.agents import Delta, ParrotAgent
from tertulia.agents.base import Event, Request
from tertulia.errors import AgentFailed
from tertulia.http.auth import TooManyRequests, Unauthorized
from tertulia.http.errors import error_response
from tests.http.served_gateway import parse_events, served_gateway


class BrokenAgent(ParrotAgent):
    async def run(self, request: Request) -> AsyncGenerator[Event, None]:
        if request.text == "late":
            yield Delta("I beg")
        raise AgentFailed("https://secret.example said: key sk-123 is wrong")


@pytest.mark.parametrize(
    ("problem", "status", "retry_after"),
    [
        (Unauthorized("x"), 401, None),
        (errors.AccessDenied("x"), 403, None),
        (errors.NotFound("x"), 404, None),
        (errors.SessionBusy("x"), 409, "1"),
        (TooManyRequests("x", retry_after=7.2), 429, "7"),
        (errors.ConfigError("x"), 400, None),
        (errors.StoreUnavailable("x", retry_after=5), 503, "5"),
        (errors.Error("x"), 500, None),
    ],
    ids=lambda value: getattr(value, "code", None),
)
def test_status_and_retry_after(
    problem: errors.Error, status: int, retry_after: str | None
) -> None:
    response = error_response(problem)
    assert response.status_code == status
    assert response.headers.get("retry-after") == retry_after
    assert response.headers.get("www-authenticate") == ("Bearer" if status == 401 else None)
    body = msgspec.json.decode(response.body)
    assert body["error"]["code"] == problem.code


def test_field_of_a_config_error_is_its_param() -> None:
    response = error_response(errors.ConfigError("x", hint="do y", field="messages"))
    detail = msgspec.json.decode(response.body)["error"]
    assert (detail["message"], detail["hint"], detail["param"]) == ("x", "do y", "messages")


def test_failure_of_a_function_of_the_program_is_not_the_fault_of_the_client() -> None:
    response = error_response(errors.ProcessCheckFailed("FileNotFoundError('/secret')"))
    assert response.status_code == 500
    assert b"secret" not in response.body


def test_message_of_a_provider_is_not_shown(tmp_path: Path) -> None:
    with (
        served_gateway(tmp_path / "talk.db", agent=BrokenAgent()) as server,
        server.client() as client,
    ):
        response = client.post("/turns", json={"text": "hola"})
        assert response.status_code == 502
        assert response.json()["error"]["code"] == "agent_failed"
        late = client.post("/turns", json={"text": "late", "stream": True})
        events = parse_events(late.text)
        assert [name for name, _ in events] == ["delta", "error"]
        stream = server.openai().chat.completions.create(
            model="parrot", messages=[{"role": "user", "content": "late"}], stream=True
        )
        with pytest.raises(openai.APIError):
            list(stream)
    for text in (response.text, late.text):
        assert "sk-123" not in text
        assert "secret.example" not in text

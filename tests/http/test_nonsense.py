"""Whatever is sent, the server does not break."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import response_schema_conformance, status_code_conformance

from tertulia.http.app import TABLE
from tertulia.http.routing import description
from tests.http.node import node
from tests.http.scene import SECRETS

EXAMPLES = 8


class Here(NamedTuple):
    """The server, in a process of its own: the one with the tests draws by chance."""

    url: str

    def client(self, name: str | None = "root") -> httpx2.Client:
        headers = {"Authorization": f"Bearer {SECRETS[name]}"} if name else {}
        return httpx2.Client(base_url=self.url, headers=headers, timeout=60)


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Here]:
    path = tmp_path_factory.mktemp("nonsense") / "talk.db"
    with node(path, stream_seconds=0.2, max_body=100_000) as found:
        yield Here(found.url)


@pytest.fixture
def hasty(tmp_path: Path) -> Iterator[Here]:
    """One that waits for the rest of a request no longer than a busy machine may need for it."""
    with node(tmp_path / "talk.db", read_seconds=0.5) as found:
        yield Here(found.url)


SCHEMA = schemathesis.openapi.from_dict(description(TABLE))
OPERATIONS: list[Any] = [one.ok() for one in SCHEMA.get_all_operations() if isinstance(one, Ok)]
assert len(OPERATIONS) == len(TABLE)


@pytest.mark.parametrize("role", ["root", "eve"])
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda one: one.label)
def test_no_request_breaks_an_operation(here: Here, operation: Any, role: str) -> None:
    headers = {"Authorization": f"Bearer {SECRETS[role]}"}

    @given(case=operation.as_strategy())
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        phases=[Phase.explicit, Phase.generate],
        # Strategies made from a schema are slow to draw from; what is sent is what counts here.
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )
    def walk(case: Any) -> None:
        answer = case.call(base_url=here.url, headers=headers)
        assert answer.status_code < 500 or _is_told(answer), answer.text
        case.validate_response(
            answer, checks=[status_code_conformance, response_schema_conformance]
        )

    walk()


def _is_told(answer: Any) -> bool:
    """An agent, a platform or a store that is not there is no fault of the server."""
    kind = answer.json()["error"]["type"]
    return answer.status_code in (502, 503, 504) and kind in ("agent_error", "platform_error")


@pytest.mark.parametrize("path", ["/turns", "/v1/chat/completions", "/v1/responses"])
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b"{",
        b"\xff\xfe",
        b"[" * 5000,
        b'{"text": "\\ud800"}',
        b'{"messages": [1]}',
        b'{"messages": [{"role": "user", "content": "\\u0000"}]}',
        b'{"messages": [{"role": "user", "content": ' + b"[" * 200 + b"]" * 200 + b"}]}",
        b'{"messages": [{"role": "tool"}], "user": "x"}',
        b'{"messages": [{"role": "tool", "tool_call_id": "x"}], "user": "x"}',
        b'{"messages": [{"role": "user", "content": "x"}], "tools": [{}]}',
        b'{"messages": [{"role": "user", "content": "x"}], "tools": [7]}',
        b'{"input": [{"type": "function_call_output"}], "user": "x"}',
        b'{"input": [{"type": "message"}]}',
        b'{"input": [{"type": {}}]}',
        b'{"input": "x", "conversation": {}}',
        b'{"input": "x", "conversation": {"id": 7}}',
        b'{"input": "x", "previous_response_id": "resp_W10"}',
        b'{"input": "x", "previous_response_id": "\\ud800"}',
        b'{"text": "x", "conversation": "a\\nb"}',
        b'{"text": "x", "message_id": "\\u0000"}',
        b'{"text": "x", "stream": true, "conversation": ""}',
    ],
)
def test_odd_bodies(here: Here, path: str, body: bytes) -> None:
    with here.client() as client:
        found = client.post(path, content=body)
    assert found.status_code < 500
    if found.status_code >= 400:
        assert set(found.json()["error"]) >= {"message", "type", "code", "param", "hint"}


def test_too_large(here: Here) -> None:
    with here.client() as client:
        told = client.post("/turns", json={"text": "x" * 200_000})
        assert told.status_code == 413

        def chunks() -> Iterator[bytes]:
            yield b'{"text": "'
            for _ in range(20):
                yield b"x" * 10_000
            yield b'"}'

        untold = client.post("/turns", content=chunks())
        assert untold.status_code == 413
        assert client.get("/healthz").json() == {"status": "ok"}


@pytest.mark.parametrize("path", ["/nothing", "/sessions/x/y/z", "/v1", "/%ff%fe", "/sessions/%00"])
def test_addresses_that_are_not_there(here: Here, path: str) -> None:
    with here.client() as client:
        found = client.get(path)
    assert found.status_code == 404
    assert found.json()["error"]["code"] == "not_found"


def test_no_other_site_is_let_in(here: Here) -> None:
    with here.client() as client:
        headers = {"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"}
        asked = client.options("/turns", headers=headers)
        assert asked.status_code == 405
        found = client.post("/turns", json={"text": "hola"}, headers=headers)
    for answer in (asked, found):
        assert not [name for name in answer.headers if name.startswith("access-control")]


def test_half_a_request_harms_nobody(hasty: Here) -> None:
    host, port = hasty.url.removeprefix("http://").split(":")
    head = f"POST /turns HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {SECRETS['ana']}\r\n"
    with socket.create_connection((host, int(port))) as half:
        half.sendall(f"{head}Content-Length: 50\r\n\r\n{{".encode())
    with socket.create_connection((host, int(port))) as slow:
        slow.sendall(f"{head}Content-Length: 50\r\n\r\n{{".encode())
        assert slow.recv(4096).startswith(b"HTTP/1.1 408 ")
    with hasty.client() as client:
        assert client.get("/readyz").status_code == 200


def test_the_description_is_served(here: Here) -> None:
    with here.client(None) as client:
        found = client.get("/openapi.json").json()
    assert found["openapi"] == "3.1.0"
    assert found == json.loads(json.dumps(description(TABLE)))
    assert len(found["paths"]) > 20

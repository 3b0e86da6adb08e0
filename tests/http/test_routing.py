"""No request, however odd, breaks the server: schema-driven, malformed, large and slow ones."""

from __future__ import annotations

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

from tertulia.http.operations import TABLE
from tertulia.http.routing import describe_api
from tertulia.platforms.webhook import WebhookAdapter
from tests.http.served_gateway import SECRETS, served_gateway
from tests.http.server_process import server_process

pytestmark = pytest.mark.check

EXAMPLES = 8


class Server(NamedTuple):
    """A server in a process of its own, because Hypothesis seeds random in the test process."""

    url: str

    def client(self, name: str | None = "root") -> httpx2.Client:
        headers = {"Authorization": f"Bearer {SECRETS[name]}"} if name else {}
        return httpx2.Client(base_url=self.url, headers=headers, timeout=60)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    path = tmp_path_factory.mktemp("routing") / "talk.db"
    with server_process(path, stream_seconds=0.2, max_body=100_000) as child:
        yield Server(child.url)


@pytest.fixture
def short_timeout_server(tmp_path: Path) -> Iterator[Server]:
    """A server with a read timeout just long enough for a busy machine."""
    with server_process(tmp_path / "talk.db", read_seconds=0.5) as child:
        yield Server(child.url)


SCHEMA = schemathesis.openapi.from_dict(describe_api(TABLE))
OPERATIONS: list[Any] = [
    result.ok() for result in SCHEMA.get_all_operations() if isinstance(result, Ok)
]
assert len(OPERATIONS) == len(TABLE)


@pytest.mark.parametrize("role", ["root", "eve"])
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.label)
def test_generated_requests_never_cause_internal_errors(
    server: Server, operation: Any, role: str
) -> None:
    headers = {"Authorization": f"Bearer {SECRETS[role]}"}

    @given(case=operation.as_strategy())
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        phases=[Phase.explicit, Phase.generate],
        # Strategies from a schema are slow to draw from; only the requests matter server.
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )
    def walk(case: Any) -> None:
        answer = case.call(base_url=server.url, headers=headers)
        assert answer.status_code < 500 or _is_dependency_error(answer), answer.text
        case.validate_response(
            answer, checks=[status_code_conformance, response_schema_conformance]
        )

    walk()


def _is_dependency_error(answer: Any) -> bool:
    """Return whether an agent or a platform is unavailable, which is not a fault of the server."""
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
def test_malformed_body_is_refused_in_the_error_form(
    server: Server, path: str, body: bytes
) -> None:
    with server.client() as client:
        response = client.post(path, content=body)
    assert response.status_code < 500
    if response.status_code >= 400:
        assert set(response.json()["error"]) >= {"message", "type", "code", "param", "hint"}


def test_large_body_is_refused(server: Server) -> None:
    with server.client() as client:
        declared = client.post("/turns", json={"text": "x" * 200_000})
        assert declared.status_code == 413

        def chunks() -> Iterator[bytes]:
            yield b'{"text": "'
            for _ in range(20):
                yield b"x" * 10_000
            yield b'"}'

        undeclared = client.post("/turns", content=chunks())
        assert undeclared.status_code == 413
        assert client.get("/healthz").json() == {"status": "ok"}


def test_guests_and_callers_without_a_token_may_send_less(tmp_path: Path) -> None:
    body = {"text": "x" * 3000}
    with served_gateway(
        tmp_path / "talk.db",
        adapters=[WebhookAdapter("webhook-secret-0123456789")],
        guest_body=2048,
        open_body=1024,
    ) as server:
        for name, status in (("ana", 200), ("eve", 413)):
            with server.client(name) as client:
                assert client.post("/turns", json=body).status_code == status
                chat = {"messages": [{"role": "user", "content": body["text"]}]}
                assert client.post("/v1/chat/completions", json=chat).status_code == status
                rpc = {"jsonrpc": "2.0", "id": 1, "method": "ping", "params": body}
                assert client.post("/mcp", json=rpc).status_code == status
        with server.client(None) as client:
            for path in ("/webhook", "/platforms/webhook"):
                assert client.post(path, json=body).status_code == 413


def test_incomplete_request_times_out(short_timeout_server: Server) -> None:
    host, port = short_timeout_server.url.removeprefix("http://").split(":")
    head = f"POST /turns HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {SECRETS['ana']}\r\n"
    with socket.create_connection((host, int(port))) as half:
        half.sendall(f"{head}Content-Length: 50\r\n\r\n{{".encode())
    with socket.create_connection((host, int(port))) as slow:
        slow.sendall(f"{head}Content-Length: 50\r\n\r\n{{".encode())
        assert slow.recv(4096).startswith(b"HTTP/1.1 408 ")
    with short_timeout_server.client() as client:
        assert client.get("/readyz").status_code == 200

"""The HTTP transport, used by the agents of both providers: retries, limits, errors, secrets."""

from __future__ import annotations

import asyncio
import logging
import pickle
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tertulia import (
    AgentError,
    AgentFailed,
    AgentTimeout,
    AgentUnavailable,
    ConfigError,
    ContextOverflow,
)
from tertulia.agents import Limits, ModelUsage, OpenAIAgent, OpenAIOptions, Retry
from tertulia.agents.cancellation import StopWatcher
from tertulia.agents.transport import Transport, retry_after
from tertulia.testing.agent_contract import echo
from tertulia.testing.scripted_gateway import ScriptedGateway
from tests.agents.agent_fixtures import ANTHROPIC, KEY, OPENAI, Provider, RecordedSleep, run_turn
from tests.servers.models import JSON, Call, ModelServer, Reply, refuses

HELLO = Call("c1", "echo", '{"word": "hola"}')


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer() as server:
        yield server


@pytest.fixture
def gateway(tmp_path: Path) -> ScriptedGateway:
    return ScriptedGateway(tmp_path, tools=(echo(),))


@pytest.fixture(params=[OPENAI, ANTHROPIC], ids=lambda provider: provider.name)
def provider(request: pytest.FixtureRequest) -> Provider:
    provider = request.param
    assert isinstance(provider, Provider)
    return provider


class TestOverflow:
    @pytest.mark.parametrize(
        ("status", "message", "code"),
        [
            (400, "This model's maximum context length is 8192 tokens.", "context_length_exceeded"),
            (400, "Your input exceeds the context window of this model.", None),
            (400, "prompt is too long: 208310 tokens > 200000 maximum", None),
            (400, "input length and `max_tokens` exceed context limit: 5 + 4 > 8", None),
            (400, "the request exceeds the available context size", "exceed_context_size_error"),
            (400, "The input token count (7) exceeds the maximum number of tokens allowed", None),
            (422, "Please reduce the length of the messages or completion.", None),
            (413, "Request exceeds the maximum size", "request_too_large"),
        ],
    )
    def test_overflow_is_recognised(
        self,
        provider: Provider,
        server: ModelServer,
        gateway: ScriptedGateway,
        status: int,
        message: str,
        code: str | None,
    ) -> None:
        server.script(refuses(status, message, code=code))
        recorded = run_turn(gateway, provider.agent(server))
        assert isinstance(recorded.problem, ContextOverflow)
        assert recorded.events == []
        assert len(server.seen) == 1

    @pytest.mark.parametrize(
        "message", ["max_tokens is too large", "tools.0: bad schema", "Unsupported value"]
    )
    def test_other_errors_are_not_an_overflow(
        self, provider: Provider, server: ModelServer, gateway: ScriptedGateway, message: str
    ) -> None:
        server.script(refuses(400, message))
        recorded = run_turn(gateway, provider.agent(server))
        assert type(recorded.problem) is AgentFailed
        assert message in recorded.problem.message
        assert recorded.problem.hint
        assert len(server.seen) == 1


class TestRetries:
    @pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504, 529])
    def test_transient_statuses_are_retried(
        self, provider: Provider, server: ModelServer, gateway: ScriptedGateway, status: int
    ) -> None:
        recorded_sleep = RecordedSleep()
        server.script(refuses(status), refuses(status), provider.says("at last"))
        recorded = run_turn(gateway, provider.agent(server, sleep=recorded_sleep))
        assert recorded.answer == "at last"
        assert recorded_sleep.delays == [0.5, 1.0]
        assert len(recorded.usages) == 1

    @pytest.mark.parametrize("status", [400, 401, 403, 404, 307])
    def test_other_statuses_are_not_retried(
        self, provider: Provider, server: ModelServer, gateway: ScriptedGateway, status: int
    ) -> None:
        server.script(refuses(status))
        recorded = run_turn(gateway, provider.agent(server))
        assert type(recorded.problem) is AgentFailed
        assert recorded.problem.status == status
        assert recorded.problem.hint
        assert not recorded.problem.retryable
        assert len(server.seen) == 1

    def test_exhausted_quota_is_not_retried(
        self, provider: Provider, server: ModelServer, gateway: ScriptedGateway
    ) -> None:
        server.script(refuses(429, "You exceeded your quota", code="insufficient_quota"))
        recorded = run_turn(gateway, provider.agent(server))
        assert type(recorded.problem) is AgentFailed
        assert "money" in (recorded.problem.hint or "")

    def test_x_should_retry_false_is_respected(
        self, provider: Provider, server: ModelServer, gateway: ScriptedGateway
    ) -> None:
        server.script(refuses(500, **{"x-should-retry": "false"}))
        assert type(run_turn(gateway, provider.agent(server)).problem) is AgentFailed

    def test_retry_after_is_respected(
        self, provider: Provider, server: ModelServer, gateway: ScriptedGateway
    ) -> None:
        recorded_sleep = RecordedSleep()
        server.script(
            refuses(429, retry_after="7"),
            refuses(429, **{"retry-after-ms": "2500"}),
            refuses(429, retry_after="0"),
            provider.says("at last"),
        )
        recorded = run_turn(gateway, provider.agent(server, sleep=recorded_sleep))
        assert recorded.answer == "at last"
        assert recorded_sleep.delays == [
            7.0,
            2.5,
            2.0,
        ]  # the last is its own delay

    def test_long_retry_after_fails_at_once(
        self, provider: Provider, server: ModelServer, gateway: ScriptedGateway
    ) -> None:
        server.script(refuses(429, retry_after="3600"))
        recorded = run_turn(gateway, provider.agent(server))
        assert isinstance(recorded.problem, AgentUnavailable)
        assert recorded.problem.retryable
        assert recorded.problem.retry_after == 3600
        assert len(server.seen) == 1

    def test_attempts_are_limited(
        self, provider: Provider, server: ModelServer, gateway: ScriptedGateway
    ) -> None:
        server.script(*[refuses(500)] * 9)
        recorded = run_turn(gateway, provider.agent(server, retry=Retry(tries=3)))
        assert isinstance(recorded.problem, AgentUnavailable)
        assert len(server.seen) == 3

    @pytest.mark.parametrize("end", ["reset", "cut"])
    def test_broken_connection_before_the_first_byte_is_retried(
        self, provider: Provider, server: ModelServer, gateway: ScriptedGateway, end: Any
    ) -> None:
        server.script(Reply(end=end), provider.says("at last"))
        recorded = run_turn(gateway, provider.agent(server))
        assert recorded.answer == "at last"
        assert len(server.seen) == 2

    @pytest.mark.parametrize("end", ["reset", "cut", "well"])
    def test_broken_stream_is_retried_if_nothing_was_shown(
        self, provider: Provider, server: ModelServer, gateway: ScriptedGateway, end: Any
    ) -> None:
        """A call that was half received does not run, so a retry is safe; its usage is counted."""
        server.script(
            provider.says("", HELLO).ending(end, after=3),
            provider.says("", HELLO),
            provider.says("end"),
        )
        recorded = run_turn(gateway, provider.agent(server))
        assert recorded.answer == "end"
        assert len(recorded.results) == 1
        assert isinstance(recorded.events[0], ModelUsage)

    @pytest.mark.parametrize("end", ["reset", "cut", "well"])
    def test_broken_stream_fails_if_text_was_shown(
        self, provider: Provider, server: ModelServer, gateway: ScriptedGateway, end: Any
    ) -> None:
        whole = provider.says("one two three four")
        pieces = [at for at, piece in enumerate(whole.pieces) if b"three" in piece]
        server.script(whole.ending(end, after=pieces[0]), provider.says("never asked"))
        recorded = run_turn(gateway, provider.agent(server))
        assert isinstance(recorded.problem, AgentUnavailable)
        assert recorded.problem.partial == recorded.shown == "one two"
        assert len(server.seen) == 1
        assert len(recorded.usages) == 1

    def test_unreachable_server(self, provider: Provider, gateway: ScriptedGateway) -> None:
        with socket.socket() as bound:
            bound.bind(("127.0.0.1", 0))  # in use, but not listening
            recorded_sleep = RecordedSleep()
            url = f"http://127.0.0.1:{bound.getsockname()[1]}"
            options = provider.options(model="test-1", base_url=url)
            agent = provider.make(options, sleep=recorded_sleep, chance=lambda: 1.0)
            recorded = run_turn(gateway, agent)
        assert isinstance(recorded.problem, AgentUnavailable)
        assert "cannot be reached" in recorded.problem.message
        assert recorded_sleep.delays == [0.25, 0.5, 1.0]


class TestLimits:
    def test_slow_first_byte(
        self, provider: Provider, server: ModelServer, gateway: ScriptedGateway
    ) -> None:
        recorded_sleep = RecordedSleep()
        server.script(Reply(end="hang"))
        recorded = run_turn(
            gateway, provider.agent(server, limits=Limits(first_byte=0.2), sleep=recorded_sleep)
        )
        assert isinstance(recorded.problem, AgentTimeout)
        assert "did not begin" in recorded.problem.message
        assert recorded_sleep.delays == []

    def test_silence_in_a_stream(
        self, provider: Provider, server: ModelServer, gateway: ScriptedGateway
    ) -> None:
        whole = provider.says("one two three")
        server.script(whole.ending("hang", after=len(whole.pieces) - 3))
        recorded = run_turn(gateway, provider.agent(server, limits=Limits(between=0.2)))
        assert isinstance(recorded.problem, AgentTimeout)
        assert "in the middle" in recorded.problem.message
        assert recorded.problem.partial == recorded.shown
        assert recorded.shown.startswith("one")

    def test_endless_stream_ends_at_the_size_limit(
        self, provider: Provider, server: ModelServer, gateway: ScriptedGateway
    ) -> None:
        whole = provider.says("la la la")
        words = [at for at, piece in enumerate(whole.pieces) if b"la" in piece]
        server.script(whole.ending("endless", after=words[0] + 1))
        recorded = run_turn(gateway, provider.agent(server, limits=Limits(size=20_000)))
        assert isinstance(recorded.problem, AgentFailed)
        assert "20000 bytes" in recorded.problem.message
        assert recorded.problem.partial == recorded.shown
        assert len(recorded.usages) == 1

    @pytest.mark.check
    def test_endless_stream_ends_at_the_total_time(
        self, provider: Provider, server: ModelServer, gateway: ScriptedGateway
    ) -> None:
        """Comments keep a connection alive, but only up to the total time."""
        server.script(Reply([b": still here\n\n"], end="endless"))
        recorded = run_turn(gateway, provider.agent(server, limits=Limits(total=0.2)))
        assert isinstance(recorded.problem, AgentTimeout)
        assert "had not finished" in recorded.problem.message

    def test_endless_line_ends_at_the_size_limit(
        self, provider: Provider, server: ModelServer, gateway: ScriptedGateway
    ) -> None:
        server.script(Reply([b"data: ", b"x" * 1000], end="endless"))
        recorded = run_turn(gateway, provider.agent(server, limits=Limits(size=200_000)))
        assert isinstance(recorded.problem, AgentFailed)

    def test_endless_error_response_is_cut(
        self, provider: Provider, server: ModelServer, gateway: ScriptedGateway
    ) -> None:
        server.script(Reply([b"no" * 1000], 400, "text/plain", end="endless"))
        recorded = run_turn(gateway, provider.agent(server))
        assert type(recorded.problem) is AgentFailed
        assert len(str(recorded.problem)) < 1000


class TestUnreachable:
    @pytest.mark.parametrize(
        ("url", "reason"),
        [
            ("http://127.0.0.1:9/v1", "(connection refused)"),
            ("http://no-such-host.invalid/v1", "name"),  # the words differ with the resolver
        ],
    )
    def test_the_reason_of_the_system_is_told(
        self, gateway: ScriptedGateway, url: str, reason: str
    ) -> None:
        options = OpenAIOptions(model="m", base_url=url, api_key="k", retry=Retry(tries=1))
        recorded = run_turn(gateway, OpenAIAgent(options))
        assert recorded.problem is not None
        assert reason in recorded.problem.message
        assert "ConnectError" not in recorded.problem.message


def test_short_key_does_not_mutilate_texts(server: ModelServer, gateway: ScriptedGateway) -> None:
    server.script(*[refuses(404, "The model does not exist.")] * 4)
    options = OpenAIOptions(model="m", base_url=server.url, api_key="x")
    recorded = run_turn(gateway, OpenAIAgent(options))
    assert recorded.problem is not None
    assert "The model does not exist." in recorded.problem.message


class TestSecrets:
    @pytest.mark.parametrize("status", [401, 500, 400])
    def test_key_repeated_by_a_server_is_not_shown(
        self,
        provider: Provider,
        server: ModelServer,
        gateway: ScriptedGateway,
        status: int,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        caplog.set_level(logging.DEBUG)
        server.script(*[refuses(status, f"Incorrect key: {KEY}.")] * 4)
        agent = provider.agent(server)
        recorded = run_turn(gateway, agent)
        assert recorded.problem is not None
        assert "Incorrect key: ***." in recorded.problem.message
        shown = [
            str(recorded.problem),
            repr(recorded.problem),
            repr(recorded.problem.data),
            repr(agent),
        ]
        shown += [
            repr(pickle.loads(pickle.dumps(recorded.problem))),
            str(recorded.problem.__context__),
        ]
        assert KEY not in "".join(shown)
        assert KEY not in caplog.text

    @pytest.mark.parametrize("key", [f"{KEY}\u2014", f"{KEY}\nx", "\x00" + KEY])
    def test_invalid_key_is_not_shown(self, provider: Provider, key: str) -> None:
        with pytest.raises(ConfigError) as caught:
            provider.make(provider.options(model="test-1", api_key=key))
        assert KEY not in str(caught.value)

    @pytest.mark.parametrize("url", [f"http://me:{KEY}@localhost", "localhost:80", "ftp://x", ""])
    def test_invalid_address_is_refused(self, provider: Provider, url: str) -> None:
        with pytest.raises(ConfigError) as caught:
            provider.make(provider.options(model="test-1", base_url=url))
        assert KEY not in str(caught.value)


class TestErrorsAndDelays:
    def test_every_network_exception_becomes_an_agent_error(self) -> None:
        transport = Transport("http://localhost", headers={})
        kinds: list[Any] = [
            httpx2.InvalidURL,
            *_with_subclasses(httpx2.HTTPError),
            *_with_subclasses(httpx2.StreamError),
        ]
        assert len(kinds) > 15
        for kind in kinds:
            error = transport.network_error(kind.__new__(kind))
            assert isinstance(error, AgentError)
            assert error.hint

    @pytest.mark.parametrize(
        ("headers", "seconds"),
        [
            ({}, None),
            ({"retry-after": "3"}, 3.0),
            ({"retry-after": "1.5"}, 1.5),
            ({"retry-after-ms": "20", "retry-after": "9"}, 0.02),
            ({"retry-after": "Thu, 01 Jan 1970 00:01:40 GMT"}, 90.0),
            ({"retry-after": "Thu, 01 Jan 1970 00:00:01 GMT"}, 0.0),
            ({"retry-after": "soon"}, None),
            ({"retry-after": "-4"}, None),
            ({"retry-after": "nan"}, None),
        ],
    )
    def test_retry_after_header(self, headers: dict[str, str], seconds: float | None) -> None:
        assert retry_after(headers, now=10.0) == seconds

    def test_delays_grow_up_to_a_maximum(self) -> None:
        retry = Retry(tries=9, first=1, longest=5)
        problem = AgentUnavailable("x")
        waits = [retry.decide(problem, tried, 0.0) for tried in range(1, 10)]
        assert waits == [1, 2, 4, 5, 5, 5, 5, 5, None]
        assert [retry.decide(problem, 1, chance) for chance in (0.0, 0.5, 1.0)] == [1, 0.75, 0.5]
        assert retry.decide(AgentFailed("x"), 1, 0.0) is None
        assert retry.decide(AgentTimeout("x"), 1, 0.0) is None


def _with_subclasses(kind: type[Exception]) -> list[type[Exception]]:
    return [kind, *(kind for child in kind.__subclasses__() for kind in _with_subclasses(child))]


def test_first_calls_at_the_same_time_leave_no_client_open(
    server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    clients: list[httpx2.AsyncClient] = []

    class RecordedClient(httpx2.AsyncClient):
        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            clients.append(self)

    async def call(transport: Transport) -> bytes:
        async with (
            StopWatcher(asyncio.Event()) as watcher,
            transport.post("", {}, watcher) as response,
        ):
            return await response.read_all()

    async def play() -> list[bytes]:
        transport = Transport(server.url, headers={})
        try:
            return await asyncio.gather(*(call(transport) for _ in range(3)))
        finally:
            await transport.close()

    monkeypatch.setattr(httpx2, "AsyncClient", RecordedClient)
    server.script(*[Reply([b"{}"], kind=JSON)] * 3)
    assert asyncio.run(play()) == [b"{}"] * 3
    assert all(client.is_closed for client in clients)

"""Spans of turns for OpenTelemetry: `invoke_agent`, and in it `chat` and `execute_tool`.

All names of spans and attributes stand in this module, because the conventions for agents still
change. Texts, arguments and results are in no span. Without the extra `telemetry`, or without an
OpenTelemetry SDK that the program has set up, nothing is recorded (decision 0031).
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import hmac
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from tertulia.agents.base import Agent, Content, Tool
from tertulia.core.source import Source
from tertulia.core.usage import Usage
from tertulia.errors import Error
from tertulia.version import __version__

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer

_OPERATION: Final = "gen_ai.operation.name"
_AGENT: Final = "gen_ai.agent.name"
_PROVIDER: Final = "gen_ai.provider.name"
_REQUEST_MODEL: Final = "gen_ai.request.model"
_RESPONSE_MODEL: Final = "gen_ai.response.model"
_INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
_OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
_CACHE_READ: Final = "gen_ai.usage.cache_read.input_tokens"
_CACHE_WRITE: Final = "gen_ai.usage.cache_creation.input_tokens"
_TOOL: Final = "gen_ai.tool.name"
_SESSION: Final = "session.id"
_USER: Final = "user.id"
_PLATFORM: Final = "tertulia.platform"
_ERROR: Final = "error.type"


@functools.cache  # each turn asks, and to look for a package that is not there takes long
def is_installed() -> bool:
    """Return whether the extra `telemetry` is installed."""
    try:
        import opentelemetry.trace  # noqa: F401
    except ImportError:
        return False
    return True


def get_tracer() -> Tracer | None:
    """Return the tracer of this package, or None if nothing would be recorded."""
    if not is_installed():
        return None
    from opentelemetry import trace

    provider = trace.get_tracer_provider()
    if isinstance(provider, trace.ProxyTracerProvider):
        return None  # the program has set up no SDK
    return provider.get_tracer("tertulia", __version__)


def user_pseudonym(key: bytes, source: Source) -> str | None:
    """Return a pseudonym of the person who wrote, always the same; None if nobody is named."""
    person = source.user_id_alt or source.user_id
    if person is None:
        return None
    text = f"{source.platform}\0{source.account}\0{person}".encode("utf-8", "surrogatepass")
    return f"user_{hmac.new(key, text, hashlib.sha256).hexdigest()[:12]}"


class AgentSpans:
    """The spans of one run of an agent."""

    def __init__(self, tracer: Tracer | None, agent: Agent, attributes: dict[str, Any]) -> None:
        self._tracer = tracer
        self._agent = agent
        self._attributes = attributes
        self._run: Span | None = None
        self._chat: Span | None = None

    @classmethod
    def of_turn(
        cls, tracer: Tracer, agent: Agent, *, session_id: str, platform: str, user: str | None
    ) -> AgentSpans:
        """Return the spans of a turn's run."""
        attributes = {_AGENT: agent.name, _SESSION: session_id, _PLATFORM: platform}
        return cls(tracer, agent, attributes | ({_USER: user} if user else {}))

    @property
    def is_recording(self) -> bool:
        """Return whether there is a tracer."""
        return self._tracer is not None

    def run(self) -> contextlib.AbstractContextManager[None]:
        """Record the whole run."""
        return contextlib.nullcontext() if self._tracer is None else self._recorded_run()

    @contextlib.contextmanager
    def _recorded_run(self) -> Iterator[None]:
        self._run = span = self._start("invoke_agent", self._agent.name)
        try:
            yield
        except BaseException as problem:
            self.end_chat(problem=problem)
            _set_error(span, problem)
            raise
        finally:
            self.end_chat()
            span.end()
            self._run = None

    def begin_chat(self) -> None:
        """Record a model call from now on: the agent has asked for the history."""
        if self._run is not None and self._chat is None:
            model = getattr(self._agent, "model", None)
            names = {_REQUEST_MODEL: model} if isinstance(model, str) else {}
            self._chat = self._start("chat", str(model or self._agent.name), names)

    def end_chat(self, usage: Usage | None = None, *, problem: BaseException | None = None) -> None:
        """Record the end of the model call, with its tokens."""
        span, self._chat = self._chat, None
        if span is None:
            return
        if usage is not None:
            values = {
                _PROVIDER: usage.provider,
                _RESPONSE_MODEL: usage.model,
                _INPUT_TOKENS: usage.input + usage.cache_read + usage.cache_write,
                _OUTPUT_TOKENS: usage.output,
                _CACHE_READ: usage.cache_read,
                _CACHE_WRITE: usage.cache_write,
            }
            span.set_attributes({name: value for name, value in values.items() if value})
        if problem is not None:
            _set_error(span, problem)
        span.end()

    def wrap_tool(self, tool: Tool) -> Tool:
        """Return the tool with a span around each of its calls."""

        async def call(arguments: dict[str, Any]) -> Content:
            span = self._start("execute_tool", tool.name, {_TOOL: tool.name})
            try:
                return await tool.call(arguments)
            except BaseException as problem:
                _set_error(span, problem)
                raise
            finally:
                span.end()

        return replace(tool, call=call)

    def _start(self, operation: str, name: str, values: dict[str, Any] | None = None) -> Span:
        from opentelemetry import trace

        assert self._tracer is not None
        parent = None if self._run is None else trace.set_span_in_context(self._run)
        attributes = {_OPERATION: operation, **self._attributes, **(values or {})}
        return self._tracer.start_span(f"{operation} {name}", parent, attributes=attributes)


def _set_error(span: Span, problem: BaseException) -> None:
    """Record the kind of a failure; its message could contain texts of people."""
    from opentelemetry.trace import StatusCode

    span.set_attribute(
        _ERROR, problem.code if isinstance(problem, Error) else type(problem).__name__
    )
    span.set_status(StatusCode.ERROR)

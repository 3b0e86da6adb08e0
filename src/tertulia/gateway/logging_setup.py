"""Logs: one line for each turn, and what went wrong. No texts of people, no secrets, no raw ids.

with writing(config.log, store.sync.redactor):
    Gateway(store, Logged(agent), …)
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import AsyncIterator, Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any, Protocol, TextIO

from tertulia.agents.base import Agent, Event, ModelUsage, Request, Step, running
from tertulia.core.text.redact import Redactor
from tertulia.core.text.secret_patterns import without_secrets
from tertulia.errors import AgentStopped, ConfigError, Error

NAME = "tertulia"

log = logging.getLogger("tertulia.turns")

# Fields that hold a key of a conversation, whose ids become pseudonyms.
_KEYS = frozenset(("key",))


class LogSettings(Protocol):
    """What is to be logged."""

    @property
    def level(self) -> str: ...
    @property
    def format(self) -> str: ...
    @property
    def file(self) -> str | None: ...


class Logged:
    """An agent whose every run is one line in the log."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self.name = agent.name

    def __repr__(self) -> str:
        return repr(self._agent)

    async def close(self) -> None:
        await self._agent.close()

    async def run(self, request: Request) -> AsyncIterator[Event]:
        """Run the agent; what it gives goes through as it is."""
        line = _Line(request, self.name)
        try:
            async with running(self._agent, request) as events:
                async for event in events:
                    line.note(event)
                    yield event
        except AgentStopped:
            line.outcome = "stopped"
            raise
        except Error as problem:
            line.outcome = problem.code
            raise
        except BaseException:
            line.outcome = "cut off"
            raise
        finally:
            line.write()


class _Line:
    """What is told of one run."""

    def __init__(self, request: Request, agent: str) -> None:
        self.outcome = "answered"
        self._request = request
        self._agent = agent
        self._began = time.monotonic()
        self._models: list[str] = []
        self._input = self._output = self._steps = self._tools = 0
        self._costs: list[float | None] = []

    def note(self, event: Event) -> None:
        usage = getattr(event, "usage", None) if isinstance(event, Step | ModelUsage) else None
        if isinstance(event, Step):
            self._steps += 1
            self._tools += len(event.tool_calls)
        if usage is not None:
            self._input += usage.input
            self._output += usage.output
            self._costs.append(usage.cost_usd)
            if usage.model and usage.model not in self._models:
                self._models.append(usage.model)

    @property
    def _cost(self) -> float | None:
        """What is not known is not nothing: one call without a price, or no call at all."""
        known = [cost for cost in self._costs if cost is not None]
        return sum(known) if known and len(known) == len(self._costs) else None

    def write(self) -> None:
        fields = {
            "session": self._request.session_id,
            "key": self._request.key,
            "platform": self._request.platform,
            "agent": self._agent,
            "model": ", ".join(self._models) or None,
            "steps": self._steps,
            "tools": self._tools,
            "input_tokens": self._input,
            "output_tokens": self._output,
            "cost_usd": self._cost,
            "milliseconds": round((time.monotonic() - self._began) * 1000),
            "outcome": self.outcome,
        }
        is_well = self.outcome in ("answered", "stopped")
        log.log(logging.INFO if is_well else logging.WARNING, "turn", extra={"fields": fields})


@contextmanager
def writing(wanted: LogSettings, redactor: Redactor, *, is_quiet: bool = False) -> Iterator[None]:
    """Log as it is wanted, within the block. `is_quiet`: a person talks on this very terminal, so
    without a file only what goes wrong is told."""
    logger = logging.getLogger(NAME)
    before = list(logger.handlers), logger.level, logger.propagate
    stream = _opened(wanted.file) if wanted.file else None
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(_formatter(wanted, redactor, stream))
    level = logging.getLevelNamesMapping()[wanted.level.upper()]
    logger.handlers = [handler]
    logger.setLevel(max(level, logging.WARNING) if is_quiet and stream is None else level)
    logger.propagate = False
    try:
        yield
    finally:
        logger.handlers, logger.propagate = before[0], before[2]
        logger.setLevel(before[1])
        if stream is not None:
            stream.close()


def _opened(path: str) -> TextIO:
    try:
        return open(path, "a", encoding="utf-8", buffering=1)
    except OSError as problem:
        raise ConfigError(
            f"The log {path} cannot be written: {problem.strerror}.",
            hint="Make its folder, or set log.file to another place.",
            field="log.file",
        ) from problem


def _formatter(wanted: LogSettings, redactor: Redactor, stream: TextIO | None) -> logging.Formatter:
    import structlog

    def take_fields(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        event.update(getattr(event["_record"], "fields", {}))
        return event

    def text(value: str) -> str:
        return redactor.text(without_secrets(value))

    def redact(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        for name, value in event.items():
            if isinstance(value, str) and not name.startswith("_"):
                hide = redactor.key if name in _KEYS else text
                event[name] = hide(value) if value and name not in ("timestamp", "level") else value
        return event

    renderer: Any = structlog.processors.JSONRenderer(ensure_ascii=False)
    if wanted.format == "text":
        has_colors = stream is None and sys.stderr.isatty()
        renderer = structlog.dev.ConsoleRenderer(colors=has_colors, sort_keys=False)
    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[
            structlog.stdlib.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
        ],
        processors=[
            take_fields,
            structlog.processors.format_exc_info,
            redact,
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            renderer,
        ],
    )

"""Logging: one line for each turn, and problems. No texts of people, no secrets, no raw ids.

with writing(config.log, store.sync.redactor):
    Gateway(store, Logged(agent), …)
"""

from __future__ import annotations

import logging
import os
import re
import sys
import time
from collections.abc import AsyncIterator, Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any, TextIO

from tertulia.agents.base import Agent, Event, ModelUsage, Request, Step, running, traits_of
from tertulia.core.history.model_traits import ModelTraits
from tertulia.core.text.redact import Redactor
from tertulia.core.text.secret_patterns import hide_secrets
from tertulia.errors import AgentStopped, ConfigError, Error
from tertulia.gateway.log_brake import LogBrake
from tertulia.gateway.settings import LogSettings
from tertulia.platforms.registry import PLATFORMS
from tertulia.private_files import open_private

NAME = "tertulia"
# Libraries whose warnings strangers can cause: the same handler redacts and limits them.
_LIBRARIES = ("asyncio", "uvicorn")

log = logging.getLogger("tertulia.turns")

# Fields that contain the key of a conversation; the ids in it are replaced by pseudonyms.
_KEYS = frozenset(("key",))
# Keys of conversations, people and chats in the text of a line or of an error.
_KEY_IN_TEXT = re.compile(r"\bagent:[^\s,;\"'`)\]]+")
_COLON = "\ufdd0"  # stands for the colons of a key while addresses are looked for
_ADDRESS_IN_TEXT = re.compile(r"\b([a-z][a-z0-9_]*):([^\s,;\"'`)\]/][^\s,;\"'`)\]]*)")


class LoggedAgent:
    """An agent that writes one log line for each of its runs."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self.name = agent.name

    def __repr__(self) -> str:
        return repr(self._agent)

    @property
    def model(self) -> str | None:
        """The model of the agent, if it calls one."""
        return getattr(self._agent, "model", None)

    @property
    def traits(self) -> ModelTraits | None:
        """What a history for the model of the agent depends on, if it calls one."""
        return traits_of(self._agent)

    async def close(self) -> None:
        await self._agent.close()

    async def run(self, request: Request) -> AsyncIterator[Event]:
        """Run the agent and yield its events unchanged."""
        summary = _RunSummary(request, self.name)
        try:
            async with running(self._agent, request) as events:
                async for event in events:
                    summary.add(event)
                    yield event
        except AgentStopped:
            summary.outcome = "stopped"
            raise
        except Error as problem:
            summary.outcome = problem.code
            raise
        except BaseException:
            summary.outcome = "cut off"
            raise
        finally:
            summary.write()


class _RunSummary:
    """The log line of one run."""

    def __init__(self, request: Request, agent: str) -> None:
        self.outcome = "answered"
        self._request = request
        self._agent = agent
        self._started = time.monotonic()
        self._models: list[str] = []
        self._input = self._output = self._steps = self._tools = 0
        self._costs: list[float | None] = []

    def add(self, event: Event) -> None:
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
        """Return the cost of all calls; None if a price is unknown or there was no call."""
        prices = [cost for cost in self._costs if cost is not None]
        return sum(prices) if prices and len(prices) == len(self._costs) else None

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
            "milliseconds": round((time.monotonic() - self._started) * 1000),
            "outcome": self.outcome,
        }
        is_expected = self.outcome in ("answered", "stopped")
        log.log(logging.INFO if is_expected else logging.WARNING, "turn", extra={"fields": fields})


@contextmanager
def configured_logging(
    settings: LogSettings, redactor: Redactor, *, is_quiet: bool = False
) -> Iterator[None]:
    """Set logging up for the time of the block, and restore it afterwards.

    `is_quiet`: a person is chatting on this terminal, so without a log file only warnings and
    errors are written.
    """
    loggers = [logging.getLogger(name) for name in (NAME, *_LIBRARIES)]
    before = [(list(each.handlers), each.level, each.propagate) for each in loggers]
    stream = _open(settings.file) if settings.file else None
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(_formatter(settings, redactor, stream))
    handler.addFilter(LogBrake())
    level = logging.getLevelNamesMapping()[settings.level.upper()]
    own_level = max(level, logging.WARNING) if is_quiet and stream is None else level
    for logger in loggers:
        logger.handlers = [handler]
        logger.setLevel(own_level if logger.name == NAME else max(level, logging.WARNING))
        logger.propagate = False
    try:
        yield
    finally:
        for logger, (handlers, level_before, propagate) in zip(loggers, before, strict=True):
            logger.handlers, logger.propagate = handlers, propagate
            logger.setLevel(level_before)
        if stream is not None:
            stream.close()


def _open(path: str) -> TextIO:
    try:
        number = open_private(path, os.O_WRONLY | os.O_APPEND)
        return open(number, "a", encoding="utf-8", buffering=1)
    except OSError as problem:
        raise ConfigError(
            f"The log file {path} cannot be written: {problem.strerror}.",
            hint="Create its folder, or set log.file to another path.",
            field="log.file",
        ) from problem


def _formatter(
    settings: LogSettings, redactor: Redactor, stream: TextIO | None
) -> logging.Formatter:
    import structlog

    def add_fields(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        event.update(getattr(event["_record"], "fields", {}))
        return event

    def text(value: str) -> str:
        return redactor.text(_hide_ids(hide_secrets(value), redactor))

    def redact(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        for name, value in event.items():
            if isinstance(value, str) and not name.startswith("_"):
                hide = redactor.key if name in _KEYS else text
                event[name] = hide(value) if value and name not in ("timestamp", "level") else value
        return event

    renderer: Any = structlog.processors.JSONRenderer(ensure_ascii=False)
    if settings.format == "text":
        has_colors = stream is None and sys.stderr.isatty()
        renderer = structlog.dev.ConsoleRenderer(colors=has_colors, sort_keys=False)
    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[
            structlog.stdlib.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
        ],
        processors=[
            add_fields,
            structlog.processors.format_exc_info,
            redact,
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            renderer,
        ],
    )


def _hide_ids(text: str, redactor: Redactor) -> str:
    """Return a text with pseudonyms in keys (agent:main:…) and addresses (telegram:joe)."""

    def hide_address(match: re.Match[str]) -> str:
        platform, value = match[1], match[2].rstrip(".:")
        if platform not in PLATFORMS or not redactor.hides(platform):
            return match[0]
        rest = match[2][len(value) :]
        return f"{platform}:{redactor.user(platform, value)}{rest}" if value else match[0]

    def hide_key(match: re.Match[str]) -> str:
        key = match[0].rstrip(".:")
        return redactor.key(key).replace(":", _COLON) + match[0][len(key) :]

    text = _KEY_IN_TEXT.sub(hide_key, text)
    return _ADDRESS_IN_TEXT.sub(hide_address, text).replace(_COLON, ":")

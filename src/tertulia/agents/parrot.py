"""The parrot: an agent without a model. It says what it was given, and does what it is told.

It is what answers before a key is set up. It makes no network call and pretends nothing, so that
sessions, commands, tools and deliveries can be tried, and tested, with it alone.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import Any, Final

from tertulia.agents import tools
from tertulia.agents.base import Delta, Event, Request, Step, ToolResult
from tertulia.agents.cancellation import StopWatcher
from tertulia.core.history import tokens
from tertulia.core.history.content import flat
from tertulia.core.message import ToolCall, to_json
from tertulia.core.usage import Usage

# How many of the last messages are shown, and how much of each.
_SHOWN: Final = 4
_LENGTH: Final = 200
# It is said a few words at a time.
_PIECE: Final = re.compile(r"(?:\s*\S+){1,6}(?:\s+\Z)?")
_CALL: Final = re.compile(r"\s*call\s+([A-Za-z0-9_-]+)\s*(.*)", re.IGNORECASE)

_ABOUT: Final = """\
I am the parrot: no model, no network, no opinion. I show what an agent is given here.
- context: the context prompt
- history: all messages I was shown
- tools: what I could call
- call NAME {"json": "arguments"}: call that tool; several lines make several calls
- anything else: I repeat it, with where I heard it"""


class ParrotAgent:
    """Answers without a model."""

    def __init__(self, *, name: str = "parrot", tool_seconds: float = 300.0) -> None:
        self.name = name
        self._tool_seconds = tool_seconds

    def __repr__(self) -> str:
        return "ParrotAgent()"

    async def close(self) -> None:
        """There is nothing to let go of."""

    async def run(self, request: Request) -> AsyncGenerator[Event, None]:
        """Answer a request, event by event."""
        async with StopWatcher(request.stop) as watch:
            watch.check()
            meanwhile = list(await request.steer())
            calls = _calls(request.text)
            given: list[ToolResult] = []
            if calls:
                usage = _usage(request, await request.history(format="text"), "")
                yield Step(None, calls, usage=usage)
                found = tools.results(calls, request.tools, watch, seconds=self._tool_seconds)
                async with aclosing(found) as results:
                    async for result in results:
                        given.append(result)
                        yield result
                meanwhile += await request.steer()
            history = await request.history(format="text")
            answer = _answer(request, history, calls, given)
            if meanwhile:
                answer += "\n\nMeanwhile you said: " + "; ".join(meanwhile)
            for piece in _PIECE.findall(answer):
                watch.check()
                yield Delta(piece)
            yield Step(answer, usage=_usage(request, history, answer))


def _calls(text: str) -> tuple[ToolCall, ...]:
    """The calls that are asked for: one a line, and nothing but such lines."""
    found = [_CALL.fullmatch(line) for line in text.splitlines() if line.strip()]
    if not found or not all(found):
        return ()
    pairs = [(match[1], match[2].strip() or "{}") for match in found if match is not None]
    return tuple(ToolCall(f"call_{at}", *pair) for at, pair in enumerate(pairs))


def _answer(
    request: Request,
    history: Sequence[dict[str, Any]],
    calls: Sequence[ToolCall],
    given: Sequence[ToolResult],
) -> str:
    if calls:
        told = zip(calls, given, strict=True)
        return "\n".join(f"{call.name} gave: {_text(result.content)}" for call, result in told)
    show = _WORDS.get(request.text.strip().lower())
    return show(request, history) if show else _repeated(request, history)


def _repeated(request: Request, history: Sequence[dict[str, Any]]) -> str:
    spoken = sum(message["role"] == "user" for message in history)
    where = f" on {request.platform}" if request.platform else ""
    place = f"session {request.session_id or 'unknown'} of {request.key or 'no conversation'}"
    shown = f"{_counted(len(history), 'message')}, {spoken} of them from people"
    lines = [
        f"You said: {request.text}",
        "",
        f"I heard it{where}, in {place}.",
        f"I was shown {shown}, and offered {_counted(len(request.tools), 'tool')}.",
    ]
    if len(history) > 1:
        lines += ["The last ones before yours:", _listed(history[:-1][-_SHOWN:])]
    return "\n".join([*lines, "Say “help” for what else I can show."])


def _context(request: Request, history: Sequence[dict[str, Any]]) -> str:
    return request.system if request.system.strip() else "I was given no context prompt."


def _history(request: Request, history: Sequence[dict[str, Any]]) -> str:
    return f"I was shown {_counted(len(history), 'message')}:\n{_listed(history)}"


def _tools(request: Request, history: Sequence[dict[str, Any]]) -> str:
    shown = [
        f"- {tool.name}: {tool.description} {to_json(tool.parameters)}" for tool in request.tools
    ]
    return "\n".join(["I was offered:", *shown]) if shown else "I was offered no tools."


def _help(request: Request, history: Sequence[dict[str, Any]]) -> str:
    return _ABOUT


def _listed(history: Sequence[dict[str, Any]]) -> str:
    return "\n".join(f"- {one['role']}: {_short(str(one['content']))}" for one in history)


def _short(text: str) -> str:
    shown = " ".join(text.split(None, _LENGTH))  # no more words than characters are shown
    return shown if len(shown) <= _LENGTH else f"{shown[: _LENGTH - 1]}…"


def _text(content: Any) -> str:
    return content if isinstance(content, str) else flat(content)


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _usage(request: Request, history: Sequence[dict[str, Any]], answer: str) -> Usage:
    """What a model would have read and written, near enough; it was none, so it cost nothing."""
    said = "\n".join([request.system, *(str(message["content"]) for message in history)])
    read = tokens.estimate(said) + tokens.PER_MESSAGE * len(history)
    return Usage(
        read,
        tokens.estimate(answer),
        model="parrot",
        provider="tertulia",
        cost_usd=0.0,
        cost_status="included",
        cost_source="no model was called; tokens estimated",
        last_prompt=read,
    )


_WORDS: dict[str, Callable[[Request, Sequence[dict[str, Any]]], str]] = {
    "context": _context,
    "history": _history,
    "tools": _tools,
    "help": _help,
}

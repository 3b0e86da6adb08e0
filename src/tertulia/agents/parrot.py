"""The parrot: an agent without a model, which repeats messages and calls tools on request.

It answers as long as no API key is set up. It makes no network call, so that sessions, commands,
tools and deliveries can be tried, and tested, with it alone.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import Any, Final

from tertulia.agents import tools
from tertulia.agents.agent_options import ParrotOptions
from tertulia.agents.base import Delta, Event, Request, Step, ToolResult
from tertulia.agents.cancellation import StopWatcher
from tertulia.core.history import tokens
from tertulia.core.history.content import flatten_content
from tertulia.core.message import ToolCall, to_json
from tertulia.core.text.excerpt import one_line
from tertulia.core.usage import Usage

# The number of earlier messages that an answer lists, and the characters of each.
_LISTED_MESSAGES: Final = 4
_MESSAGE_LENGTH: Final = 200
# The answer is streamed a few words at a time.
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
    """Agent that answers without a model."""

    def __init__(self, options: ParrotOptions | None = None) -> None:
        self._options = options or ParrotOptions()
        self.name = self._options.kind

    def __repr__(self) -> str:
        return "ParrotAgent()"

    async def close(self) -> None:
        """Do nothing: there are no connections."""

    async def run(self, request: Request) -> AsyncGenerator[Event, None]:
        """Answer a request; yield events."""
        async with StopWatcher(request.stop) as watcher:
            watcher.check()
            new_messages = list(await request.steer())
            calls = _parse_calls(request.text)
            results: list[ToolResult] = []
            if calls:
                usage = _estimate_usage(request, await request.history(format="text"), "")
                yield Step(None, calls, usage=usage)
                running_tools = tools.run_tools(
                    calls, request.tools, watcher, seconds=self._options.tool_seconds
                )
                async with aclosing(running_tools):
                    async for result in running_tools:
                        results.append(result)
                        yield result
                new_messages += await request.steer()
            history = await request.history(format="text")
            answer = _answer(request, history, calls, results)
            if new_messages:
                answer += "\n\nMeanwhile you said: " + "; ".join(new_messages)
            for piece in _PIECE.findall(answer) if request.streams else ():
                watcher.check()
                yield Delta(piece)
            yield Step(answer, usage=_estimate_usage(request, history, answer))


def _parse_calls(text: str) -> tuple[ToolCall, ...]:
    """Return the calls of a message in which every line is a call, else nothing."""
    matches = [_CALL.fullmatch(line) for line in text.splitlines() if line.strip()]
    if not matches or not all(matches):
        return ()
    pairs = [(match[1], match[2].strip() or "{}") for match in matches if match is not None]
    return tuple(ToolCall(f"call_{index}", *pair) for index, pair in enumerate(pairs))


def _answer(
    request: Request,
    history: Sequence[dict[str, Any]],
    calls: Sequence[ToolCall],
    results: Sequence[ToolResult],
) -> str:
    if calls:
        pairs = zip(calls, results, strict=True)
        return "\n".join(
            f"{call.name} gave: {flatten_content(result.content)}" for call, result in pairs
        )
    show = _COMMANDS.get(request.text.strip().lower())
    return show(request, history) if show else _repeat(request, history)


def _repeat(request: Request, history: Sequence[dict[str, Any]]) -> str:
    user_messages = sum(message["role"] == "user" for message in history)
    platform = f" on {request.platform}" if request.platform else ""
    session = f"session {request.session_id or 'unknown'} of {request.key or 'no conversation'}"
    counts = f"{_format_count(len(history), 'message')}, {user_messages} of them from people"
    lines = [
        f"You said: {request.text}",
        "",
        f"I heard it{platform}, in {session}.",
        f"I was shown {counts}, and offered {_format_count(len(request.tools), 'tool')}.",
    ]
    if len(history) > 1:
        # After the empty line a new paragraph begins, which is no part of the last message.
        messages = _list_messages(history[:-1][-_LISTED_MESSAGES:])
        lines += ["The last ones before yours:", messages, ""]
    return "\n".join([*lines, "Say “help” for what else I can show."])


def _show_context(request: Request, history: Sequence[dict[str, Any]]) -> str:
    return request.system if request.system.strip() else "I was given no context prompt."


def _show_history(request: Request, history: Sequence[dict[str, Any]]) -> str:
    return f"I was shown {_format_count(len(history), 'message')}:\n{_list_messages(history)}"


def _show_tools(request: Request, history: Sequence[dict[str, Any]]) -> str:
    lines = [
        f"- {tool.name}: {tool.description} {to_json(tool.parameters)}" for tool in request.tools
    ]
    return "\n".join(["I was offered:", *lines]) if lines else "I was offered no tools."


def _show_help(request: Request, history: Sequence[dict[str, Any]]) -> str:
    return _ABOUT


def _list_messages(history: Sequence[dict[str, Any]]) -> str:
    return "\n".join(
        f"- {message['role']}: {one_line(str(message['content']), _MESSAGE_LENGTH)}"
        for message in history
    )


def _format_count(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _estimate_usage(request: Request, history: Sequence[dict[str, Any]], answer: str) -> Usage:
    """Return an estimate of the tokens a model would have used, with a cost of 0."""
    prompt = "\n".join([request.system, *(str(message["content"]) for message in history)])
    prompt_tokens = tokens.estimate_tokens(prompt) + tokens.PER_MESSAGE * len(history)
    return Usage(
        prompt_tokens,
        tokens.estimate_tokens(answer),
        model="parrot",
        provider="tertulia",
        cost_usd=0.0,
        cost_status="included",
        cost_source="no model was called; tokens estimated",
        last_prompt=prompt_tokens,
    )


_COMMANDS: dict[str, Callable[[Request, Sequence[dict[str, Any]]], str]] = {
    "context": _show_context,
    "history": _show_history,
    "tools": _show_tools,
    "help": _show_help,
}

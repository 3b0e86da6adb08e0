"""A program as an agent, with real programs, whatever they do."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import time
from pathlib import Path
from typing import Any

import pytest

from tertulia import (
    AgentError,
    AgentFailed,
    AgentStopped,
    AgentTimeout,
    AgentUnavailable,
    ConfigError,
    ContextOverflow,
    Usage,
)
from tertulia.agents import CommandAgent, Delta, Event, Limits, Tool
from tertulia.agents.base import NO_PARAMETERS
from tertulia.testing.agent_contract import ANSWER, calling, echo
from tertulia.testing.scripted_gateway import ScriptedGateway
from tests.agents.scene import PATIENCE, events_of, moves_of, moving, talked

if os.name == "nt":
    pytest.skip("programs are ended as process groups", allow_module_level=True)

STEP = ["event", {"type": "step", "text": "done"}]


@pytest.fixture
def talk(tmp_path: Path) -> ScriptedGateway:
    return ScriptedGateway(tmp_path, tools=(echo(),))


def test_it_is_told_all_there_is(talk: ScriptedGateway) -> None:
    assert talked(talk, moving(STEP), "before").answer == "done"
    told = json.loads(talked(talk, moving(["repeat"]), "and now?").answer or "")
    assert told["type"] == "request"
    assert told["text"] == "and now?"
    assert told["platform"] == "telegram"
    assert told["key"] == "agent:main:telegram:dm:42"
    assert told["session_id"]
    assert told["system"].startswith("## Current Session Context")
    assert [message["content"] for message in told["history"]] == ["before", "done", "and now?"]
    (tool,) = told["tools"]
    assert (tool["name"], tool["parameters"]["required"]) == ("echo", ["word"])


def test_the_history_comes_in_the_form_that_is_asked_for(talk: ScriptedGateway) -> None:
    agent = moving(["repeat"], format="anthropic")
    (message,) = json.loads(talked(talk, agent).answer or "")["history"]
    assert message["content"] == [{"type": "text", "text": "hello"}]


def test_a_request_larger_than_a_pipe(talk: ScriptedGateway) -> None:
    text = "long " * 100_000
    assert json.loads(talked(talk, moving(["repeat"]), text).answer or "")["text"] == text


def test_what_is_no_text_is_told_as_text(talk: ScriptedGateway) -> None:
    told = json.loads(talked(talk, moving(["repeat"]), "half \ud83d").answer or "")
    assert told["text"] == "half \ufffd"


def test_usage_and_notes_and_what_was_said_meanwhile(talk: ScriptedGateway) -> None:
    async def wait(arguments: dict[str, Any]) -> str:
        talk.meanwhile.append("make it two")
        return "waited"

    talk.tools = (Tool("wait", "Waits.", NO_PARAMETERS, wait),)
    usage = {"input": 5, "output": 2, "model": "own", "cost_usd": 0.25}
    agent = moving(
        ["event", {"type": "note", "text": "one moment"}],
        ["event", {"type": "spent", "usage": {"input": 1}}],
        *moves_of([calling(("wait", "{}"))]),
        ["event", {"type": "step", "text": "done", "usage": usage, "unknown": 1}],
    )
    heard = talked(talk, agent)
    assert heard.answer == "done"
    assert heard.notes == ["one moment", "heard make it two"]
    assert heard.usages == [Usage(1), Usage(5, 2, model="own", cost_usd=0.25)]


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("Traceback (most recent call last):", "Traceback"),
        ("", None),
        ("[]", "[]"),
        ('{"type": "dance"}', "dance"),
        ('{"type": "delta"}', "text"),
        ('{"type": "delta", "text": 7}', "7"),
        ('{"type": "step", "text": "x", "usage": {"input": -1}}', "-1"),
        ('{"type": "step", "text": "x", "tool_calls": [{"name": "a"}]}', "id"),
        ("x" * 5000, "xxx"),
    ],
)
def test_nonsense_is_shown(talk: ScriptedGateway, line: str, shown: str | None) -> None:
    heard = talked(talk, moving(["line", line], STEP))
    if shown is None:
        assert heard.answer == "done"
        return
    assert type(heard.problem) is AgentFailed
    assert shown in heard.problem.message
    assert len(heard.problem.message) < 500
    assert "one event" in (heard.problem.hint or "")


def test_an_empty_answer_is_a_failure(talk: ScriptedGateway) -> None:
    heard = talked(talk, moving(["event", {"type": "step", "text": " "}]))
    assert "empty answer" in str(heard.problem)


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("failed", AgentFailed),
        ("unavailable", AgentUnavailable),
        ("timeout", AgentTimeout),
        ("overflow", ContextOverflow),
    ],
)
def test_it_can_say_that_it_failed(
    talk: ScriptedGateway, kind: str, error: type[AgentError]
) -> None:
    told = {"type": "error", "message": "no luck", "hint": "Pray.", "kind": kind}
    heard = talked(talk, moving(["event", told]))
    assert type(heard.problem) is error
    assert (heard.problem.message, heard.problem.hint) == ("no luck", "Pray.")


def test_one_that_ends_too_early(talk: ScriptedGateway, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "tertulia.agents.command")
    half = ["event", {"type": "delta", "text": "I would"}]
    heard = talked(talk, moving(half, ["complain", "first"], ["complain", "no model"], ["exit", 3]))
    assert type(heard.problem) is AgentFailed
    assert "ended with 3" in heard.problem.message
    assert "no model" in heard.problem.message
    assert heard.problem.exit_code == 3
    assert heard.problem.partial == "I would"
    assert [record.getMessage().rpartition(": ")[2] for record in caplog.records] == [
        "first",
        "no model",
    ]


def test_one_that_ends_well_without_an_answer(talk: ScriptedGateway) -> None:
    heard = talked(talk, moving(["close"], ["exit", 0]))
    assert "before it had answered" in str(heard.problem)


def test_one_that_fails_after_its_answer_has_answered(talk: ScriptedGateway) -> None:
    assert talked(talk, moving(STEP, ["exit", 1])).answer == "done"


def test_the_last_line_needs_no_end(talk: ScriptedGateway, tmp_path: Path) -> None:
    script = tmp_path / "agent.sh"
    script.write_text('printf \'{"type": "step", "text": "done"}\'\n')
    assert talked(talk, CommandAgent(["sh", str(script)])).answer == "done"


def test_one_that_cannot_be_started(talk: ScriptedGateway, tmp_path: Path) -> None:
    heard = talked(talk, CommandAgent([str(tmp_path / "nothing-here"), "sk-secret"]))
    assert type(heard.problem) is AgentFailed
    assert "nothing-here" in heard.problem.message
    assert "sk-secret" not in str(heard.problem) + repr(CommandAgent(["a", "sk-secret"]))


@pytest.mark.parametrize("command", ["python my_agent.py", []])
def test_a_command_is_a_list(command: Any) -> None:
    with pytest.raises(ConfigError, match="list"):
        CommandAgent(command)


def test_one_that_hangs(talk: ScriptedGateway) -> None:
    heard = talked(talk, moving(["hang"], limits=Limits(first_byte=0.3)))
    assert isinstance(heard.problem, AgentTimeout)


def test_one_that_never_stops_talking(talk: ScriptedGateway) -> None:
    heard = talked(talk, moving(["flood"], limits=Limits(size=50_000)))
    assert isinstance(heard.problem, AgentFailed)
    assert "50000 bytes" in heard.problem.message


def test_steps_have_a_limit(talk: ScriptedGateway) -> None:
    moves = moves_of([calling(("echo", '{"word": "a"}'))] * 3)
    heard = talked(talk, moving(*moves, max_steps=2))
    assert "I stopped after 2 steps" in (heard.answer or "")
    assert len(heard.results) == 2


class TestEnding:
    """Nothing of a program outlives its run."""

    def test_stop_ends_it_even_if_it_will_not(self, talk: ScriptedGateway) -> None:
        async def stop(event: Event) -> None:
            talk.stop.set()

        heard = talked(talk, moving(["hang_on_term"], grace=0.1), watcher=stop)
        assert isinstance(heard.problem, AgentStopped)
        assert heard.problem.partial == heard.shown
        assert is_gone(int(heard.shown))

    def test_what_it_started_ends_with_it(self, talk: ScriptedGateway) -> None:
        heard = talked(talk, moving(["leave_child"], STEP))
        child = int(heard.shown)
        assert heard.answer == "done"
        assert is_gone(child)

    def test_a_run_that_is_cancelled(self, talk: ScriptedGateway) -> None:
        pids: list[int] = []

        async def exchange() -> None:
            async def note(event: Event) -> None:
                assert isinstance(event, Delta)
                pids.append(int(event.text))
                running.cancel()

            agent = moving(["hang_on_term"], grace=0.1)
            running = asyncio.ensure_future(talk.say(agent, "hello", watcher=note, is_alone=False))
            with contextlib.suppress(asyncio.CancelledError):
                await running
            assert running.cancelled()

        asyncio.run(exchange())
        assert is_gone(pids[0])


def test_the_answer_is_streamed(talk: ScriptedGateway) -> None:
    heard = talked(talk, moving(*(["event", event] for event in events_of(ANSWER))))
    assert heard.answer == heard.shown == ANSWER.text


def is_gone(pid: int) -> bool:
    """Whether a process has ended; one that was killed may take a moment to be gone."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, 0)
            if _is_zombie(pid):
                return True
            time.sleep(0.01)
            continue
        return True
    return False


def _is_zombie(pid: int) -> bool:
    """Ended, and only not yet asked for by whoever inherited it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return False

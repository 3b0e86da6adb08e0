"""`CommandAgent` with real programs that behave well and badly."""

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
from tertulia.agents import CommandAgent, CommandAgentOptions, Delta, Event, Limits, Tool
from tertulia.agents.base import NO_PARAMETERS
from tertulia.testing.agent_contract import ANSWER, call_step, echo
from tertulia.testing.scripted_gateway import ScriptedGateway
from tests.agents.agent_fixtures import (
    TIMEOUT_SECONDS,
    command_agent,
    program_moves,
    protocol_events,
    run_turn,
)

pytestmark = pytest.mark.check

if os.name == "nt":
    pytest.skip("programs are ended as process groups", allow_module_level=True)


def agent_of(command: list[str]) -> CommandAgent:
    return CommandAgent(CommandAgentOptions(command=command))  # type: ignore[arg-type]


STEP = ["event", {"type": "step", "text": "done"}]


@pytest.fixture
def gateway(tmp_path: Path) -> ScriptedGateway:
    return ScriptedGateway(tmp_path, tools=(echo(),))


def test_program_gets_the_whole_request(gateway: ScriptedGateway) -> None:
    assert run_turn(gateway, command_agent(STEP), "before").answer == "done"
    request = json.loads(run_turn(gateway, command_agent(["repeat"]), "and now?").answer or "")
    assert request["type"] == "request"
    assert request["text"] == "and now?"
    assert request["platform"] == "telegram"
    assert request["key"] == "agent:main:telegram:dm:42"
    assert request["session_id"]
    assert request["system"].startswith("## Current Session Context")
    assert [message["content"] for message in request["history"]] == ["before", "done", "and now?"]
    (tool,) = request["tools"]
    assert (tool["name"], tool["parameters"]["required"]) == ("echo", ["word"])


def test_history_has_the_configured_format(gateway: ScriptedGateway) -> None:
    agent = command_agent(["repeat"], format="anthropic")
    (message,) = json.loads(run_turn(gateway, agent).answer or "")["history"]
    assert message["content"] == [{"type": "text", "text": "hello"}]


def test_request_larger_than_a_pipe_buffer(gateway: ScriptedGateway) -> None:
    text = "long " * 40_000  # the request has it twice, and the pipe holds 64 kB
    assert (
        json.loads(run_turn(gateway, command_agent(["repeat"]), text).answer or "")["text"] == text
    )


def test_invalid_characters_are_replaced_in_requests(gateway: ScriptedGateway) -> None:
    request = json.loads(run_turn(gateway, command_agent(["repeat"]), "half \ud83d").answer or "")
    assert request["text"] == "half \ufffd"


def test_usage_notes_and_steering(gateway: ScriptedGateway) -> None:
    async def wait(arguments: dict[str, Any]) -> str:
        gateway.meanwhile.append("make it two")
        return "waited"

    gateway.tools = (Tool("wait", "Waits.", NO_PARAMETERS, wait),)
    usage = {"input": 5, "output": 2, "model": "own", "cost_usd": 0.25}
    agent = command_agent(
        ["event", {"type": "note", "text": "one moment"}],
        ["event", {"type": "spent", "usage": {"input": 1}}],
        *program_moves([call_step(("wait", "{}"))]),
        ["event", {"type": "step", "text": "done", "usage": usage, "unknown": 1}],
    )
    recorded = run_turn(gateway, agent)
    assert recorded.answer == "done"
    assert recorded.notes == ["one moment", "heard make it two"]
    assert recorded.usages == [Usage(1), Usage(5, 2, model="own", cost_usd=0.25)]


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
def test_invalid_line_is_shown_in_the_error(
    gateway: ScriptedGateway, line: str, shown: str | None
) -> None:
    recorded = run_turn(gateway, command_agent(["line", line], STEP))
    if shown is None:
        assert recorded.answer == "done"
        return
    assert type(recorded.problem) is AgentFailed
    assert shown in recorded.problem.message
    assert len(recorded.problem.message) < 500
    assert "one event" in (recorded.problem.hint or "")


def test_empty_answer_fails(gateway: ScriptedGateway) -> None:
    recorded = run_turn(gateway, command_agent(["event", {"type": "step", "text": " "}]))
    assert "empty answer" in str(recorded.problem)


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("failed", AgentFailed),
        ("unavailable", AgentUnavailable),
        ("timeout", AgentTimeout),
        ("overflow", ContextOverflow),
    ],
)
def test_reported_error_is_raised(
    gateway: ScriptedGateway, kind: str, error: type[AgentError]
) -> None:
    error_event = {"type": "error", "message": "no luck", "hint": "Pray.", "kind": kind}
    recorded = run_turn(gateway, command_agent(["event", error_event]))
    assert type(recorded.problem) is error
    assert (recorded.problem.message, recorded.problem.hint) == ("no luck", "Pray.")


def test_program_that_exits_before_answering(
    gateway: ScriptedGateway, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "tertulia.agents.command")
    half = ["event", {"type": "delta", "text": "I would"}]
    recorded = run_turn(
        gateway, command_agent(half, ["stderr", "first"], ["stderr", "no model"], ["exit", 3])
    )
    assert type(recorded.problem) is AgentFailed
    assert "ended with 3" in recorded.problem.message
    assert "no model" in recorded.problem.message
    assert recorded.problem.exit_code == 3
    assert recorded.problem.partial == "I would"
    assert [record.getMessage().rpartition(": ")[2] for record in caplog.records] == [
        "first",
        "no model",
    ]


def test_program_that_exits_with_0_without_an_answer(gateway: ScriptedGateway) -> None:
    recorded = run_turn(gateway, command_agent(["close"], ["exit", 0]))
    assert "before it had answered" in str(recorded.problem)


def test_failure_after_the_answer_is_ignored(gateway: ScriptedGateway) -> None:
    assert run_turn(gateway, command_agent(STEP, ["exit", 1])).answer == "done"


def test_last_line_needs_no_line_end(gateway: ScriptedGateway, tmp_path: Path) -> None:
    script = tmp_path / "agent.sh"
    script.write_text('printf \'{"type": "step", "text": "done"}\'\n')
    assert run_turn(gateway, agent_of(["sh", str(script)])).answer == "done"


def test_program_that_cannot_be_started(gateway: ScriptedGateway, tmp_path: Path) -> None:
    recorded = run_turn(gateway, agent_of([str(tmp_path / "nothing-here"), "sk-secret"]))
    assert type(recorded.problem) is AgentFailed
    assert "nothing-here" in recorded.problem.message
    assert "sk-secret" not in str(recorded.problem) + repr(agent_of(["a", "sk-secret"]))


@pytest.mark.parametrize("command", ["python my_agent.py", []])
def test_command_must_be_a_list(command: Any) -> None:
    with pytest.raises(ConfigError, match="list"):
        agent_of(command)


def test_variables_are_added_to_those_of_the_gateway(
    gateway: ScriptedGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INHERITED", "a")
    script = """printf '{"type": "step", "text": "%s%s"}' "$INHERITED" "$OWN" """
    options = CommandAgentOptions(command=("sh", "-c", script), variables={"OWN": "b"})
    assert run_turn(gateway, CommandAgent(options)).answer == "ab"


def test_silent_program_times_out(gateway: ScriptedGateway) -> None:
    recorded = run_turn(gateway, command_agent(["hang"], limits=Limits(first_byte=0.3)))
    assert isinstance(recorded.problem, AgentTimeout)


def test_endless_output_ends_at_the_size_limit(gateway: ScriptedGateway) -> None:
    recorded = run_turn(gateway, command_agent(["flood"], limits=Limits(size=50_000)))
    assert isinstance(recorded.problem, AgentFailed)
    assert "50000 bytes" in recorded.problem.message


def test_steps_are_limited(gateway: ScriptedGateway) -> None:
    moves = program_moves([call_step(("echo", '{"word": "a"}'))] * 3)
    recorded = run_turn(gateway, command_agent(*moves, max_steps=2))
    assert "I stopped after 2 steps" in (recorded.answer or "")
    assert len(recorded.results) == 2


class TestTermination:
    """No process of a program outlives its run."""

    def test_stop_kills_a_program_that_ignores_sigterm(self, gateway: ScriptedGateway) -> None:
        async def stop(event: Event) -> None:
            gateway.stop.set()

        recorded = run_turn(
            gateway, command_agent(["hang_on_term"], grace_seconds=0.1), watcher=stop
        )
        assert isinstance(recorded.problem, AgentStopped)
        assert recorded.problem.partial == recorded.shown
        assert is_gone(int(recorded.shown))

    def test_child_processes_end_with_the_program(self, gateway: ScriptedGateway) -> None:
        recorded = run_turn(gateway, command_agent(["leave_child"], STEP))
        child = int(recorded.shown)
        assert recorded.answer == "done"
        assert is_gone(child)

    def test_cancelled_run_kills_the_program(self, gateway: ScriptedGateway) -> None:
        pids: list[int] = []

        async def exchange() -> None:
            async def note(event: Event) -> None:
                assert isinstance(event, Delta)
                pids.append(int(event.text))
                running.cancel()

            agent = command_agent(["hang_on_term"], grace_seconds=0.1)
            running = asyncio.ensure_future(
                gateway.say(agent, "hello", watcher=note, is_alone=False)
            )
            with contextlib.suppress(asyncio.CancelledError):
                await running
            assert running.cancelled()

        asyncio.run(exchange())
        assert is_gone(pids[0])


def test_answer_is_streamed(gateway: ScriptedGateway) -> None:
    recorded = run_turn(
        gateway, command_agent(*(["event", event] for event in protocol_events(ANSWER)))
    )
    assert recorded.answer == recorded.shown == ANSWER.text


def is_gone(pid: int) -> bool:
    """Return whether a process has ended; a killed process may take a moment."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
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
    """Return whether a process has ended and only waits to be reaped by its parent."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return False

"""Texts about background programs for people and agents."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Final

from tertulia.core.text.prompt_safe import clean_for_prompt
from tertulia.records.processes import Process

if TYPE_CHECKING:
    from tertulia.processes.output_files import OutputChunk

NOTICE_LENGTH: Final = 1_500
"""Maximum characters of output in one notice to a conversation."""

_COMMAND_LENGTH = 60


def label(process: Process) -> str:
    """Return the id and the shortened command of a program."""
    return f"{process.id} ({clean_for_prompt(process.command, _COMMAND_LENGTH)})"


def format_state(process: Process) -> str:
    """Return the state of a program in a few words."""
    if process.is_alive:
        return "running"
    if process.state == "lost":
        return "lost; its exit code is unknown"
    ended = "ended by request" if process.state == "killed" else "ended"
    return f"{ended}, {_exit_text(process.exit_code)}"


def format_line(process: Process) -> str:
    """Return one line about a program, for a list."""
    if process.is_alive or process.ended_at is None:
        return (
            f"{label(process)}: {format_state(process)} since {process.began_at:%Y-%m-%d %H:%M} UTC"
        )
    return f"{label(process)}: {format_state(process)}, at {process.ended_at:%Y-%m-%d %H:%M} UTC"


def end_notice(process: Process, chunk: OutputChunk, remark: str = "") -> str:
    """Return the notice that a program has ended, with its unreported output."""
    if process.state == "lost":
        head = f"The program {label(process)} is gone; its exit code is unknown."
    else:
        head = f"The program {label(process)} has ended, {_exit_text(process.exit_code)}."
    return _with_output(f"{head} {remark}".rstrip(), chunk, process.told)


def never_started_notice(process: Process) -> str:
    """Return the notice that a program was recorded but never started."""
    return f"The program {label(process)} was never started: the gateway was lost at that moment."


def recovered_notice(process: Process) -> str:
    """Return the notice that a program still runs after a restart of the gateway."""
    return f"The gateway was restarted. The program {label(process)} is still running."


def output_notice(process: Process, chunk: OutputChunk) -> str:
    """Return the notice of new output of a running program."""
    return _with_output(f"The program {label(process)} is running.", chunk, process.told)


def shortened_wait_note(requested: float, allowed: float) -> str:
    """Return the note that a wait is shorter than requested."""
    return f"{requested:g} seconds were requested; {allowed:g} is the maximum wait in one call."


def still_running_note(waited: float, note: str, *, was_stopped: bool) -> str:
    """Return the note of a wait that ended before the program; `note` goes before it."""
    if was_stopped:
        return "The wait was interrupted; the program is still running."
    text = f"After {waited:g} seconds it is still running; it continues, and you can wait again."
    return f"{note} {text}".strip()


def fence(text: str) -> str:
    """Return output as a code block that no text in it can close."""
    marker = "```"
    while marker in text:
        marker += "`"
    return f"{marker}\n{text.rstrip()}\n{marker}"


def _with_output(head: str, chunk: OutputChunk, reported: int) -> str:
    """Return a notice with output; output before the position `reported` was reported earlier."""
    if not chunk.text.strip():
        return head
    left_out = (chunk.start - reported) + (chunk.total - chunk.end)
    more = f" {left_out:,} bytes more are in its log." if left_out > 0 else ""
    return f"{head}{more}\n{fence(chunk.text)}"


def _exit_text(exit_code: int | None) -> str:
    if exit_code is None:
        return "exit code unknown"
    if exit_code >= 0:
        return f"exit code {exit_code}"
    try:
        return f"by {signal.Signals(-exit_code).name}"
    except ValueError:
        return f"by signal {-exit_code}"

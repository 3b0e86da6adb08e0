"""What people and agents are told of programs."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Final

from tertulia.core.text.prompt_safe import plain
from tertulia.records.processes import Process

if TYPE_CHECKING:
    from tertulia.processes.output_files import OutputChunk

TOLD: Final = 1_500
"""How many characters of output are told to a conversation at once."""

_COMMAND = 60


def name(process: Process) -> str:
    return f"{process.id} ({plain(process.command, _COMMAND)})"


def state(process: Process) -> str:
    """How a program stands, in a few words."""
    if process.is_alive:
        return "running"
    if process.state == "lost":
        return "lost; nobody can say how it ended"
    how = "ended by request" if process.state == "killed" else "ended"
    return f"{how}, {_code(process.exit_code)}"


def line(process: Process) -> str:
    """One line for a list."""
    if process.is_alive or process.ended_at is None:
        return f"{name(process)}: {state(process)} since {process.began_at:%Y-%m-%d %H:%M} UTC"
    return f"{name(process)}: {state(process)}, at {process.ended_at:%Y-%m-%d %H:%M} UTC"


def ended(process: Process, piece: OutputChunk, remark: str = "") -> str:
    if process.state == "lost":
        head = f"The program {name(process)} is gone, and nobody can say how it ended."
    else:
        head = f"The program {name(process)} has ended, {_code(process.exit_code)}."
    return _with(f"{head} {remark}".rstrip(), piece, process.told)


def never_began(process: Process) -> str:
    return f"The program {name(process)} was never started: the gateway was lost at that moment."


def found_again(process: Process) -> str:
    return f"The gateway was started anew. The program {name(process)} is still running."


def new_output(process: Process, piece: OutputChunk) -> str:
    return _with(f"The program {name(process)} is running.", piece, process.told)


def shortened(asked: float, allowed: float) -> str:
    return (
        f"{asked:g} seconds were asked for; {allowed:g} is the longest that is waited in one call."
    )


def still_running(waited: float, note: str, *, was_stopped: bool) -> str:
    if was_stopped:
        return "The waiting was interrupted; the program is still running."
    told = f"After {waited:g} seconds it is still running; it goes on, and can be waited for again."
    return f"{note} {told}".strip()


def fenced(text: str) -> str:
    """Output as a block that nothing in it can leave."""
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}\n{text.rstrip()}\n{fence}"


def _with(head: str, piece: OutputChunk, told: int) -> str:
    if not piece.text.strip():
        return head
    left_out = (piece.start - told) + (piece.total - piece.end)
    more = f" {left_out:,} bytes more are in its log." if left_out > 0 else ""
    return f"{head}{more}\n{fenced(piece.text)}"


def _code(exit_code: int | None) -> str:
    if exit_code is None:
        return "exit code unknown"
    if exit_code >= 0:
        return f"exit code {exit_code}"
    try:
        return f"by {signal.Signals(-exit_code).name}"
    except ValueError:
        return f"by signal {-exit_code}"

"""Approvals: which tool calls run at once, which a person is asked for, and which never run.

`decide` is pure. A rule that denies wins; then the most specific rule; then the default of the
tool. There is no list of dangerous commands: it would never be complete.
"""

from __future__ import annotations

import hashlib
import json
import unicodedata
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any, Final, Literal

import msgspec

from tertulia.core.message import ToolCall, from_json
from tertulia.errors import ConfigError

Decision = Literal["allow", "ask", "deny"]
Scope = Literal["once", "session", "always"]
SCOPES: tuple[Scope, ...] = ("once", "session", "always")
Unattended = Literal["decline", "owner"]

TERMINAL: Final = "terminal"
# Longer arguments would not be read before they are approved: such a call is declined.
MAX_SHOWN: Final = 20_000
# The actions of the tool `process` that change something.
_WRITES: Final = ("kill", "write", "submit")
_PATTERN_CHARACTERS: Final = "*?["
# Letters and symbols that look blank.
_BLANK: Final = frozenset("\u115f\u1160\u3164\uffa0\u2800\u034f\u17b4\u17b5")
# Ranges of marks that can carry a hidden text.
_SELECTORS: Final = (
    (0x180B, 0x180F),
    (0xFE00, 0xFE0F),
    (0xE0000, 0xE0FFF),
)
_ESCAPED_CATEGORIES: Final = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs")


class ApprovalRule(msgspec.Struct, frozen=True, kw_only=True):
    """A rule of the configuration about calls of tools.

    tool       the name of the tool; * and ? stand for any characters
    command    for terminal: the exact command the rule is about; default: every command
    role       whose calls the rule is about: owner, member or guest; default: everybody's
    decision   allow, ask or deny
    """

    tool: str
    decision: Decision
    command: str | None = None
    role: Literal["owner", "member", "guest"] | None = None

    def __post_init__(self) -> None:
        if not self.tool:
            raise ConfigError("A rule names no tool.", hint='Use: tool = "terminal"', field="tool")
        if self.command is not None and self.tool != TERMINAL:
            raise ConfigError(
                f"The tool {self.tool!r} has no commands.",
                hint='Leave command out, or use: tool = "terminal"',
                field="command",
            )

    def matches(self, tool: str, arguments: Mapping[str, Any], role: str) -> bool:
        """Return whether the rule is about this call."""
        return (
            fnmatchcase(tool, self.tool)
            and self.role in (None, role)
            and self.command in (None, arguments.get("command"))
        )

    @property
    def specificity(self) -> tuple[bool, bool, bool, int]:
        """How precisely the rule names its calls; of two rules the higher value counts."""
        is_exact = not any(char in self.tool for char in _PATTERN_CHARACTERS)
        return self.command is not None, is_exact, self.role is not None, len(self.tool)


class ApprovalSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Approvals: which calls of tools a person has to allow.

    rules        the rules; without one, terminal asks, process asks to kill and to write, and other
                 tools run
    minutes      how long a call waits for an answer
    unattended   calls of schedules, webhooks and the HTTP API that would ask: decline them, or ask
                 in the home chat of the owner (owner)
    """

    rules: tuple[ApprovalRule, ...] = ()
    minutes: float = 60
    unattended: Unattended = "decline"

    def __post_init__(self) -> None:
        if not 0 < self.minutes <= 7 * 24 * 60:
            raise ConfigError(
                f"minutes cannot be {self.minutes!r}.",
                hint="Use a number above 0, up to a week.",
                field="minutes",
            )


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    """Calls that somebody has allowed for longer: of a tool, or of one command of terminal."""

    id: int
    person: str
    tool: str
    command: str | None = None
    session_id: str | None = None

    def covers(self, tool: str, arguments: Mapping[str, Any]) -> bool:
        """Return whether a call needs no further approval."""
        return self.tool == tool and self.command in (None, arguments.get("command"))


def decide(
    tool: str,
    arguments: Mapping[str, Any],
    role: str,
    rules: Iterable[ApprovalRule],
    *,
    asks: bool = False,
) -> Decision:
    """Return whether a call runs, has to be approved, or never runs.

    `asks` is the default of a tool that is not one of our own.
    """
    matching = [rule for rule in rules if rule.matches(tool, arguments, role)]
    if any(rule.decision == "deny" for rule in matching):
        return "deny"
    if matching:
        best = max(rule.specificity for rule in matching)
        decisions = {rule.decision for rule in matching if rule.specificity == best}
        return "ask" if "ask" in decisions else "allow"
    is_write = tool == "process" and arguments.get("action") in _WRITES
    return "ask" if asks or tool == TERMINAL or is_write else "allow"


def grant_command(tool: str, arguments: Mapping[str, Any]) -> str | None:
    """Return the command that a longer approval of this call is limited to, or None."""
    command = arguments.get("command")
    return command if tool == TERMINAL and isinstance(command, str) else None


def digest_call(session_id: str, turn: int, call: ToolCall) -> str:
    """Return the hash of a call: an approval is for this call with these arguments only."""
    arguments = arguments_of(call)
    parts = [
        session_id,
        turn,
        call.id,
        call.name,
        call.arguments if arguments is None else arguments,
    ]
    text = json.dumps(parts, sort_keys=True, ensure_ascii=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def arguments_of(call: ToolCall) -> dict[str, Any] | None:
    """Return the arguments of a call, or None if they are not a JSON object."""
    arguments: Any = call.arguments
    if isinstance(arguments, str):
        try:
            arguments = from_json(arguments.strip() or "{}")
        except (ValueError, RecursionError):
            return None
    return dict(arguments) if isinstance(arguments, Mapping) else None


def show_arguments(arguments: Mapping[str, Any]) -> str:
    """Return the arguments as JSON in which every invisible character is written as an escape."""
    text = json.dumps(arguments, ensure_ascii=False, indent=2, default=str)
    return "\n".join(escape_invisible(line) for line in text.split("\n"))


def escape_invisible(text: str) -> str:
    """Return the text with each character that cannot be seen, except a space, as an escape."""
    return "".join(_escape(char) if _is_invisible(char) else char for char in text)


def _is_invisible(char: str) -> bool:
    if " " <= char <= "~":
        return False
    code = ord(char)
    if char in _BLANK or any(first <= code <= last for first, last in _SELECTORS):
        return True
    return unicodedata.category(char) in _ESCAPED_CATEGORIES


def _escape(char: str) -> str:
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))

"""Write the tables of `docs/access.md` from the code. A test compares them.

    python scripts/make_access.py

Each table stands between two marks; the text around them is written by hand.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from tertulia.gateway import access, commands, schedule_tool
from tertulia.http.operations import TABLE as OPERATIONS
from tertulia.processes.settings import ProcessSettings
from tertulia.records.people import ROLES, Role

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "docs/access.md"
_TABLE = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)

# Rules that a command applies beyond its role.
_NOTES = {
    "forget": "in a conversation that a group shares: owner",
    "schedule": "a target other than this chat: owner, asked again at every run",
    "link": "in direct messages only; the other chat confirms",
    "retry": "only one's own message, in a conversation that a group shares",
    "search": "only what this person may see",
}


def write_commands() -> str:
    """Return the table of the chat commands."""
    rows = [
        [f"`{command.usage.replace('|', chr(92) + '|')}`", *_marks(command.role),
         _NOTES.get(command.name, "")]
        for command in commands.TABLE
    ]  # fmt: skip
    return _table(["command", *ROLES, "besides"], rows)


def write_operations() -> str:
    """Return the table of the operations of the HTTP API."""
    rows = [
        [f"`{operation.method} {operation.path}`", *_marks(operation.role or "guest"),
         "no token" if operation.role is None else ""]
        for operation in OPERATIONS
    ]  # fmt: skip
    return _table(["operation", *ROLES, "besides"], rows)


def write_tools() -> str:
    """Return the table of the tools that the gateway offers to the agent."""
    lowest = {
        "`schedule`": schedule_tool.ROLE,
        "`terminal`, `process`": ProcessSettings().role,
    }
    notes = {"`terminal`, `process`": "off by default; the role is a setting: `processes.role`"}
    rows = [[name, *_marks(role), notes.get(name, "")] for name, role in lowest.items()]
    return _table(["tool", *ROLES, "besides"], rows)


def write_platforms() -> str:
    """Return the table of where the role of a person comes from."""
    tokens = ", ".join(f"`{name}`" for name in access.TOKEN_PLATFORMS)
    rows = [
        ["`local` (the terminal)", "always owner"],
        [tokens, ("the token's role under `http.tokens`; without a token: guest. On `web` a guest"
         " whom the owner approved is a member")],
        ["every other", ("owner if listed in `owners`; else the role stored by `/pair`,"
         " `tertulia pair` or `PUT /people/PERSON/role`; else member if listed in `allow`; else"
         " guest")],
    ]  # fmt: skip
    return _table(["platform", "role"], rows)


WRITERS: dict[str, Callable[[], str]] = {
    "platforms": write_platforms,
    "commands": write_commands,
    "operations": write_operations,
    "tools": write_tools,
}


def generate(page: str) -> str:
    """Return the page with every table as it should be."""
    return _TABLE.sub(lambda match: f"{match[1]}\n{WRITERS[match[2]]()}\n{match[3]}", page)


def _marks(role: Role) -> list[str]:
    """Return a mark for each role that may: the role itself and the higher ones."""
    return ["yes" if ROLES.index(other) <= ROLES.index(role) else "–" for other in ROLES]


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def main() -> None:
    """Write the tables of the page again."""
    TARGET.write_text(generate(TARGET.read_text("utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()

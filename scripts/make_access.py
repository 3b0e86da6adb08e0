"""Write the tables of `docs/access.md` from the code. A test compares them.

    python scripts/make_access.py

Each table stands between two marks; the text around them is written by hand.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

from tertulia.console.app import PAGES
from tertulia.core import pairing_code
from tertulia.gateway import access, commands, memory_tool, schedule_tool
from tertulia.http.operations import TABLE as OPERATIONS
from tertulia.mcp.settings import McpServerSettings
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
    "approve": "one's own calls; an owner all",
    "deny": "one's own calls; an owner all",
    "approvals": "one's own calls; an owner all",
    "memory": "in direct messages only: what is remembered of oneself",
    "agent": "an agent may need a higher role: `role` under `agents`",
}


def write_commands() -> str:
    """Return the table of the chat commands."""
    rows = [
        [f"`{command.usage.replace('|', chr(92) + '|')}`", *_marks(command.role),
         _NOTES.get(command.name, "–")]
        for command in commands.TABLE
    ]  # fmt: skip
    return _table(["command", *ROLES, "besides"], rows)


def write_operations() -> str:
    """Return the table of the operations of the HTTP API."""
    rows = [
        [f"`{operation.method} {operation.path}`", *_marks(operation.role or "guest"),
         "no token" if operation.role is None else "–"]
        for operation in OPERATIONS
    ]  # fmt: skip
    return _table(["operation", *ROLES, "besides"], rows)


def write_tools() -> str:
    """Return the table of the tools that the gateway offers to the agent."""
    programs, servers = "`terminal`, `process`", "those of MCP servers"
    lowest = {
        "`schedule`": schedule_tool.ROLE,
        "`memory`": memory_tool.ROLE,
        programs: ProcessSettings().role,
        servers: McpServerSettings(command=("x",)).role,
    }
    notes = {
        "`memory`": "in direct messages only",
        programs: "off by default; the role is a setting: `processes.role`",
        servers: "the role is a setting: `mcp.servers.NAME.role`",
    }
    rows = [[name, *_marks(role), notes.get(name, "–")] for name, role in lowest.items()]
    return _table(["tool", *ROLES, "besides"], rows)


def write_pages() -> str:
    """Return the table of the pages of the console."""
    rows = [[f"`/console{page.path}`", page.title, *_marks(page.role)] for page in PAGES]
    return _table(["page", "title", *ROLES], rows)


def write_pairing() -> str:
    """Return the table of the limits of codes."""
    lifetime = _duration(pairing_code.LIFETIME)
    rows = [
        ["a code is valid for", lifetime],
        ["codes for one person",
         f"1 at a time, a new one after {_duration(pairing_code.MIN_INTERVAL)}"],
        ["codes pending on a platform",
         f"{pairing_code.MAX_PENDING}; a further one replaces the oldest"],
        ["wrong codes of one person",
         f"{pairing_code.MAX_WRONG_TRIES} within {lifetime}, then none is accepted for that time"],
        ["a person whom the owner refused gets no code for", _duration(pairing_code.REFUSAL)],
    ]  # fmt: skip
    return _table(["pairing", "limit"], rows)


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
    "pairing": write_pairing,
    "operations": write_operations,
    "pages": write_pages,
    "tools": write_tools,
}


def generate(page: str) -> str:
    """Return the page with every table as it should be."""
    return _TABLE.sub(lambda match: f"{match[1]}\n{WRITERS[match[2]]()}\n{match[3]}", page)


def _marks(role: Role) -> list[str]:
    """Return a mark for each role that may: the role itself and the higher ones."""
    return ["yes" if ROLES.index(other) <= ROLES.index(role) else "–" for other in ROLES]


def _duration(time: timedelta) -> str:
    hours, minutes = divmod(int(time.total_seconds()) // 60, 60)
    return f"{hours} h" if not minutes else f"{hours * 60 + minutes} min"


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def main() -> None:
    """Write the tables of the page again."""
    TARGET.write_text(generate(TARGET.read_text("utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()

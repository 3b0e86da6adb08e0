"""Write the pages on commands, errors and HTTP operations from the code. A test compares them.

python scripts/make_pages.py
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from tertulia import errors
from tertulia.cli.errors import exit_code
from tertulia.gateway import commands
from tertulia.http.errors import status_of
from tertulia.http.operations import TABLE as OPERATIONS

ROOT = Path(__file__).resolve().parent.parent

# The next step for each error. What was wrong in a case at hand is in its message and hint.
WHAT_TO_DO = {
    "error": "read the message",
    "config": "correct the setting or the argument that `field` names",
    "not_found": "look for it: `tertulia sessions list`",
    "conflict": "read again, then decide again",
    "session_busy": "try again after a moment, or wait with `wait=`",
    "stale_write": "read the row again, then write again",
    "lease_lost": "stop: another program has taken over this session",
    "duplicate": "use another name or id",
    "illegal_move": "read the message: the state does not allow it",
    "store": "read the message; nothing was stored",
    "store_unavailable": "look at the hint; the same call may succeed later",
    "store_full": "free some space, then try again",
    "store_corrupt": "keep the file, run `tertulia store check`, [restore](backup.md#restore)",
    "not_a_store": "name another file; this one was not changed",
    "schema_mismatch": "[upgrade](upgrading.md) this program; the store was not changed",
    "platform": "look at `tertulia platforms list` and the log",
    "platform_unavailable": "nothing: it is tried again",
    "recipient_away": "nothing: it waits until somebody is there",
    "rate_limited": "nothing: it waits as long as the platform asks",
    "too_large": "send less, or a smaller file",
    "refused": "the delivery is dead: `tertulia deliveries list`",
    "outcome_unknown": "look in the chat, then `tertulia deliveries settle` or `retry`",
    "account_problem": "renew the token of the account: `tertulia platforms check NAME`",
    "agent": "read the message",
    "agent_timeout": "try again, or raise `agent.limits`",
    "agent_stopped": "nothing: somebody asked for it",
    "agent_unavailable": "try again later; look whether the model's server runs",
    "agent_failed": "`tertulia doctor`: the key, the model or the program is wrong",
    "context_overflow": "`/compress`, or lower `agent.history_tokens`",
    "process_check_failed": "repair the function `has_active_processes` that the program set",
    "place_unavailable": "look whether the SSH host or Docker can be reached",
    "access_denied": "ask the owner for the [role](access.md)",
    "budget_exceeded": "wait for the next period, or raise the [budget](costs.md)",
    "limit_exceeded": "try again after `retry_after` seconds",
}

_COMMANDS_HEAD = """\
# Chat commands

What you can write to the agent on every platform that has text: in the terminal, on Telegram, on
Matrix. A command that a platform has in a menu is the same. This page is written from the code:
`python scripts/make_pages.py`.

```console
$ printf 'hello\\n/title My garden\\n/status\\n' | tertulia chat
```

`[…]` may be left out, `A|B` is a choice. [Access](access.md#chat-commands) lists who may use which.
"""

_TERMINAL_COMMANDS = """
## In the terminal only

| command | what it does |
|---|---|
| `/attach FILE…` | send files with the next message; `@path` in it does the same |
| `/detach [NUMBER]` | do not send a file, or any |
| `/thinking [on\\|off]` | show or hide what the model thinks, while it does |
| `/quit` | leave; ctrl-D does the same |

[Terminal](run.md) has its keys.
"""

_ERRORS_HEAD = """\
# Errors

Every error of the library, with its `code`, which never changes. The message says what was wrong,
the hint what to do next. This page is written from the code: `python scripts/make_pages.py`.

```python
import tertulia

try:
    tertulia.open("talk.db", settings=tertulia.Settings(zone="Europe/Sevilla"))
except tertulia.Error as error:
    assert (error.code, error.retryable) == ("config", False)
    print(error.message, error.hint)
```

Code that tries again reads `retryable`, and `retry_after` if it is set, and nothing else. On the
command line an error is one line on the standard error output and an [exit code](cli.md#output);
over HTTP it is `{"error": {"message", "type", "code", "hint", "param"}}` with the status of this
table. [Troubleshooting](troubleshooting.md) goes from what you see to the reason.

| class | `code` | meaning | retryable | exit code | HTTP | what to do |
|---|---|---|---|---|---|---|
"""

_HTTP_HEAD = """\
# HTTP API reference

Every operation of the [HTTP API](http.md). A running gateway describes itself in full, with the
types of all fields, at `GET /openapi.json`. There is no page at `/docs`: open that file in any
viewer for OpenAPI. This page is written from the code: `python scripts/make_pages.py`.

<!-- not run: needs a running gateway -->
```console
$ curl -sf http://127.0.0.1:8460/openapi.json > tertulia.openapi.json
```

The role is the lowest that may use the operation; *no token* needs none. Fields that end in `?`
may be left out.
"""


def commands_page() -> str:
    """Return docs/commands.md."""
    lines = [_COMMANDS_HEAD.rstrip(), "", "| command | what it does | also | role |"]
    lines.append("|---|---|---|---|")
    for command in commands.TABLE:
        usage = command.usage.replace("|", "\\|")
        also = ", ".join(f"`/{alias}`" for alias in command.aliases) or "–"
        lines.append(f"| `{usage}` | {command.description} | {also} | {command.role} |")
    return "\n".join(lines) + "\n" + _TERMINAL_COMMANDS


def error_classes() -> Iterator[type[errors.Error]]:
    """Yield every error class, each before its subclasses."""
    pending = [errors.Error]
    while pending:
        kind = pending.pop(0)
        if kind.__module__ == errors.__name__:
            yield kind
            pending = [*kind.__subclasses__(), *pending]


def errors_page() -> str:
    """Return docs/errors.md."""
    rows = []
    for kind in error_classes():
        problem = kind()
        meaning = " ".join((kind.__doc__ or "").split()).rstrip(".")
        status, _ = status_of(problem)
        retryable = "yes" if kind.retryable else "no"
        action = WHAT_TO_DO[kind.code]
        rows.append(
            f"| `{kind.__name__}` | `{kind.code}` | {meaning} | {retryable} |"
            f" {exit_code(problem)} | {status} | {action} |"
        )
    return _ERRORS_HEAD + "\n".join(rows) + "\n"


def http_page() -> str:
    """Return docs/http-reference.md."""
    lines = [_HTTP_HEAD.rstrip(), ""]
    lines += ["| operation | what it does | role | takes |", "|---|---|---|---|"]
    for operation in OPERATIONS:
        parts = [
            f"{word}: {', '.join(_fields(kind))}"
            for word, kind in (("query", operation.query), ("body", operation.body))
            if kind is not None and issubclass(kind, msgspec.Struct)
        ]
        lines.append(
            f"| `{operation.method} {operation.path}` | {operation.summary.rstrip('.')} |"
            f" {operation.role or 'no token'} | {'; '.join(parts) or 'nothing'} |"
        )
    return "\n".join(lines) + "\n"


def _fields(kind: Any) -> list[str]:
    fields = msgspec.structs.fields(kind)
    return [f"`{field.encode_name}{'' if field.required else '?'}`" for field in fields]


PAGES: dict[str, Callable[[], str]] = {
    "commands.md": commands_page,
    "errors.md": errors_page,
    "http-reference.md": http_page,
}


if __name__ == "__main__":
    for name, write in PAGES.items():
        (ROOT / "docs" / name).write_text(write(), "utf-8")

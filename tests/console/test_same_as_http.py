"""What the console can do, a program can do over HTTP: its pages and buttons run operations."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from tertulia.console.form_actions import ACTIONS
from tertulia.http.operations import BY_NAME
from tests.http.server_process import ROOT

CONSOLE: Final = ROOT / "src" / "tertulia" / "console"
REFERENCE: Final = (ROOT / "docs" / "http-reference.md").read_text("utf-8")
# What a page takes from the store itself: the time, and whether anything has changed.
ALLOWED: Final = {"now", "count_changes"}


def sources() -> dict[Path, str]:
    return {path: path.read_text("utf-8") for path in CONSOLE.glob("*.py")}


def test_every_page_and_button_runs_documented_operations() -> None:
    named = {action.operation for action in ACTIONS.values()}
    for text in sources().values():
        named |= set(re.findall(r"operate\(\s*\"(\w+)\"", text))
    assert len(named) > 50
    for name in sorted(named):
        operation = BY_NAME[name]
        assert operation.role is not None, name  # it checks whose request it is
        assert f"`{operation.method} {operation.path}`" in REFERENCE, name


def test_every_operation_that_is_called_is_named() -> None:
    """Otherwise the test above would miss some."""
    for path, text in sources().items():
        calls = len(re.findall(r"\.operate\(", text))
        named = len(re.findall(r"\.operate\(\s*(?:\"\w+\"|action\.operation)", text))
        assert calls == named, path


def test_the_console_knows_no_store() -> None:
    for path, text in sources().items():
        used = set(re.findall(r"\bstore\.(\w+)", text))
        assert used <= ALLOWED, path


def test_every_form_of_a_page_is_an_action() -> None:
    posted, buttons = set(), set()
    for path in (CONSOLE / "templates").glob("*.html"):
        text = path.read_text("utf-8")
        posted |= set(re.findall(r"/console/do/(\w+)", text))
        buttons |= set(re.findall(r"button\(\"(\w+)\"", text))
    assert posted | buttons == set(ACTIONS)

"""The page on access says what the code does."""

from __future__ import annotations

import asyncio
import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
from msgspec.structs import replace

from tertulia import Source, aio
from tertulia.agents import ParrotAgent
from tertulia.gateway import commands
from tertulia.gateway.app import Gateway
from tertulia.processes.registry import ProcessRegistry
from tertulia.records.people import ROLES, Role
from tests.docs.markdown import ROOT

PAGE = ROOT / "docs/access.md"


@pytest.fixture(scope="module")
def make_access() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_access", ROOT / "scripts/make_access.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_tables_are_what_the_script_writes(make_access: ModuleType) -> None:
    page = PAGE.read_text("utf-8")
    for name in make_access.WRITERS:
        assert f"<!-- table: {name} -->" in page
    assert page == make_access.generate(page), "run: python scripts/make_access.py"


def test_a_changed_role_changes_the_page(
    make_access: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = PAGE.read_text("utf-8")
    raised = [
        command._replace(role="owner") if command.name == "export" else command
        for command in commands.TABLE
    ]
    monkeypatch.setattr(commands, "TABLE", tuple(raised))
    assert make_access.generate(page) != page


def test_a_changed_operation_changes_the_page(
    make_access: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = PAGE.read_text("utf-8")
    first, *rest = make_access.OPERATIONS
    monkeypatch.setattr(make_access, "OPERATIONS", (replace(first, role="owner"), *rest))
    assert make_access.generate(page) != page


def test_every_tool_of_the_gateway_is_on_the_page(make_access: ModuleType, tmp_path: Path) -> None:
    async def names(role: Role) -> set[str]:
        async with aio.open(tmp_path / "talk.db") as store:
            processes = ProcessRegistry(store.sync, tmp_path / "programs")
            pipeline = Gateway(store, ParrotAgent(), [], processes=processes).pipeline
            source = Source("telegram", "42", user_id="42")
            key = store.sessions.key(source)
            return {tool.name for tool in await pipeline.tools_for(source, key, role)}

    rows = [line.split("|")[1:] for line in make_access.write_tools().splitlines()[2:]]
    for column, role in enumerate(ROLES, 1):
        documented = {
            name for row in rows if row[column].strip() == "yes" for name in row[0].split("`")[1::2]
        }
        assert asyncio.run(names(role)) == documented


def test_a_changed_page_of_the_console_changes_the_page(
    make_access: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = PAGE.read_text("utf-8")
    first, *rest = make_access.PAGES
    monkeypatch.setattr(make_access, "PAGES", (replace(first, role="owner"), *rest))
    assert make_access.generate(page) != page


def test_every_note_is_of_a_command(make_access: ModuleType) -> None:
    assert set(make_access._NOTES) <= {command.name for command in commands.TABLE}

"""The page docs/config.md is generated from the settings classes and complete."""

from __future__ import annotations

import msgspec
import pytest

from tertulia.cli.config_reference import reference
from tertulia.config.load import variables
from tertulia.config.schema import Config
from tertulia.platforms.registry import PLATFORMS, built_in_names
from tertulia.platforms.settings import PlatformSettings

SECTIONS = {part.split("\n", 1)[0]: part for part in reference().split("\n## ")}


def rows_of(name: str) -> list[list[str]]:
    return [line.split(" | ") for line in SECTIONS[name].splitlines() if line.startswith("| `")]


def test_every_section_is_there() -> None:
    for field in msgspec.structs.fields(Config):
        if field.name == "agents":
            assert "[agents.NAME]" in SECTIONS
        elif field.name == "routes":
            assert "[[routes]]" in SECTIONS
        elif field.name != "platforms":
            assert f"[{field.name}]" in SECTIONS
    for name in built_in_names():
        has_own_keys = PLATFORMS[name].settings is not PlatformSettings
        assert (f"[platforms.{name}]" in SECTIONS) == has_own_keys


@pytest.mark.parametrize(
    "name", ["store", "gateway", "agent", "http", "processes", "log", "platforms.webhook"]
)
def test_every_key_has_a_description(name: str) -> None:
    rows = rows_of(f"[{name}]")
    assert rows
    assert [row[0] for row in rows if not row[-1].strip(" |")] == []


def test_every_key_with_a_variable_is_there() -> None:
    for key_path in variables().values():
        *parents, key = key_path
        name = f"[{'.'.join(map(str, parents))}]"
        if key != "kind":  # each of its values has a heading
            assert f"| `{key}`" in [row[0] for row in rows_of(name)]


def test_runtime_only_fields_are_not_there() -> None:
    keys = {row[0] for name in ("[store]", "[gateway]") for row in rows_of(name)}
    assert not keys & {"| `platforms`", "| `has_active_processes`"}


def test_values_and_defaults_are_listed() -> None:
    row = next(line for line in SECTIONS["[log]"].splitlines() if line.startswith("| `level`"))
    assert '"debug"' in row
    assert '`"info"`' in row


def test_every_kind_of_agent_is_there() -> None:
    for kind in ("parrot", "openai", "anthropic", "command", "http"):
        assert f'### kind = "{kind}"' in SECTIONS["[agent]"]

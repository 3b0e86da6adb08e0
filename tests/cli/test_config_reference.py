"""The page docs/config.md is generated from the configuration classes and complete."""

from __future__ import annotations

import msgspec

from tertulia.cli.config_reference import reference
from tertulia.config.schema import PLATFORM_SECTIONS, AgentConfig, Config

SECTIONS = {part.split("\n", 1)[0]: part for part in reference().split("\n## ")}


def test_every_section_is_there() -> None:
    for field in msgspec.structs.fields(Config):
        if field.name != "platforms":
            assert f"[{field.name}]" in SECTIONS
    for name in PLATFORM_SECTIONS:
        assert f"[platforms.{name}]" in SECTIONS


def test_every_key_is_there_with_a_description() -> None:
    rows = [line.split(" | ") for line in SECTIONS["[agent]"].splitlines() if "| `" in line]
    names = [field.name for field in msgspec.structs.fields(AgentConfig)]
    assert [row[0] for row in rows] == [f"| `{name}`" for name in names]
    assert all(row[-1].strip(" |") for row in rows)


def test_values_and_defaults_are_listed() -> None:
    row = next(line for line in SECTIONS["[agent]"].splitlines() if line.startswith("| `kind`"))
    assert '"parrot"' in row
    assert f'`"{AgentConfig().kind}"`' in row

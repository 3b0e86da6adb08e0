from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tertulia import ConfigError, Settings
from tertulia.core.settings import require_zone


def test_defaults_are_valid() -> None:
    settings = Settings()
    assert (settings.agent, settings.durability, settings.lease_seconds) == ("main", "safe", 60)
    assert settings.protection == timedelta(hours=24)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("durability", "fastest"),
        ("agent", ""),
        ("agent", 3),
        ("zone", "Mars/Olympus"),
        ("zone", 3),
        ("lease_seconds", 0),
        ("lease_seconds", "60"),
        ("busy_seconds", float("nan")),
        ("protection_hours", -1),
        ("platforms", "telegram"),
        ("budgets", [{"per": "person"}]),
        ("homes", {"telegram": "42"}),
        ("homes", ["42"]),
        ("policies", {"default": "none"}),
        ("has_active_processes", True),
    ],
)
def test_invalid_value_names_its_field(field: str, value: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        Settings(**{field: value})
    assert caught.value.field == field


def test_zone_of_a_name() -> None:
    assert require_zone("Europe/Madrid").key == "Europe/Madrid"
    for name in ("Nowhere", "", "../etc/passwd", "Europe"):
        with pytest.raises(ConfigError, match="no time zone"):
            require_zone(name)

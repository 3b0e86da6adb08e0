"""Settings of a gateway: invalid values are refused and named."""

from __future__ import annotations

import pytest

from tertulia.errors import ConfigError
from tertulia.gateway.settings import GatewaySettings
from tertulia.platforms.settings import PlatformSettings


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("turns", 0),
        ("tries", -1),
        ("sends", 0),
        ("history_messages", 0),
        ("compact_turns", 0),
        ("watch_seconds", 0),
        ("watch_seconds", float("inf")),
        ("gather_seconds", -0.1),
        ("drain_seconds", float("nan")),
    ],
)
def test_invalid_value_is_refused_and_named(name: str, value: float) -> None:
    with pytest.raises(ConfigError, match=f"{name} cannot be") as caught:
        GatewaySettings(**{name: value})  # type: ignore[arg-type]
    assert caught.value.field == name
    assert caught.value.hint


def test_zero_is_allowed_for_gathering_and_draining() -> None:
    settings = GatewaySettings(gather_seconds=0, drain_seconds=0)
    assert (settings.gather_seconds, settings.drain_seconds) == (0, 0)


def test_unlisted_platform_has_the_defaults() -> None:
    settings = GatewaySettings(platforms={"signal": PlatformSettings(groups="never")})
    assert settings.of("signal").groups == "never"
    assert settings.of("telegram") == PlatformSettings()

"""The machine's time zone comes from TZ, else from /etc/localtime."""

from __future__ import annotations

import os
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
import tzlocal

import tertulia
from tertulia import ConfigError
from tertulia.records.machine_zone import machine_zone


@pytest.fixture
def tz(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Let tzlocal read TZ each time; it remembers the first value otherwise."""
    monkeypatch.setattr(tzlocal, "get_localzone", lambda: ZoneInfo(os.environ["TZ"]))
    return monkeypatch


def test_zone_of_the_variable_is_used(tmp_path: Path, tz: pytest.MonkeyPatch) -> None:
    tz.setenv("TZ", "Europe/Madrid")
    with tertulia.open(tmp_path / "talk.db") as store:
        assert str(store.context.zone) == "Europe/Madrid"


def test_link_names_the_zone_without_the_variable(tmp_path: Path, tz: pytest.MonkeyPatch) -> None:
    tz.delenv("TZ", raising=False)
    tz.setattr(os, "readlink", lambda path: "/usr/share/zoneinfo/America/Lima")
    with tertulia.open(tmp_path / "talk.db") as store:
        assert str(store.context.zone) == "America/Lima"


def test_unknown_zone_is_reported(tz: pytest.MonkeyPatch) -> None:
    tz.setenv("TZ", "Mars/Olympus")
    with pytest.raises(ConfigError, match="is not known") as caught:
        machine_zone()
    assert caught.value.field == "TZ"

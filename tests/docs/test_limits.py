"""The table of limits has every limit, with the default that the code has."""

from __future__ import annotations

import re

import pytest

from tertulia.core.retention import Retention
from tertulia.gateway.settings import GatewaySettings
from tertulia.http.settings import HttpSettings
from tests.docs.markdown import ROOT

# Every setting that limits what a stranger can cause.
LIMITS = {
    "connections", "connections_per_address", "head_seconds", "read_seconds", "max_body",
    "guest_body", "open_body", "requests_per_minute", "streams_per_token", "stream_seconds",
    "requests_per_address", "streams_per_address",
    "turns", "turns_per_person", "waiting_per_person", "commands_per_minute", "max_text",
    "guest_text",
}  # fmt: skip
UNITS = {"": 1, "s": 1, "h": 3600, "kB": 1024, "MB": 1024**2}
NUMBERS = {
    name: value
    for settings in (HttpSettings(), GatewaySettings())
    for name in settings.__struct_fields__
    if isinstance(value := getattr(settings, name), int | float)
}


def documented_defaults() -> dict[str, float]:
    page = (ROOT / "docs/http.md").read_text("utf-8")
    table = page.partition("\n## Limits\n")[2].partition("\n## ")[0]
    defaults: dict[str, float] = {}
    for line in table.splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) < 4 or not cells[1].startswith("`"):
            continue
        names = [name for name in re.findall(r"`(\w+)`", cells[1]) if name in NUMBERS]
        for name, value in zip(names, cells[2].split(";"), strict=True):
            number, _, unit = value.strip().partition(" ")
            defaults[name] = float(number.replace(",", "")) * UNITS[unit]
    return defaults


def test_every_limit_is_documented_with_its_default() -> None:
    defaults = documented_defaults()
    assert set(defaults) == LIMITS
    assert defaults == {name: NUMBERS[name] for name in LIMITS}


@pytest.mark.parametrize("name", ["wait_seconds", "refusal_seconds"])
def test_other_times_are_documented(name: str) -> None:
    page = (ROOT / "docs/http.md").read_text("utf-8")
    assert f"`{name}` ({NUMBERS[name]:g} s)" in page


def test_retention_is_documented_with_its_defaults() -> None:
    kept = Retention()
    assert (kept.sessions_days, kept.media_days) == (None, None)
    assert kept.settled_days == kept.stranger_days
    page = " ".join((ROOT / "docs/guarantees.md").read_text("utf-8").split())
    assert f"after {kept.settled_days} days" in page
    assert "for conversations and files off by default" in page

"""The settings in force, as the program was started with them; secrets stay hidden."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from tertulia.http.routing import ApiCall, Operation


class Setting(msgspec.Struct, frozen=True):
    """One setting: its dotted name, as in the configuration, and its value."""

    name: str
    value: Any


class SettingList(msgspec.Struct, frozen=True):
    """The settings of the gateway that answers; empty if a program of yours has started it."""

    items: tuple[Setting, ...]


async def list_settings(call: ApiCall) -> SettingList:
    return SettingList(tuple(flatten_settings(call.api.configuration)))


def flatten_settings(table: Mapping[str, Any], prefix: str = "") -> Iterator[Setting]:
    """Yield the values of nested tables by their dotted names."""
    for name, value in table.items():
        if isinstance(value, Mapping) and value:
            yield from flatten_settings(value, f"{prefix}{name}.")
        else:
            yield Setting(f"{prefix}{name}", value)


TABLE = (
    Operation(
        method="GET", path="/settings", act=list_settings, role="owner", answer=SettingList,
        summary="List the settings in force, without secrets.",
    ),
)  # fmt: skip

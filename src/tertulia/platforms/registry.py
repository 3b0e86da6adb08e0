"""The registry of platforms.

A built-in platform is a module of this package with the name of the platform, which defines
`PLATFORM` (see `definition.py`); there is no list of them. Others are registered by a call of
`register`, or by an installed package with an entry point in the group `tertulia.platforms` that
has the name of the platform and refers to its definition:

    [project.entry-points."tertulia.platforms"]
    matrix = "tertulia_matrix:PLATFORM"

Names are listed without importing anything: a module is imported when its platform is first used
(decision 0013).
Entry points are read only when a name is neither built in nor registered.
"""

from __future__ import annotations

import pkgutil
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from importlib import import_module
from typing import TYPE_CHECKING

from tertulia import platforms
from tertulia.core.platform import Platform
from tertulia.core.policy import Policies, ResetPolicy
from tertulia.core.source import LOCAL
from tertulia.errors import ConfigError
from tertulia.platforms.definition import PlatformDefinition

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "tertulia.platforms"
# The modules of the package that several platforms use; every other module is a platform.
SHARED_MODULES = frozenset(
    {
        "base",
        "definition",
        "http_library",
        "http_transport",
        "push",
        "registry",
        "settings",
        "terminal",
        "typing_tasks",
    }
)

_NAME = re.compile(r"[a-z][a-z0-9_-]{0,31}")
_RESERVED = frozenset({"origin"})  # it is a delivery target with its own meaning

# Platforms of agent SDKs: the program names each conversation and asks for it by that name again,
# so none of them ends by itself, unless a policy is configured for its platform.
AGENT_SDK_PLATFORMS = ("openai-agents", "pydantic-ai", "agent-framework", "claude-agent")
_NEVER = ResetPolicy("none")


class Platforms(Mapping[str, PlatformDefinition]):
    """All platforms by name: built in, registered, or from an installed package."""

    def __init__(self) -> None:
        self._loaded: dict[str, PlatformDefinition] = {}

    def __getitem__(self, name: str) -> PlatformDefinition:
        if name not in self._loaded:
            if name in built_in_names():
                module = f"{platforms.__name__}.{name}"
                self._loaded[name] = _load(name, module, partial(_import_definition, module))
            else:
                point = _entry_points()[name]
                self._loaded[name] = _load(name, point.value, point.load)
        return self._loaded[name]

    def __contains__(self, name: object) -> bool:
        return name in self._loaded or name in built_in_names() or name in _entry_points()

    def __iter__(self) -> Iterator[str]:
        return iter(sorted({*built_in_names(), *self._loaded, *_entry_points()}))

    def __len__(self) -> int:
        return len({*built_in_names(), *self._loaded, *_entry_points()})

    def add(self, platform: PlatformDefinition) -> None:
        self._loaded[platform.name] = platform


PLATFORMS = Platforms()


def platform(name: str) -> Platform:
    """Return the platform of that name; for an unknown name a platform with default abilities."""
    return PLATFORMS[name] if name in PLATFORMS else Platform(name)


def register(platform: PlatformDefinition) -> None:
    """Register a platform, replacing one of the same name; raise `ConfigError` for a bad name."""
    if not _NAME.fullmatch(platform.name) or platform.name in _RESERVED:
        raise ConfigError(
            f"Invalid platform name {platform.name!r}.",
            hint="Use up to 32 of a-z, 0-9, '-' and '_', beginning with a letter, not 'origin'.",
            field="name",
        )
    PLATFORMS.add(platform)


def needs_raw_ids(name: str) -> bool:
    """Return whether people on that platform can only be mentioned by their ids."""
    return platform(name).mentions_need_raw_ids


def policies(configured: Policies) -> Policies:
    """Return the configured policies, with "never" for the terminal and agent SDKs.

    A policy that is configured for one of these platforms applies to it all the same.
    """
    never = dict.fromkeys((LOCAL, *AGENT_SDK_PLATFORMS), _NEVER)
    return Policies(
        default=configured.default,
        platforms={**never, **configured.platforms},
        chat_types=configured.chat_types,
    )


@cache
def built_in_names() -> frozenset[str]:
    """Return the names of the platforms in this package; none of them is imported for it."""
    modules = {module.name for module in pkgutil.iter_modules(platforms.__path__)}
    return frozenset(modules - SHARED_MODULES)


@cache
def _entry_points() -> dict[str, EntryPoint]:
    # Slow to import, and needed only for names that are not built in.
    from importlib.metadata import entry_points

    points = entry_points(group=GROUP)
    return {point.name: point for point in points if point.name not in _RESERVED}


def _import_definition(module: str) -> object:
    return import_module(module).PLATFORM


def _load(name: str, location: str, load: Callable[[], object]) -> PlatformDefinition:
    try:
        definition = load()
    except Exception as error:
        raise ConfigError(
            f"The platform {name!r} could not be loaded from {location!r}: {error}.",
            hint="Repair or uninstall the package that provides it.",
            field=name,
        ) from error
    if isinstance(definition, PlatformDefinition) and definition.name == name:
        return definition
    raise ConfigError(
        f"The platform {name!r} refers to {location!r}, which is not a platform of that name.",
        hint=f"It must refer to a tertulia PlatformDefinition({name!r}, …).",
        field=name,
    )

"""The definition of a platform: its abilities, its settings section and the builder of its adapter.

A platform is one file. It ends with its definition under the name `PLATFORM`:

    PLATFORM = PlatformDefinition("matrix", "Matrix", settings=MatrixSettings, build=build, …)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from tertulia.core.platform import Platform
from tertulia.core.secret import resolve_secret
from tertulia.errors import ConfigError
from tertulia.platforms.base import Adapter
from tertulia.platforms.settings import PlatformSection, PlatformSettings


class BuildContext(msgspec.Struct, frozen=True, kw_only=True):
    """What a builder gets.

    name       the name of the platform
    settings   the section [platforms.NAME], an instance of the platform's own settings class
    folder     a folder for state of this platform alone; the adapter creates it when it needs it
    environ    the environment variables that may contain secrets
    """

    name: str
    settings: Any
    folder: str
    environ: Mapping[str, str]

    def get_secret(self, name: str) -> str | None:
        """Return the secret in the settings `name` or `name_env`, or None if neither is set.

        Raises `ConfigError` if both are set, or if the variable is not set.
        """
        section = f"platforms.{self.name}"
        return resolve_secret(self.settings, name, self.environ, section=section)

    def require_secret(self, name: str) -> str:
        """Return the secret in the settings `name` or `name_env`; raise `ConfigError` if unset."""
        secret = self.get_secret(name)
        if not secret:
            variable = f"{self.name}_{name}".upper().replace("-", "_")
            raise ConfigError(
                f"platforms.{self.name} has no {name}.",
                hint=f'Name the variable that contains it: {name}_env = "{variable}"',
                field=f"platforms.{self.name}",
            )
        return secret


Build = Callable[[BuildContext], Adapter]


class PlatformDefinition(Platform, frozen=True, kw_only=True):
    """A platform that can be configured.

    settings   the type of its section [platforms.NAME]
    build      returns its adapter, or raises `ConfigError`; it opens no file and no connection,
               because `tertulia config check` calls it too. None: this version has no adapter.
    """

    settings: type[PlatformSection] = PlatformSettings
    build: Build | None = None

    def build_adapter(self, context: BuildContext) -> Adapter:
        """Return the adapter; raise `ConfigError` if there is none, or a setting is wrong."""
        if self.build is None:
            raise ConfigError(
                f"platforms.{self.name}: this version has no adapter for this platform.",
                hint=f"Remove it, or set: enabled = false under [platforms.{self.name}]",
                field=f"platforms.{self.name}",
            )
        return self.build(context)

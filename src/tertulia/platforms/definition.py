"""The definition of a platform: its abilities, its settings section and the builder of its adapter.

A platform is one file. It ends with its definition under the name `PLATFORM`:

    PLATFORM = PlatformDefinition("matrix", "Matrix", settings=MatrixSettings, build=build, …)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from tertulia.core.platform import Platform
from tertulia.core.secret import resolve_secret
from tertulia.core.text.spans import FormattedText
from tertulia.errors import ConfigError
from tertulia.platforms.base import Adapter
from tertulia.platforms.settings import PlatformSection, PlatformSettings


class BuildContext(msgspec.Struct, frozen=True, kw_only=True):
    """The input of a builder.

    name       the name of the platform
    account    the name of the account; "" for the section [platforms.NAME] itself
    settings   the section of the account, an instance of the platform's own settings class
    folder     a folder for state of this account alone; the adapter creates it when it needs it
    environ    the environment variables that may contain secrets
    """

    name: str
    settings: Any
    folder: str
    environ: Mapping[str, str]
    account: str = ""

    @property
    def section(self) -> str:
        """Return the name of the section of the account in the configuration."""
        return section_name(self.name, self.account)

    def get_secret(self, name: str) -> str | None:
        """Return the secret in the settings `name` or `name_env`, or None if neither is set.

        Raises `ConfigError` if both are set, or if the variable is not set.
        """
        return resolve_secret(self.settings, name, self.environ, section=self.section)

    def require_secret(self, name: str) -> str:
        """Return the secret in the settings `name` or `name_env`; raise `ConfigError` if unset."""
        secret = self.get_secret(name)
        if not secret:
            raise ConfigError(
                f"{self.section} has no {name}.",
                hint="Name the variable that contains it:"
                f' {name}_env = "{secret_variable(self.name, self.account, name)}"',
                field=self.section,
            )
        return secret


def check_address(
    context: BuildContext, key: str, schemes: tuple[str, ...] = ("https://", "http://")
) -> None:
    """Raise `ConfigError` if the setting `key` is set and is no address."""
    address = getattr(context.settings, key)
    if address is not None and not address.startswith(schemes):
        raise ConfigError(
            f"{context.section}.{key} is not an address.",
            hint=f"It begins with {' or '.join(schemes)}; usually it is not set at all.",
            field=f"{context.section}.{key}",
        )


def section_name(name: str, account: str = "") -> str:
    """Return the dotted name of the section of an account."""
    return f"platforms.{name}.accounts.{account}" if account else f"platforms.{name}"


def secret_variable(name: str, account: str, key: str) -> str:
    """Return the suggested name of the environment variable of a secret: TELEGRAM_TOKEN."""
    words = "_".join(filter(None, (name, account, key)))
    return "".join(letter if letter.isalnum() else "_" for letter in words.upper())


Build = Callable[[BuildContext], Adapter]
Format = Callable[[str], Sequence[FormattedText]]


class SetupQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """A question of `tertulia platforms add`: the value of one key of the section.

    key         the key of the settings class
    question    the question, for people
    is_secret   the typed text is not shown, and stored only as the platform's secret
    default     the value if nothing is typed; None: an answer is required
    """

    key: str
    question: str
    is_secret: bool = False
    default: str | None = None


class PlatformDefinition(Platform, frozen=True, kw_only=True):
    """A platform that can be configured.

    settings   the type of its section [platforms.NAME]
    build      returns its adapter, or raises `ConfigError`; it opens no file and no connection,
               because `tertulia config check` calls it too. None: this version has no adapter.
    format     splits the agent's Markdown into parts that the platform accepts, as text with
               spans. None: Markdown is sent as it is, split by the length limit.
    setup      the questions of `tertulia platforms add`
    guide      how to get the answers, shown before the questions
    pairing    how the first person reaches the agent, shown at the end
    """

    settings: type[PlatformSection] = PlatformSettings
    build: Build | None = None
    format: Format | None = None
    setup: tuple[SetupQuestion, ...] = ()
    guide: str = ""
    pairing: str = ""

    def build_adapter(self, context: BuildContext) -> Adapter:
        """Return the adapter; raise `ConfigError` if there is none, or a setting is wrong."""
        if self.build is None:
            raise ConfigError(
                f"platforms.{self.name}: this version has no adapter for this platform.",
                hint=f"Remove it, or set: enabled = false under [platforms.{self.name}]",
                field=f"platforms.{self.name}",
            )
        return self.build(context)

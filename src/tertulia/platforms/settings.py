"""Settings that all platforms share; the file of a platform adds its own keys in a subclass."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from tertulia.core.settings import RUNTIME_ONLY

Admission = Literal["everyone", "paired", "nobody"]
"""People who may write in private: anybody, people the owner let in, or only the allow list."""

Groups = Literal["mention", "always", "never"]
"""Messages of a group that are answered: those that address the agent, all, or none."""

Streaming = Literal["auto", "off"]
"""Show an answer while it is written if the platform can, or only when it is complete."""


class PlatformSection(msgspec.Struct, frozen=True, kw_only=True):
    """The section [platforms.NAME] of a platform without access control.

    enabled     whether `tertulia run` serves this platform

    `accounts` are the sections [platforms.NAME.accounts.ACCOUNT], by the name of the account.
    """

    enabled: bool = True
    accounts: Annotated[Mapping[str, Any], RUNTIME_ONLY] = {}


class PlatformSettings(PlatformSection, frozen=True, kw_only=True):
    """One platform, and who is answered there. Each platform adds keys of its own.

    admission   who may send direct messages: everyone, people the owner approved (paired), or only
                those in allow and owners (nobody)
    groups      when messages in a group are answered: if they address the agent (mention), always,
                or never
    allow       ids of people who are always answered
    owners      ids of people who may do everything
    home        the chat for messages that name only the platform
    stream      whether an answer is shown while it is written, where the platform can: auto, off
    max_file_mb   the largest file that is received or sent, in megabytes
    """

    admission: Admission = "paired"
    groups: Groups = "mention"
    allow: tuple[str, ...] = ()
    owners: tuple[str, ...] = ()
    home: str | None = None
    stream: Streaming = "auto"
    max_file_mb: Annotated[float, Meta(gt=0)] = 20.0

"""Settings that all platforms share; the file of a platform adds its own keys in a subclass."""

from __future__ import annotations

from typing import Literal

import msgspec

Admission = Literal["everyone", "paired", "nobody"]
"""People who may write in private: anybody, people the owner let in, or only the allow list."""

Groups = Literal["mention", "always", "never"]
"""Messages of a group that are answered: those that address the agent, all, or none."""


class PlatformSection(msgspec.Struct, frozen=True, kw_only=True):
    """The section [platforms.NAME] of a platform without access control.

    enabled     whether `tertulia run` serves this platform
    """

    enabled: bool = True


class PlatformSettings(PlatformSection, frozen=True, kw_only=True):
    """One platform, and who is answered there. Each platform adds keys of its own.

    admission   who may send direct messages: everyone, people the owner approved (paired), or only
                those in allow and owners (nobody)
    groups      when messages in a group are answered: if they address the agent (mention), always,
                or never
    allow       ids of people who are always answered
    owners      ids of people who may do everything
    """

    admission: Admission = "paired"
    groups: Groups = "mention"
    allow: tuple[str, ...] = ()
    owners: tuple[str, ...] = ()

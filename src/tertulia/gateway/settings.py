"""Settings of a gateway and of its log: frozen values, read from the configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec

from tertulia.agents.transcription import TranscriptionOptions
from tertulia.core.approval import ApprovalSettings
from tertulia.core.history.formats import Timestamps
from tertulia.core.settings import RUNTIME_ONLY, FilePath
from tertulia.errors import ConfigError
from tertulia.platforms.settings import PlatformSettings
from tertulia.records.people import Role

DuringTurn = Literal["queue", "interrupt", "steer"]
"""Effect of a message that arrives during a turn: wait, end the turn, or be taken into it."""


class MediaSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What models get of files.

    max_mb          the largest file that is shown to a model, in megabytes
    describe        the name of an agent in [agents] that describes images for models without vision
    transcription   the server that turns voice notes into text
    """

    max_mb: float = 20.0
    describe: str | None = None
    transcription: TranscriptionOptions | None = None

    def __post_init__(self) -> None:
        if not 0 < self.max_mb <= 100:
            raise _invalid("max_mb", self.max_mb, "Use a number above 0, at most 100.")


class GatewaySettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a gateway.

    platforms         access control by platform, or by platform and account: ("telegram", "work");
                      those that are not listed have the defaults
    approvals         which calls of tools a person has to approve
    token_roles       the roles of the HTTP server's tokens, by name
    media             what models get of files
    meanwhile         what a message does that arrives during a turn: wait in the queue (queue),
                      end the turn (interrupt), or become part of it (steer)
    gather_seconds    messages that a person sends within this time are answered together
    turns             how many turns may run at the same time on this node
    turns_per_person  how many of them may be those of one person
    waiting_per_person  how many messages of one person may wait; more are refused
    commands_per_minute  how many commands that are answered at once a person may send in a minute
    max_text          the longest message that is accepted, in characters
    guest_text        the same for guests
    history_tokens    the largest history a model gets, in tokens
    history_messages  the largest history a model gets, in messages
    timestamps        the time before messages that the model reads: the local time before each of
                      the person (local), in UTC (user), before answers too (all), or none (none)
    compact_turns     how many of the newest turns a compaction leaves unchanged
    memory            whether the agent remembers people: it is shown their memories in private
                      chats, and members have the tool memory and the command /memory
    tries             how many times a message is tried before it is given up
    sends             how many times a delivery is tried before it is given up
    watch_seconds     how often to look for sessions that their policy ends
    drain_seconds     how long running turns may continue after the program is asked to stop
    """

    platforms: Annotated[Mapping[Any, PlatformSettings], RUNTIME_ONLY] = {}
    token_roles: Annotated[Mapping[str, Role], RUNTIME_ONLY] = {}
    approvals: Annotated[ApprovalSettings, RUNTIME_ONLY] = ApprovalSettings()
    media: Annotated[MediaSettings, RUNTIME_ONLY] = MediaSettings()
    meanwhile: DuringTurn = "queue"
    gather_seconds: float = 0.0
    turns: int = 64
    turns_per_person: int = 8
    waiting_per_person: int = 100
    commands_per_minute: int = 60
    max_text: int = 200_000
    guest_text: int = 8_000
    history_tokens: int | None = None
    history_messages: int = 500
    timestamps: Timestamps = "local"
    compact_turns: int = 4
    memory: bool = True
    tries: int = 5
    sends: int = 8
    watch_seconds: float = 300
    drain_seconds: float = 30

    def __post_init__(self) -> None:
        for name in (
            "turns",
            "turns_per_person",
            "waiting_per_person",
            "commands_per_minute",
            "max_text",
            "guest_text",
            "tries",
            "sends",
            "history_messages",
            "compact_turns",
        ):
            if getattr(self, name) < 1:
                raise _invalid(name, getattr(self, name), "Use a whole number above 0.")
        if not 0 < self.watch_seconds < float("inf"):
            raise _invalid("watch_seconds", self.watch_seconds, "Use a number of seconds above 0.")
        for name in ("gather_seconds", "drain_seconds"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise _invalid(name, getattr(self, name), "Use 0 or a positive number of seconds.")

    def of(self, platform: str, account: str = "") -> PlatformSettings:
        """Return the settings of an account; else of its platform, or the defaults."""
        section = self.platforms.get((platform, account)) or self.platforms.get(platform)
        if section is None and account and (platform, "") in self.platforms:
            # Accounts that sources name and no section does: the callers of a web server.
            section = self.platforms[platform, ""]
        return section or PlatformSettings()


class LogSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The log. It never contains keys, tokens or texts of messages; ids are pseudonyms.

    level    the lowest level that is logged
    format   text: lines for people; json: one JSON object per line
    file     the log file; default: standard error
    """

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["text", "json"] = "text"
    file: FilePath | None = None


def _invalid(name: str, value: object, hint: str) -> ConfigError:
    return ConfigError(f"{name} cannot be {value!r}.", hint=hint, field=name)

"""Hermes Agent's sessions: where a message came from, its key, its context, and the store.

Times are naive and local, as that system's code reckons with them; the store keeps them in UTC.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tertulia.compat import store_folder
from tertulia.compat.hermes import redaction
from tertulia.compat.hermes.config import GatewayConfig, HomeChannel, Platform, known_platform
from tertulia.compat.hermes.settings import settings_of
from tertulia.compat.local_times import local
from tertulia.core import context_prompt as contexts
from tertulia.core import keys
from tertulia.core import target as targets
from tertulia.core.session import Session
from tertulia.core.settings import Settings
from tertulia.core.source import Source
from tertulia.core.usage import Usage
from tertulia.errors import ConfigError
from tertulia.platforms import registry
from tertulia.records.transcript import replace
from tertulia.store import Store

log = logging.getLogger("tertulia.compat.hermes")

_ALWAYS = ("chat_name", "chat_type", "user_id", "user_name", "thread_id", "chat_topic")
_WHEN_SET = ("user_id_alt", "chat_id_alt")
_COUNTS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")
_PLAIN = (
    "display_name",
    "chat_type",
    *_COUNTS,
    "total_tokens",
    "last_prompt_tokens",
    "estimated_cost_usd",
    "cost_status",
    "was_auto_reset",
    "auto_reset_reason",
    "reset_had_activity",
)
_PAGE = 1000


@dataclass
class SessionSource:
    """Where one message came from."""

    platform: Platform
    chat_id: str
    chat_name: str | None = None
    chat_type: str = "dm"
    user_id: str | None = None
    user_name: str | None = None
    thread_id: str | None = None
    chat_topic: str | None = None
    user_id_alt: str | None = None
    chat_id_alt: str | None = None

    @property
    def description(self) -> str:
        """The source in words for people."""
        return _own(self).description

    def to_dict(self) -> dict[str, Any]:
        found = {"platform": self.platform.value, "chat_id": self.chat_id}
        found.update((name, getattr(self, name)) for name in _ALWAYS)
        found.update((name, getattr(self, name)) for name in _WHEN_SET if getattr(self, name))
        return found

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Read what `to_dict` wrote; `ValueError` for a platform nobody knows."""
        names = (*_ALWAYS, *_WHEN_SET)
        given = {name: data[name] for name in names if data.get(name) is not None}
        return cls(Platform(data["platform"]), str(data["chat_id"]), **given)

    @classmethod
    def local_cli(cls) -> Self:
        """The terminal of the machine that runs the agent."""
        terminal = Source.local()
        return cls(Platform.LOCAL, terminal.chat_id, terminal.chat_name)


@dataclass
class SessionContext:
    """What a prompt is made from."""

    source: SessionSource
    connected_platforms: list[Platform]
    home_channels: dict[Platform, HomeChannel]
    session_key: str = ""
    session_id: str = ""
    created_at: datetime | None = None
    updated_at: datetime | None = None

    def to_dict(self) -> dict[str, Any]:
        return {
            "source": self.source.to_dict(),
            "connected_platforms": [platform.value for platform in self.connected_platforms],
            "home_channels": {
                platform.value: home.to_dict() for platform, home in self.home_channels.items()
            },
            "session_key": self.session_key,
            "session_id": self.session_id,
            "created_at": self.created_at.isoformat() if self.created_at else None,
            "updated_at": self.updated_at.isoformat() if self.updated_at else None,
        }


@dataclass
class SessionEntry:
    """A session as it stood in the store at one moment."""

    session_key: str
    session_id: str
    created_at: datetime
    updated_at: datetime
    origin: SessionSource | None = None
    display_name: str | None = None
    platform: Platform | None = None
    chat_type: str = "dm"
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    total_tokens: int = 0
    estimated_cost_usd: float = 0.0
    cost_status: str = "unknown"
    last_prompt_tokens: int = 0
    was_auto_reset: bool = False
    auto_reset_reason: str | None = None
    reset_had_activity: bool = False

    def to_dict(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            "session_key": self.session_key,
            "session_id": self.session_id,
            "created_at": self.created_at.isoformat(),
            "updated_at": self.updated_at.isoformat(),
            "platform": self.platform.value if self.platform else None,
        }
        found.update((name, getattr(self, name)) for name in _PLAIN)
        if self.origin is not None:
            found["origin"] = self.origin.to_dict()
        return found

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Read what `to_dict` wrote, or an older form of it with fewer fields."""
        origin = data.get("origin")
        if not isinstance(origin, Mapping) or known_platform(origin.get("platform")) is None:
            origin = None
        given = {name: data[name] for name in _PLAIN if data.get(name) is not None}
        return cls(
            session_key=data["session_key"],
            session_id=data["session_id"],
            created_at=datetime.fromisoformat(data["created_at"]),
            updated_at=datetime.fromisoformat(data["updated_at"]),
            origin=None if origin is None else SessionSource.from_dict(origin),
            platform=known_platform(data.get("platform")),
            **given,
        )


def build_session_key(source: SessionSource, group_sessions_per_user: bool = True) -> str:
    """The conversation a source belongs to; two different ones never share a key."""
    return keys.session_key(_own(source), per_user=group_sessions_per_user)


def build_session_context(
    source: SessionSource, config: GatewayConfig, session_entry: SessionEntry | None = None
) -> SessionContext:
    """What a prompt is made from, for a source and a configuration."""
    connected = config.get_connected_platforms()
    homes = {one: home for one in connected if (home := config.get_home_channel(one)) is not None}
    context = SessionContext(source, connected, homes)
    redaction.remember(context, config)
    if session_entry is not None:
        context.session_key = session_entry.session_key
        context.session_id = session_entry.session_id
        context.created_at = session_entry.created_at
        context.updated_at = session_entry.updated_at
    return context


def build_session_context_prompt(context: SessionContext, *, redact_pii: bool = False) -> str:
    """The section of the system prompt that tells the agent where it is."""
    homes = {
        platform.value: targets.HomeChannel(home.chat_id, home.name)
        for platform, home in context.home_channels.items()
    }
    connected = (registry.platform(platform.value) for platform in context.connected_platforms)
    told = contexts.PromptContext(
        source=_own(context.source),
        platform=registry.platform(context.source.platform.value),
        shared=_is_shared(context),
        connected=tuple(connected),
        homes=homes,
        session_id=context.session_id,
    )
    redactor = redaction.redactor_for(context) if redact_pii else None
    return contexts.context_prompt(told, redactor=redactor)


class SessionStore:
    """The sessions of a folder. `store` is the Tertulia store below."""

    def __init__(
        self,
        sessions_dir: Path,
        config: GatewayConfig,
        has_active_processes_fn: Callable[[str], bool] | None = None,
        on_auto_reset: Callable[[SessionEntry], object] | None = None,
    ) -> None:
        self.sessions_dir = Path(sessions_dir)
        self.config = config
        self._guard = has_active_processes_fn
        self._on_auto_reset = on_auto_reset
        self._swap = threading.Lock()
        self._left: list[Store] = []
        self._settings = settings_of(config, self._guard)
        self._store = store_folder.open_in(self.sessions_dir, self._settings)
        self.imported = store_folder.import_once(
            self._store, "hermes", _left_behind(self.sessions_dir)
        )
        redaction.know(self)

    @property
    def store(self) -> Store:
        """The store, with the settings that the configuration asks for now."""
        wanted = settings_of(self.config, self._guard)
        if wanted != self._settings:
            self._reopen(wanted)
        return self._store

    # -- which session

    def get_or_create_session(self, source: SessionSource, force_new: bool = False) -> SessionEntry:
        """The current session of a source under its policy, or a new one.

        Where the policy ended the one before, `was_auto_reset` says so, to one caller once.
        """
        sessions = self.store.sessions
        entry = _entry(session := sessions.open(_own(source), force_new=force_new))
        ended = None if session.notice is None else sessions.get(session.notice.session_id)
        if ended is not None:
            # Who keeps the transcript elsewhere tells of activity by what it used.
            entry.reset_had_activity = entry.reset_had_activity or ended.usage.total > 0
            self._tell(ended)
        return entry

    def reset_session(self, key: str) -> SessionEntry | None:
        """End the current session by hand and begin a new one; None for an unknown key."""
        session = self.store.sessions.reset(key)
        return None if session is None else _entry(session)

    def switch_session(self, key: str, session_id: str) -> SessionEntry | None:
        """Make an earlier session of the same key current again; None for an unknown key.

        A session that is another conversation's is refused, and so is one that does not exist.
        """
        sessions = self.store.sessions
        if not sessions.find(key=key, limit=1).items:
            return None
        return _entry(sessions.switch(key, session_id))

    def list_sessions(self, active_minutes: float | None = None) -> list[SessionEntry]:
        """The current sessions, newest activity first."""
        found: list[SessionEntry] = []
        cursor = None
        while True:
            page = self.store.sessions.find(
                state="current", active_minutes=active_minutes, limit=_PAGE, cursor=cursor
            )
            found += map(_entry, page.items)
            cursor = page.next
            if cursor is None:
                return found

    def has_any_sessions(self) -> bool:
        """Whether there was any session besides the one just created, ended ones included."""
        return len(self.store.sessions.find(limit=2).items) > 1

    # -- what it used

    def update_session(
        self,
        session_key: str,
        input_tokens: int = 0,
        output_tokens: int = 0,
        cache_read_tokens: int = 0,
        cache_write_tokens: int = 0,
        last_prompt_tokens: int | None = None,
        model: str | None = None,
        estimated_cost_usd: float | None = None,
        cost_status: str | None = None,
        cost_source: str | None = None,
        provider: str | None = None,
        base_url: str | None = None,
    ) -> None:
        """Add what model calls used to the current session of a key; an unknown key is nothing.

        A last prompt of None changes nothing, 0 resets it.
        """
        store = self.store
        session = store.sessions.current(session_key)
        if session is None:
            return
        counts = (input_tokens, output_tokens, cache_read_tokens, cache_write_tokens)
        if not any(counts) and estimated_cost_usd is None and cost_status is None:
            # No model call: an entry in the ledger would make known costs uncertain.
            if last_prompt_tokens is not None:
                replace.set_last_prompt(store.context, session.id, last_prompt_tokens)
            return
        if cost_status is None and estimated_cost_usd is not None:
            cost_status = "estimated"
        store.usage.add(
            session.id,
            Usage(
                *counts,
                model=model,
                provider=provider,
                base_url=base_url,
                cost_usd=estimated_cost_usd,
                cost_status=cost_status,  # type: ignore[arg-type]  # checked by Usage
                cost_source=cost_source,
                last_prompt=last_prompt_tokens,
            ),
        )

    # -- transcripts

    def append_to_transcript(
        self, session_id: str, message: Mapping[str, Any], skip_db: bool = False
    ) -> None:
        """Store a message. There is one place for it, so `skip_db` skips nothing.

        An id that no session has becomes a session of its own, ended and in no conversation: what
        was handed over is kept.
        """
        replace.append(self.store.context, session_id, message)

    def rewrite_transcript(self, session_id: str, messages: list[dict[str, Any]]) -> bool:
        """Show these messages instead; what was shown before can be restored."""
        replace.rewrite(self.store.context, session_id, messages)
        return True

    def load_transcript(self, session_id: str) -> list[dict[str, Any]]:
        """The messages as they were stored; none for an unknown id."""
        store = self.store
        return [] if store.sessions.get(session_id) is None else store.transcript(session_id).load()

    def get_transcript_path(self, session_id: str) -> Path:
        """Where the transcript stands as JSON lines; it is written now, if there is one."""
        if self.store.sessions.get(session_id) is None:
            return store_folder.export_path(self.sessions_dir, session_id)
        return store_folder.export(self.sessions_dir, session_id, self.load_transcript(session_id))

    # -- the end

    def close(self) -> None:
        """Close the store; what was acknowledged is stored already."""
        redaction.forget(self)
        with self._swap:
            for store in (*self._left, self._store):
                store.close()
            self._left.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _reopen(self, wanted: Settings) -> None:
        with self._swap:
            if wanted != self._settings:
                # Other threads may be at work in the one that is left: it is closed at the end.
                self._left.append(self._store)
                self._store = store_folder.open_in(self.sessions_dir, wanted)
                self._settings = wanted

    def _tell(self, ended: Session) -> None:
        """Let the listener know of a session that its policy ended."""
        if self._on_auto_reset is None:
            return
        try:
            self._on_auto_reset(_entry(ended))
        except Exception:
            # The new session stands, and its notice is handed out this once: raising would lose it.
            log.exception("on_auto_reset failed for session %s", ended.id)


def _own(source: SessionSource) -> Source:
    """The source as the store knows it."""
    platform: object = source.platform  # callers without a type checker hand in a name
    if not isinstance(platform, Platform):
        raise ConfigError(
            f"The platform of a source is {platform!r}.",
            hint="Give a member of Platform, such as Platform.TELEGRAM.",
            field="platform",
        )
    given = {name: getattr(source, name) for name in (*_ALWAYS, *_WHEN_SET)}
    return Source(platform.value, source.chat_id, **given)


def _theirs(source: Source) -> SessionSource | None:
    """A stored source in that system's words; None where it has no word for the platform."""
    platform = known_platform(source.platform)
    if platform is None:
        return None
    given = {name: getattr(source, name) for name in (*_ALWAYS, *_WHEN_SET)}
    return SessionSource(platform, source.chat_id, **given)


def _entry(session: Session) -> SessionEntry:
    origin, notice, usage = session.origin, session.notice, session.usage
    # The store falls back on the person's name, that system does not.
    is_person = session.display_name == origin.user_name
    return SessionEntry(
        session_key=session.key,
        session_id=session.id,
        created_at=local(session.created_at),
        updated_at=local(session.updated_at),
        origin=_theirs(origin),
        display_name=origin.chat_name or (None if is_person else session.display_name),
        platform=known_platform(origin.platform),
        chat_type=origin.chat_type,
        input_tokens=usage.input,
        output_tokens=usage.output,
        cache_read_tokens=usage.cache_read,
        cache_write_tokens=usage.cache_write,
        total_tokens=usage.total,
        estimated_cost_usd=session.cost_usd or 0.0,
        cost_status=session.cost_status,
        last_prompt_tokens=session.last_prompt_tokens,
        was_auto_reset=notice is not None,
        auto_reset_reason=None if notice is None else notice.reason,
        reset_had_activity=notice is not None and notice.had_activity,
    )


def _is_shared(context: SessionContext) -> bool:
    """Whether several people write in the session: then its key names none of them."""
    source = context.source
    if source.chat_type == "dm":
        return False
    per_user = redaction.per_user(context)
    key = context.session_key or build_session_key(source, per_user)
    return key == build_session_key(source, group_sessions_per_user=False)


def _left_behind(sessions_dir: Path) -> list[Path]:
    """The folder that holds that system's own files, if it left any.

    Its index and older transcripts stand in `sessions`, its database beside that folder.
    """
    home = sessions_dir.parent if sessions_dir.name == "sessions" else sessions_dir
    names = (sessions_dir / "sessions.json", home / "state.db")
    has_any = any(path.is_file() for path in names) or any(sessions_dir.glob("*.jsonl"))
    return [home] if has_any else []

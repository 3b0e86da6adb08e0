"""Hermes Agent's sessions: the source of a message, its key, its context, and the session store.

Times are naive and local, as Hermes Agent's code expects them; the store has them in UTC.
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
from tertulia.compat.hermes import pseudonyms
from tertulia.compat.hermes.config import GatewayConfig, HomeChannel, Platform, known_platform
from tertulia.compat.hermes.store_settings import settings_of
from tertulia.compat.local_times import to_local
from tertulia.core import context_prompt as prompts
from tertulia.core import keys
from tertulia.core import target as targets
from tertulia.core.session import Session
from tertulia.core.settings import Settings
from tertulia.core.source import Source
from tertulia.core.usage import Usage
from tertulia.errors import ConfigError, ProcessCheckFailed
from tertulia.platforms import registry
from tertulia.records.transcript import replace
from tertulia.store import Store

log = logging.getLogger("tertulia.compat.hermes")

_SOURCE_FIELDS = ("chat_name", "chat_type", "user_id", "user_name", "thread_id", "chat_topic")
_OPTIONAL_SOURCE_FIELDS = ("user_id_alt", "chat_id_alt")
_TOKEN_FIELDS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")
_ENTRY_FIELDS = (
    "display_name",
    "chat_type",
    *_TOKEN_FIELDS,
    "total_tokens",
    "last_prompt_tokens",
    "estimated_cost_usd",
    "cost_status",
    "was_auto_reset",
    "auto_reset_reason",
    "reset_had_activity",
)
_PAGE_SIZE = 1000


@dataclass
class SessionSource:
    """The source of a message."""

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
        """Return the source as text for people."""
        return _to_source(self).description

    def to_dict(self) -> dict[str, Any]:
        data = {"platform": self.platform.value, "chat_id": self.chat_id}
        data.update((name, getattr(self, name)) for name in _SOURCE_FIELDS)
        for name in _OPTIONAL_SOURCE_FIELDS:
            if getattr(self, name):
                data[name] = getattr(self, name)
        return data

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Parse the result of `to_dict`; raise ValueError for an unknown platform."""
        names = (*_SOURCE_FIELDS, *_OPTIONAL_SOURCE_FIELDS)
        values = {name: data[name] for name in names if data.get(name) is not None}
        return cls(Platform(data["platform"]), str(data["chat_id"]), **values)

    @classmethod
    def local_cli(cls) -> Self:
        """Return the source of the terminal of the machine that runs the agent."""
        terminal = Source.local()
        return cls(Platform.LOCAL, terminal.chat_id, terminal.chat_name)


@dataclass
class SessionContext:
    """The values that a prompt is built from."""

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
    """A copy of a session in the store, made at one time."""

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
        data: dict[str, Any] = {
            "session_key": self.session_key,
            "session_id": self.session_id,
            "created_at": self.created_at.isoformat(),
            "updated_at": self.updated_at.isoformat(),
            "platform": self.platform.value if self.platform else None,
        }
        data.update((name, getattr(self, name)) for name in _ENTRY_FIELDS)
        if self.origin is not None:
            data["origin"] = self.origin.to_dict()
        return data

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Parse the result of `to_dict`, or an older form of it with fewer fields."""
        origin = data.get("origin")
        if not isinstance(origin, Mapping) or known_platform(origin.get("platform")) is None:
            origin = None
        values = {name: data[name] for name in _ENTRY_FIELDS if data.get(name) is not None}
        return cls(
            session_key=data["session_key"],
            session_id=data["session_id"],
            created_at=datetime.fromisoformat(data["created_at"]),
            updated_at=datetime.fromisoformat(data["updated_at"]),
            origin=None if origin is None else SessionSource.from_dict(origin),
            platform=known_platform(data.get("platform")),
            **values,
        )


def build_session_key(source: SessionSource, group_sessions_per_user: bool = True) -> str:
    """Return the key of a source's conversation; two conversations never share a key."""
    return keys.session_key(_to_source(source), per_user=group_sessions_per_user)


def build_session_context(
    source: SessionSource, config: GatewayConfig, session_entry: SessionEntry | None = None
) -> SessionContext:
    """Return the values that a prompt is built from, for a source and a configuration."""
    connected = config.get_connected_platforms()
    homes = {
        platform: home
        for platform in connected
        if (home := config.get_home_channel(platform)) is not None
    }
    context = SessionContext(source, connected, homes)
    pseudonyms.set_config(context, config)
    if session_entry is not None:
        context.session_key = session_entry.session_key
        context.session_id = session_entry.session_id
        context.created_at = session_entry.created_at
        context.updated_at = session_entry.updated_at
    return context


def build_session_context_prompt(context: SessionContext, *, redact_pii: bool = False) -> str:
    """Return the section of the system prompt that describes the chat to the agent."""
    homes = {
        platform.value: targets.HomeChannel(home.chat_id, home.name)
        for platform, home in context.home_channels.items()
    }
    connected = (registry.platform(platform.value) for platform in context.connected_platforms)
    prompt_context = prompts.PromptContext(
        source=_to_source(context.source),
        platform=registry.platform(context.source.platform.value),
        shared=_is_shared(context),
        connected=tuple(connected),
        homes=homes,
        session_id=context.session_id,
    )
    redactor = pseudonyms.redactor_for(context) if redact_pii else None
    return prompts.context_prompt(prompt_context, redactor=redactor)


class SessionStore:
    """The sessions of a folder. `store` is the Tertulia store that contains them."""

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
        self._reopen_lock = threading.Lock()
        self._replaced_stores: list[Store] = []
        self._settings = settings_of(config, self._guard)
        self._store = store_folder.open_store(self.sessions_dir, self._settings)
        self.imported = store_folder.import_once(
            self._store, "hermes", _find_hermes_folders(self.sessions_dir)
        )
        pseudonyms.register_store(self)

    @property
    def store(self) -> Store:
        """Return the store, reopened if the configuration has changed since."""
        settings = settings_of(self.config, self._guard)
        if settings != self._settings:
            self._reopen(settings)
        return self._store

    # -- sessions

    def get_or_create_session(self, source: SessionSource, force_new: bool = False) -> SessionEntry:
        """Return the current session of a source under its policy, or a new one.

        If the policy ended the session before it, exactly one caller gets `was_auto_reset`.
        """
        sessions = self.store.sessions
        try:
            entry = _entry(session := sessions.open(_to_source(source), force_new=force_new))
        except ProcessCheckFailed as problem:
            # Hermes lets the exception of its function through.
            raise problem.__cause__ or problem from None
        ended = None if session.notice is None else sessions.get(session.notice.session_id)
        if ended is not None:
            # A caller that stores the transcript elsewhere shows activity only by its usage.
            entry.reset_had_activity = entry.reset_had_activity or ended.usage.total > 0
            self._notify_reset(ended)
        return entry

    def reset_session(self, key: str) -> SessionEntry | None:
        """End the current session and return a new one; None for an unknown key."""
        session = self.store.sessions.reset(key)
        return None if session is None else _entry(session)

    def switch_session(self, key: str, session_id: str) -> SessionEntry | None:
        """Make an earlier session of the same key current again; return None for an unknown key.

        Raise an error if the session does not exist or belongs to another conversation.
        """
        sessions = self.store.sessions
        if not sessions.find(key=key, limit=1).items:
            return None
        return _entry(sessions.switch(key, session_id))

    def list_sessions(self, active_minutes: float | None = None) -> list[SessionEntry]:
        """Return the current sessions, newest activity first."""
        entries: list[SessionEntry] = []
        cursor = None
        while True:
            page = self.store.sessions.find(
                state="current", active_minutes=active_minutes, limit=_PAGE_SIZE, cursor=cursor
            )
            entries += map(_entry, page.items)
            cursor = page.next
            if cursor is None:
                return entries

    def has_any_sessions(self) -> bool:
        """Return whether there is any session, also an ended one, besides the one just created."""
        return len(self.store.sessions.find(limit=2).items) > 1

    # -- usage

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
        """Add the usage of model calls to the current session of a key; ignore an unknown key.

        A last prompt of None changes nothing, 0 resets it.
        """
        store = self.store
        session = store.sessions.current(session_key)
        if session is None:
            return
        counts = (input_tokens, output_tokens, cache_read_tokens, cache_write_tokens)
        if not any(counts) and estimated_cost_usd is None and cost_status is None:
            # Not a model call: a ledger entry without a price would make known costs uncertain.
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
        """Store a message. It is stored only in the database, so `skip_db` has no effect.

        For an unknown id a session is created, ended and in no conversation, so that the message is
        not lost.
        """
        replace.append(self.store.context, session_id, message)

    def rewrite_transcript(self, session_id: str, messages: list[dict[str, Any]]) -> bool:
        """Replace the visible messages; the earlier ones can be restored."""
        replace.rewrite(self.store.context, session_id, messages)
        return True

    def load_transcript(self, session_id: str) -> list[dict[str, Any]]:
        """Return the messages as they were stored; an empty list for an unknown id."""
        store = self.store
        return [] if store.sessions.get(session_id) is None else store.transcript(session_id).load()

    def get_transcript_path(self, session_id: str) -> Path:
        """Write the transcript as JSON lines and return the path.

        For an unknown id nothing is written.
        """
        if self.store.sessions.get(session_id) is None:
            return store_folder.export_path(self.sessions_dir, session_id)
        return store_folder.export(self.sessions_dir, session_id, self.load_transcript(session_id))

    # -- closing

    def close(self) -> None:
        """Close the store; acknowledged writes are already stored."""
        pseudonyms.unregister_store(self)
        with self._reopen_lock:
            for store in (*self._replaced_stores, self._store):
                store.close()
            self._replaced_stores.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _reopen(self, settings: Settings) -> None:
        with self._reopen_lock:
            if settings != self._settings:
                # Other threads may still use the replaced store, so `close` closes it.
                self._replaced_stores.append(self._store)
                self._store = store_folder.open_store(self.sessions_dir, settings)
                self._settings = settings

    def _notify_reset(self, ended: Session) -> None:
        """Call `on_auto_reset` for a session that its policy ended."""
        if self._on_auto_reset is None:
            return
        try:
            self._on_auto_reset(_entry(ended))
        except Exception:
            # The new session is stored and its notice is given out once: raising would lose it.
            log.exception("on_auto_reset failed for session %s", ended.id)


def _to_source(source: SessionSource) -> Source:
    """Return the source as the store's type; raise ConfigError if its platform is no Platform."""
    platform: object = source.platform  # callers without a type checker may pass a name
    if not isinstance(platform, Platform):
        raise ConfigError(
            f"The platform of a source is {platform!r}.",
            hint="Give a member of Platform, such as Platform.TELEGRAM.",
            field="platform",
        )
    values = {name: getattr(source, name) for name in (*_SOURCE_FIELDS, *_OPTIONAL_SOURCE_FIELDS)}
    # Hermes Agent takes any chat type, such as "forum".
    return Source.from_dict({"platform": platform.value, "chat_id": source.chat_id, **values})


def _from_source(source: Source) -> SessionSource | None:
    """Return a stored source as Hermes Agent's type; None if it does not know the platform."""
    platform = known_platform(source.platform)
    if platform is None:
        return None
    values = {name: getattr(source, name) for name in (*_SOURCE_FIELDS, *_OPTIONAL_SOURCE_FIELDS)}
    return SessionSource(platform, source.chat_id, **values)


def _entry(session: Session) -> SessionEntry:
    origin, notice, usage = session.origin, session.notice, session.usage
    # The store uses the person's name if the chat has none; Hermes Agent does not.
    is_person_name = session.display_name == origin.user_name
    return SessionEntry(
        session_key=session.key,
        session_id=session.id,
        created_at=to_local(session.created_at),
        updated_at=to_local(session.updated_at),
        origin=_from_source(origin),
        display_name=origin.chat_name or (None if is_person_name else session.display_name),
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
    """Return whether several people share the session: then its key names none of them."""
    source = context.source
    if source.chat_type == "dm":
        return False
    per_user = pseudonyms.has_group_sessions_per_user(context)
    key = context.session_key or build_session_key(source, per_user)
    return key == build_session_key(source, group_sessions_per_user=False)


def _find_hermes_folders(sessions_dir: Path) -> list[Path]:
    """Return the folder with Hermes Agent's own files; an empty list if there are none.

    Its index and older transcripts are in `sessions`, its database is beside that folder.
    """
    home = sessions_dir.parent if sessions_dir.name == "sessions" else sessions_dir
    paths = (sessions_dir / "sessions.json", home / "state.db")
    has_any = any(path.is_file() for path in paths) or any(sessions_dir.glob("*.jsonl"))
    return [home] if has_any else []

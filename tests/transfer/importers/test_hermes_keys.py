"""After an import from Hermes, each origin opens its own session and nobody else's (law 8)."""

from __future__ import annotations

import json
import re
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tertulia
from tertulia import Policies, ResetPolicy, Settings, Source, Store
from tertulia.transfer import import_from
from tertulia.transfer.importers.hermes_keys import fits, imported_keys
from tests.transfer.foreign_folders import kind_of, names, planted
from tests.transfer.importers.source_files import HELLO, kinds, write

NEVER = Policies(default=ResetPolicy(mode="none"))
DEFAULT = Settings(zone="UTC", policies=NEVER)
SHARED_THREADS = Settings(zone="UTC", policies=NEVER, thread_sessions_shared=True)
GROUP = "-1005550100002"

# Searching what is left of a damaged database can take some seconds.
TREES = [
    pytest.param(name, marks=pytest.mark.check) if name.startswith("dmg_") else name
    for name in names()
]


@pytest.mark.parametrize("tree", TREES)
def test_each_origin_opens_its_own_session(tree: str, tmp_path: Path) -> None:
    with tertulia.open(tmp_path / "talk.db", settings=DEFAULT) as store:
        import_from(store, kind_of(tree), planted(tree, tmp_path))
        current = store.sessions.find(state="current", limit=1000).items
        assert current
        for session in current:
            is_mixed = session.metadata["imported"].get("key", "").endswith(":dm")
            if is_mixed and session.origin.platform != "local":
                continue  # all direct messages of a platform in one: it belongs to nobody
            assert store.sessions.open(session.origin).id == session.id, session.key


@pytest.mark.parametrize("tree", ["hermes013_dual", "hermes019_main", "hermes019_moved_home"])
def test_shared_thread_is_opened_by_everybody_where_threads_are_shared(
    tree: str, tmp_path: Path
) -> None:
    with tertulia.open(tmp_path / "talk.db", settings=SHARED_THREADS) as store:
        import_from(store, "hermes", planted(tree, tmp_path))
        for session in store.sessions.find(state="current", limit=1000).items:
            origin = session.origin
            assert store.sessions.open(origin).id == session.id
            if origin.thread_id and origin.chat_type != "dm":
                anybody = Source.from_dict({**origin.to_dict(), "user_id": "somebody"})
                assert store.sessions.open(anybody).id == session.id


def test_member_whose_id_is_a_topic_does_not_get_the_topic(tmp_path: Path) -> None:
    with tertulia.open(tmp_path / "talk.db", settings=DEFAULT) as store:
        import_from(store, "hermes", planted("hermes019_main", tmp_path))
        imported = {session.id for session in store.sessions.find(limit=1000).items}
        member = store.sessions.open(Source("telegram", GROUP, chat_type="group", user_id="4"))
        assert member.id not in imported
        assert store.transcript(member.id).load() == []


def test_ended_sessions_stand_under_the_key_of_the_current_one(tmp_path: Path) -> None:
    with tertulia.open(tmp_path / "talk.db", settings=DEFAULT) as store:
        import_from(store, "hermes", planted("hermes019_main", tmp_path))
        by_foreign: dict[str, set[str]] = {}
        for session in store.sessions.find(limit=1000).items:
            foreign = session.metadata["imported"].get("key")
            if foreign is not None:
                by_foreign.setdefault(foreign, set()).add(session.key)
        assert by_foreign
        assert all(len(keys) == 1 for keys in by_foreign.values())


def test_private_session_does_not_become_that_of_a_shared_thread(tmp_path: Path) -> None:
    """A person's own session in a thread is not handed to everybody in it."""
    with tertulia.open(tmp_path / "talk.db", settings=SHARED_THREADS) as store:
        import_from(store, "hermes", planted("hermes001_main", tmp_path))
        thread = Source("telegram", "-1005550110000", chat_type="group", thread_id="12")
        assert store.transcript(store.sessions.open(thread).id).load() == []


def test_key_that_does_not_fit_its_origin_is_isolated_and_reported(
    store: Store, folder: Path
) -> None:
    """The key says chat 7, the origin chat 42: neither chat may get the other's words."""
    _write_index(folder, {"agent:main:telegram:dm:7": Source("telegram", "42", user_id="42")})
    report = import_from(store, "hermes", folder.parent)
    assert kinds(report) == {"key_without_origin"}
    imported = store.sessions.find(limit=10).items[0]
    assert store.sessions.open(Source("telegram", "7", user_id="7")).id != imported.id
    assert imported.metadata["imported"]["key"] == "agent:main:telegram:dm:7"


def test_profile_session_is_opened_by_its_chat(folder: Path, tmp_path: Path) -> None:
    """Hermes sent this chat to another profile; the main agent has no session of it."""
    source = Source("telegram", "42", user_id="42")
    _write_index(folder, {"agent:coder:telegram:dm:42": source})
    with tertulia.open(tmp_path / "talk.db", settings=DEFAULT) as store:
        assert kinds(import_from(store, "hermes", folder.parent)) == set()
        session = store.sessions.find(limit=10).items[0]
        assert (session.agent, session.key) == ("coder", "agent:coder:telegram:dm:42")
        assert store.sessions.open(source).id == session.id


def test_chat_of_two_profiles_opens_the_session_of_the_stores_agent(
    folder: Path, tmp_path: Path
) -> None:
    source = Source("telegram", "42", user_id="42")
    keys = ("agent:coder:telegram:dm:42", "agent:main:telegram:dm:42")
    ids = _write_index(folder, dict.fromkeys(keys, source))
    with tertulia.open(tmp_path / "talk.db", settings=DEFAULT) as store:
        import_from(store, "hermes", folder.parent)
        assert store.sessions.open(source).id == ids["agent:main:telegram:dm:42"]


# -- stores of Hermes, generated

IDS = st.sampled_from(
    ["4", "5", "-100", "4:5", "group:1", "~4", "%3A", "ana", "1", "1@s.whatsapp.net",
     "1:47@s.whatsapp.net", "1@lid", "2@g.us", "!room:server", "\ud800", "a\x00b"]
)  # fmt: skip
MAYBE = st.none() | IDS
SOURCES = st.builds(
    Source,
    st.sampled_from(["telegram", "whatsapp", "signal"]),
    IDS,
    chat_type=st.sampled_from(["dm", "group", "channel", "thread"]),
    thread_id=MAYBE,
    user_id=MAYBE,
    user_id_alt=MAYBE,
)


def _hermes_key(source: Source, version: str) -> str:
    """Build a key as a version of Hermes does: parts as they are, joined by colons."""
    prefix = ["agent", "main", source.platform, source.chat_type]
    chat, thread, user = source.chat_id, source.thread_id, source.participant
    if version == "0.19" and source.platform == "whatsapp":
        chat = _bare(chat) if source.chat_type == "dm" else chat
        user = _bare(user) if user else None
    if source.chat_type == "dm":
        parts = [] if version == "002" else [chat, thread]
    elif version == "002":
        parts = [chat]
    else:
        parts = [chat, thread, None if version == "0.19" and thread else user]
    return ":".join([*prefix, *(part for part in parts if part)])


def _bare(address: str) -> str:
    return re.sub(r"(:\d+)?@.*", "", address) or address


def _write_index(folder: Path, origins: dict[str, Source]) -> dict[str, str]:
    """Write a home of Hermes with one session for each key; return their ids."""
    index: dict[str, Any] = {}
    for number, (key, source) in enumerate(origins.items()):
        session_id = f"20260301_100000_{number:08x}"
        index[key] = {
            "session_key": key, "session_id": session_id, "origin": source.to_dict(),
            "created_at": "2026-03-01T10:00:00", "updated_at": "2026-03-01T11:00:00",
        }  # fmt: skip
        write(folder / f"{session_id}.jsonl", HELLO)
    (folder / "sessions.json").write_text(json.dumps(index))
    return {key: entry["session_id"] for key, entry in index.items()}


@given(
    sources=st.lists(SOURCES, min_size=1, max_size=8),
    version=st.sampled_from(["001", "002", "0.19"]),
    threads_shared=st.booleans(),
)
def test_generated_store_opens_what_hermes_would_and_nothing_else(
    sources: list[Source], version: str, threads_shared: bool
) -> None:
    origins: dict[str, Source] = {}
    for source in sources:
        origins.setdefault(_hermes_key(source, version), source)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "home" / "sessions"
        folder.mkdir(parents=True)
        ids = _write_index(folder, origins)
        settings = SHARED_THREADS if threads_shared else DEFAULT
        with tertulia.open(Path(name) / "talk.db", settings=settings) as store:
            report = import_from(store, "hermes", folder.parent)
            assert "key_without_origin" not in kinds(report)
            keys_of = {session_id: key for key, session_id in ids.items()}
            for source in sources:
                opened = store.sessions.open(source).id
                if opened not in keys_of or keys_of[opened] == _hermes_key(source, version):
                    continue
                # A thread in which no sender was known is everybody's, where threads are shared.
                origin = origins[keys_of[opened]]
                assert threads_shared
                assert origin.participant is None
                assert store.sessions.key(origin) == store.sessions.key(source)
            for key, source in origins.items():
                if _has_one_reader(source, version, threads_shared):
                    assert store.sessions.open(source).id == ids[key]


def _has_one_reader(source: Source, version: str, threads_shared: bool) -> bool:
    """Return whether everybody who would open the session here had read it in Hermes."""
    if source.chat_type == "dm":
        return version != "002"  # all direct messages of a platform in one
    is_own = version == "001" and source.participant is not None
    return not (threads_shared and source.thread_id and is_own)


@given(
    pairs=st.dictionaries(
        st.lists(IDS, max_size=4).map(lambda parts: ":".join(["agent", "main", *parts])), SOURCES
    ),
    shared=st.booleans(),
)
def test_two_keys_never_become_one(pairs: dict[str, Source], shared: bool) -> None:
    """Whatever the keys and origins are: no two conversations share a key, nor a link."""
    imported = imported_keys(pairs, list(pairs)[::2], SHARED_THREADS if shared else DEFAULT)
    assert set(imported) == set(pairs)
    every = [item.key for item in imported.values()]
    every += [item.derived_key for item in imported.values() if item.derived_key]
    assert len(every) == len(set(every))


def test_key_fits_only_its_own_platform_type_and_chat() -> None:
    source = Source("telegram", "42", chat_type="group", user_id="7")
    assert fits("agent:main:telegram:group:42:7", source)
    assert fits("agent:main:telegram:group:42", source)
    for key in ("agent:main:signal:group:42:7", "agent:main:telegram:dm:42", "42", "",
                "agent:main:telegram:group:43:7", "agent:main:telegram:group:42:8"):  # fmt: skip
        assert not fits(key, source)

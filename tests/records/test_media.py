"""Files in the store: once by hash, deleted with their last conversation, carried along."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import tertulia
from tertulia import ConfigError, NotFound, Source, Store, TooLarge, aio

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 10
ANA = Source("telegram", "42", user_id="42")
BEN = Source("telegram", "43", user_id="43")


def talk(store: Store, who: Source, content: bytes = PNG) -> str:
    """Have a conversation with a file in it; return the hash of the file."""
    media = store.media.put(content, name="a.png")
    with store.turn(who, "Look!", media=[media.to_dict()]) as turn:
        turn.add_assistant("Nice.")
    return media.hash or ""


def test_file_is_stored_once_and_read_again(where: str, tmp_path: Path) -> None:
    with tertulia.open(where) as store, tertulia.open(where) as other:
        path = tmp_path / "photo.bin"
        path.write_bytes(PNG)
        first = store.media.put(PNG, name="../a.png", type="text/html")
        second = store.media.put(str(path))
        assert first.hash == second.hash
        assert (first.type, first.name, first.size) == ("image/png", "a.png", len(PNG))
        assert second.name == "photo.bin"
        assert other.media.get(first.hash or "") == PNG
        with other.media.open(first.hash or "") as file:
            assert file.read(4) == PNG[:4]
        assert store.media.get("0" * 64) is None
        assert store.media.get("not a hash") is None
        with pytest.raises(NotFound):
            store.media.open("0" * 64)


def test_size_and_path_are_checked(where: str, tmp_path: Path) -> None:
    with tertulia.open(where) as store:
        with pytest.raises(TooLarge):
            store.media.put(PNG, max_bytes=100)
        with pytest.raises(ConfigError):
            store.media.put(tmp_path / "missing")
        (tmp_path / "picture.png").write_bytes(PNG)
        with pytest.raises(TooLarge):
            store.media.put(tmp_path / "picture.png", max_bytes=100)
        assert store.media.put(tmp_path / "picture.png", max_bytes=10**30).size == len(PNG)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_what_is_no_file_is_refused_at_once(where: str, tmp_path: Path) -> None:
    """A device may have no end, and a pipe no writer."""
    os.mkfifo(tmp_path / "pipe")
    with tertulia.open(where) as store:
        for path in (tmp_path / "pipe", tmp_path, Path("/dev/null")):
            with pytest.raises(ConfigError, match="cannot be read") as refused:
                store.media.put(path)
            assert refused.value.field == "content"


def test_file_is_deleted_with_its_last_conversation(where: str) -> None:
    with tertulia.open(where) as store:
        hash_ = talk(store, ANA)
        assert talk(store, BEN) == hash_
        for who in (ANA, BEN):
            assert store.media.get(hash_) == PNG
            session = store.sessions.current(store.sessions.conversation(who))
            assert session is not None
            store.sessions.delete(session.id)
        assert store.media.get(hash_) is None
        assert store.check() == []


@pytest.mark.parametrize("way", ["turn", "transcript", "inbox"])
def test_what_put_returns_is_a_file_of_the_message(where: str, way: str) -> None:
    with tertulia.open(where) as store:
        file = store.media.put(PNG, name="photo.png")
        if way == "turn":
            with store.turn(ANA, "look", media=[file]):
                pass
        elif way == "transcript":
            session_id = store.sessions.open(ANA).id
            store.transcript(session_id).append(
                {"role": "user", "content": "look", "media": [file]}
            )
        else:
            item = store.inbox.put(ANA, "look", message_id="1", media=[file])
            assert item.media == (file.to_dict(),)
            (item,) = store.inbox.claim()
            with store.turn(item.source, item.text, message_id=item.message_id, media=item.media):
                pass
            store.inbox.done(item)
        session = store.sessions.open(ANA)
        assert store.transcript(session.id).load()[0]["media"] == [file.to_dict()]
        assert file.hash is not None
        store.sessions.delete(session.id)
        assert store.media.get(file.hash) is None


def test_fork_keeps_the_file(where: str) -> None:
    with tertulia.open(where) as store:
        hash_ = talk(store, ANA)
        session = store.sessions.current(store.sessions.conversation(ANA))
        assert session is not None
        fork = store.sessions.fork(session.id)
        store.sessions.delete(session.id)
        assert store.media.get(hash_) == PNG
        store.sessions.delete(fork.id)
        assert store.media.get(hash_) is None


def test_file_that_waits_to_be_sent_is_deleted_with_its_session(where: str) -> None:
    with tertulia.open(where) as store:
        session = store.sessions.open(ANA)
        media = store.media.put(PNG)
        store.outbox.put("", "origin", origin=ANA, session_id=session.id, media=media)
        store.sessions.delete(session.id)
        assert store.media.get(media.hash or "") is None


def test_clean_leaves_new_and_linked_files(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with tertulia.open(where) as store:
        linked = talk(store, ANA)
        pending = store.media.put(b"text").hash or ""
        assert store.media.clean() == 0
        monkeypatch.setattr("tertulia.records.media._PENDING_SECONDS", 0)
        assert store.media.clean() == 1
        assert store.media.get(pending) is None
        assert store.media.get(linked) == PNG


def test_archive_carries_files(where: str, tmp_path: Path) -> None:
    from tertulia.transfer.archive import restore, write_archive

    with tertulia.open(where) as store:
        hash_ = talk(store, ANA)
        write_archive(store, tmp_path / "all.zip")
    with tertulia.open(tmp_path / "copy.db") as copy:
        restore(copy, tmp_path / "all.zip")
        assert copy.media.get(hash_) == PNG


def test_async_twin(where: str) -> None:
    import asyncio

    async def play() -> None:
        async with aio.open(where) as store:
            media = await store.media.put(PNG)
            assert await store.media.get(media.hash or "") == PNG

    asyncio.run(play())

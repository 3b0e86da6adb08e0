"""The folders of other systems in `fixtures/trees.tar.xz`, and what is expected of each."""

from __future__ import annotations

import hashlib
import json
import os
import tarfile
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from tertulia import Session, Settings, Store
from tertulia.transfer import Kind

ARCHIVE = Path(__file__).parent / "fixtures/trees.tar.xz"
SETTINGS = Settings(zone="UTC")  # where the trees were written


@cache
def _members() -> dict[str, dict[str, Any]]:
    with tarfile.open(ARCHIVE) as archive:
        found = {}
        for member in archive:
            if member.name.endswith("/EXPECTED.json"):
                file = archive.extractfile(member)
                assert file is not None
                found[member.name.split("/")[0]] = json.load(file)
    return found


def names() -> list[str]:
    return sorted(_members())


def expected(tree: str) -> dict[str, Any]:
    return _members()[tree]


def kind_of(tree: str) -> Kind:
    return "hermes" if expected(tree)["format"].startswith("hermes") else "nanobot"


def planted(tree: str, into: Path) -> Path:
    """The store of a tree, unpacked."""
    with tarfile.open(ARCHIVE) as archive:
        inside = [member for member in archive if member.name.split("/")[0] == tree]
        # Links that lead out of the folder are what some trees are for.
        # An attribute: Python before 3.11.4 has no argument for it.
        archive.extraction_filter = getattr(tarfile, "fully_trusted_filter", None)
        archive.extractall(into, inside)
    return into / tree / "store"


def print_of(folder: Path) -> dict[str, tuple[Any, ...]]:
    """Everything that could change in a folder: names, contents, times and rights."""
    found: dict[str, tuple[Any, ...]] = {}
    for place, folders, files in os.walk(folder):
        for name in [*folders, *files]:
            path = Path(place) / name
            state = path.lstat()
            is_file = path.is_file() and not path.is_symlink()
            digest = hashlib.sha256(path.read_bytes()).hexdigest() if is_file else ""
            found[str(path.relative_to(folder))] = (
                digest, state.st_mode, state.st_mtime_ns, state.st_size,
            )  # fmt: skip
    return found


def all_sessions(store: Store) -> list[Session]:
    found: list[Session] = []
    cursor = None
    while True:
        page = store.sessions.find(limit=1000, cursor=cursor)
        found += page.items
        if page.next is None:
            return found
        cursor = page.next


def dump(store: Store) -> dict[str, Any]:
    """All that an import brings, in a form that can be compared."""
    found: dict[str, Any] = {}
    for session in all_sessions(store):
        plain = session.to_dict()
        del plain["version"]
        plain["messages"] = [
            (m.seq, m.turn, m.role, m.kind, m.micros, m.author, m.body)
            for m in store.transcript(session.id).entries()
        ]
        plain["history"] = store.transcript(session.id).history()
        found[session.id] = plain
    usage = {name: repr(used) for name, used in store.usage.sum(by="session").items()}
    return {"sessions": found, "usage": usage}


def words_of(content: object) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    return "\n".join(
        part["text"]
        for part in content
        if isinstance(part, dict) and part.get("type") == "text" and isinstance(part["text"], str)
    )


def digest_of(messages: Iterable[Mapping[str, Any]]) -> str:
    """The hash that EXPECTED.json has of the messages of a session."""
    found = hashlib.sha256()
    for message in messages:
        words = f"{message['role']}\0{words_of(message.get('content'))}"
        found.update(words.encode("utf-8", "surrogatepass"))
    return found.hexdigest()


def moment(value: object) -> datetime | None:
    """A time of EXPECTED.json: seconds since 1970, or a text in the zone of its writer."""
    if isinstance(value, int | float):
        return datetime.fromtimestamp(value, UTC)
    return datetime.fromisoformat(value).replace(tzinfo=UTC) if isinstance(value, str) else None

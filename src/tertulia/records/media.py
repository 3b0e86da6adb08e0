"""Files of messages: stored once by hash, outside of the messages, and deleted with the last one.

The bytes of a file are a blob named `media:HASH`. A message whose `media` names the hash links the
blob; deleting the last conversation that links it deletes the bytes too. A file that no message
links yet is noted as pending, and is deleted after a week (decision 0016).
"""

from __future__ import annotations

import hashlib
import io
import os
import stat
from collections.abc import Iterable
from typing import BinaryIO, Final

from tertulia.core.arguments import checks_arguments
from tertulia.core.media import Media, is_hash, read_type, safe_name
from tertulia.core.message import blob_of_file
from tertulia.core.text.storable import storable
from tertulia.errors import ConfigError, NotFound, TooLarge
from tertulia.records.store_context import StoreContext
from tertulia.storage.base import Transaction
from tertulia.storage.rows import to_micros

_PENDING_SECONDS: Final = 7 * 86_400
_CLEAN_LIMIT: Final = 100
_NONBLOCK: Final = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)  # as the system has it


@checks_arguments
class MediaFiles:
    """The files of a store."""

    def __init__(self, context: StoreContext) -> None:
        self._db = context.db
        self._clock = context.clock

    def put(
        self,
        content: bytes | str | os.PathLike[str],
        *,
        name: str | None = None,
        type: str | None = None,
        max_bytes: int | None = None,
    ) -> Media:
        """Store a file, given by its bytes or its path, and return its description.

        The type is read from the bytes, and the name is made safe. Raises `TooLarge` if the file
        has more than `max_bytes`, and `ConfigError` if there is no file at the path.
        """
        if not isinstance(content, bytes):
            name = name if name is not None else os.path.basename(os.fspath(content))
            content = _read(content, max_bytes)
        if max_bytes is not None and len(content) > max_bytes:
            raise _too_large(max_bytes)
        hash_ = hashlib.sha256(content).hexdigest()
        blob = {
            "hash": blob_of_file(hash_),
            "size": len(content),
            "data": content,
            "at": to_micros(self._clock.now()),
        }

        def work(tx: Transaction) -> None:
            tx.run("media_put", blob)
            row = tx.one("media_is_linked", {"hash": blob["hash"]})
            if row is None or not row[0]:
                tx.run("media_put_pending", {"hash": blob["hash"]})

        self._db.write(work)
        media_type = read_type(content, type)
        return Media(
            type=media_type,
            name=storable(safe_name(name, media_type)),
            size=len(content),
            hash=hash_,
        )

    def get(self, hash: str) -> bytes | None:
        """Return the bytes of a file, or None if it is not stored (any more)."""
        if not is_hash(hash):
            return None
        row = self._db.read(lambda tx: tx.one("blob_data", {"hash": blob_of_file(hash)}))
        return None if row is None else bytes(row[0])

    def open(self, hash: str) -> BinaryIO:
        """Return a file to read from; raise `NotFound` if it is not stored (any more)."""
        content = self.get(hash)
        if content is None:
            raise NotFound(
                "There is no such file.",
                hint="It was deleted: with its last conversation, or by the retention of files.",
            )
        return io.BytesIO(content)

    def clean(self) -> int:
        """Delete files that no message has linked for a week; return how many were deleted."""
        params = {"age": _PENDING_SECONDS * 1_000_000, "limit": _CLEAN_LIMIT}

        def work(tx: Transaction) -> int:
            rows = tx.all("media_old_pending", params)
            release(tx, [name for (name,) in rows])
            return len(rows)

        return self._db.write(work)


def release(tx: Transaction, names: Iterable[str]) -> None:
    """Delete blobs of files that are needed no more, unless a message links them."""
    for name in names:
        tx.run("media_delete_unlinked", {"hash": name})
        tx.run("media_settle", {"hash": name})


def delete_old_files(tx: Transaction, *, before: int, limit: int) -> int:
    """Delete the oldest files that were stored before a time, also linked ones; return how many."""
    rows = tx.all("media_old", {"before": before, "limit": limit})
    count = 0
    for (name,) in rows:
        if tx.changed("media_delete_old", {"hash": name, "before": before}):
            tx.run("media_unlink", {"hash": name})
            count += 1
    return count


def _read(path: str | os.PathLike[str], max_bytes: int | None) -> bytes:
    try:
        # Opening a pipe must not wait for its writer.
        with open(os.open(path, os.O_RDONLY | _NONBLOCK), "rb") as file:
            status = os.fstat(file.fileno())
            is_file = stat.S_ISREG(status.st_mode)
            is_small = max_bytes is None or status.st_size <= max_bytes
            content = file.read() if is_file and is_small else b""
    except (OSError, ValueError) as problem:  # ValueError: NUL or a lone surrogate in the path
        reason = problem.strerror if isinstance(problem, OSError) else "no file has such a name"
        raise _unreadable(reason) from problem
    if not is_file:
        raise _unreadable("it is a device or a pipe, which may have no end")
    if max_bytes is not None and not is_small:
        raise _too_large(max_bytes)
    return content


def _unreadable(reason: str | None) -> ConfigError:
    return ConfigError(
        f"The file cannot be read: {reason}.",
        hint="Give the bytes, or the path of a file that this user may read.",
        field="content",
    )


def _too_large(max_bytes: int) -> TooLarge:
    return TooLarge(f"The file has more than {max_bytes:,} bytes.", hint="Give a larger max_bytes.")

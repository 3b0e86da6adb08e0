"""The id by which each person is known: a phone number, or an id that WhatsApp made.

WhatsApp names a person by an id of its own, and by the phone number unless the person hides it. A
person who was known by the number stays so when the number is hidden later, or one conversation
would become two. The pairs are kept in a file of the account, one line for each person.
"""

from __future__ import annotations

import asyncio
import json
import os

from tertulia.errors import PlatformUnavailable
from tertulia.private_files import make_private_folder, open_private


class KnownIds:
    """The pairs of ids; without a file they are forgotten with the process."""

    def __init__(self, path: str | None = None) -> None:
        self._path = path
        self._ids: dict[str, str] = {}
        self._read_bytes = 0

    async def resolve(self, user_id: str | None, number: str | None) -> tuple[str, str | None]:
        """Return the id by which the person is known, and the number if that is it.

        Raises `ValueError` if there is neither id. A new pair is stored when this returns; raises
        `PlatformUnavailable` if it cannot be.
        """
        if user_id is None:
            if number is None:
                raise ValueError("a message without a sender")
            return number, number
        known_id = self._ids.get(user_id)
        if known_id is None:
            try:
                known_id = await asyncio.to_thread(self._read_or_add, user_id, number or user_id)
            except OSError as problem:
                raise PlatformUnavailable(
                    f"The ids of people cannot be stored ({type(problem).__name__}).",
                    hint="Make room on the disk, or correct the rights of the data folder.",
                ) from problem
        return known_id, None if known_id == user_id else known_id

    def _read_or_add(self, user_id: str, new_id: str) -> str:
        if self._path is None:
            return self._ids.setdefault(user_id, new_id)
        self._read()
        if user_id in self._ids:
            return self._ids[user_id]  # another gateway on this machine has written it
        make_private_folder(os.path.dirname(self._path))
        # It begins a line of its own, also after one that a crash cut off.
        line = f"\n{json.dumps([user_id, new_id])}\n"
        handle = open_private(self._path, os.O_WRONLY | os.O_APPEND)
        try:
            os.write(handle, line.encode())
            os.fsync(handle)
        finally:
            os.close(handle)
        self._read()  # of two gateways that wrote at once, the first line counts
        return self._ids.setdefault(user_id, new_id)

    def _read(self) -> None:
        """Read the lines that were added since the last time."""
        assert self._path is not None
        try:
            with open(self._path, "rb") as file:
                file.seek(self._read_bytes)
                lines = file.read().splitlines(keepends=True)
        except FileNotFoundError:
            return
        for line in lines:
            if not line.endswith(b"\n"):
                break  # it is being written
            self._read_bytes += len(line)
            try:
                user_id, known_id = json.loads(line)
            except (ValueError, TypeError):
                continue  # empty, or cut off by a crash
            self._ids.setdefault(user_id, known_id)

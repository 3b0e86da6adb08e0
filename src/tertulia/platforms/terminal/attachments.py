"""Files that go with the next message: `/attach FILE…`, `/detach N`, and `@path` in a message."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Awaitable, Callable
from typing import Final

from tertulia.core.media import Media
from tertulia.core.text.display_safe import display_line
from tertulia.errors import ConfigError, Error
from tertulia.platforms.base import MenuEntry

ATTACH: Final = "/attach"
DETACH: Final = "/detach"
ENTRIES: Final = (
    MenuEntry("attach", "send files with the next message: /attach FILE…"),
    MenuEntry("detach", "do not send a file: /detach NUMBER"),
)
_PATH: Final = re.compile(r'(?<!\S)@(?:"([^"]+)"|(\S+))')

StoreFile = Callable[[str], Awaitable[Media]]


class Attachments:
    """The files of the next message. `store_file` stores the file of a path, or raises an error."""

    def __init__(self) -> None:
        self.store_file: StoreFile | None = None
        self._files: list[Media] = []

    @property
    def description(self) -> str:
        """Return the files in one line, each with its number; empty if there are none."""
        return "  ".join(
            f"[{number}] {_describe(file)}" for number, file in enumerate(self._files, 1)
        )

    async def run(self, command: str) -> str:
        """Run /attach or /detach and return what to say; raise an error if a file is unusable."""
        name, *arguments = _split(command)
        if name == DETACH:
            return self._detach(arguments)
        if not arguments:
            return self.description or "Name the files: /attach FILE…"
        files = [await self._store(path) for path in arguments]
        self._files += files
        return f"With the next message: {self.description}"

    def _detach(self, arguments: list[str]) -> str:
        if not arguments:
            self._files.clear()
            return "No file goes with the next message."
        number = int(arguments[0]) if arguments[0].isdecimal() else 0
        if not 1 <= number <= len(self._files):
            raise ConfigError(
                f"There is no file {arguments[0]}.", hint=f"Attached: {self.description or 'none'}."
            )
        return f"Not sent: {_describe(self._files.pop(number - 1))}"

    async def take(self, text: str) -> tuple[str, tuple[Media, ...]]:
        r"""Return a text and its files: those attached before, and those it names as `@path`.

        `@name` without such a file stays as it is, and `\@` is an @. Raise an error, and keep the
        files, if one of them is unusable.
        """
        files = [await self._store(path) for path in _named_files(text)]
        attached, self._files = (*self._files, *files), []
        return re.sub(r"(?<!\S)\\@", "@", text), attached

    def put_back(self, files: tuple[Media, ...]) -> None:
        """Attach files again whose message could not be stored."""
        self._files = [*files, *self._files]

    async def _store(self, path: str) -> Media:
        if self.store_file is None:
            raise ConfigError("No files can be attached here.", hint="Use `tertulia chat`.")
        return await self.store_file(_expand(path))


def is_attachment_command(text: str) -> bool:
    """Return whether a text is /attach or /detach."""
    return text.split(maxsplit=1)[:1] in ([ATTACH], [DETACH])


def describe_problem(problem: Error) -> str:
    """Return an error and its hint in one line."""
    return display_line(f"{problem.message} {problem.hint or ''}".strip(), 400)


def _named_files(text: str) -> list[str]:
    paths = [quoted or bare for quoted, bare in _PATH.findall(text)]
    return [path for path in paths if os.path.isfile(_expand(path))]


def _split(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:  # a quote that is not closed, as in a name with an apostrophe
        return command.split()


def _expand(path: str) -> str:
    return os.path.expanduser(path)


def _describe(file: Media) -> str:
    return f"{display_line(file.name or 'file', 60)} {_size(file.size or 0)}"


def _size(count: int) -> str:
    if count < 1000:
        return f"{count} B"
    return f"{count / 1e3:.0f} KB" if count < 1e6 else f"{count / 1e6:.1f} MB"

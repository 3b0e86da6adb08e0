"""Completion of commands, and of the paths of files that go with a message."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Final, NamedTuple
from urllib.parse import unquote, urlsplit

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from tertulia.core.text.display_safe import display_line
from tertulia.platforms.base import MenuEntry
from tertulia.platforms.terminal.attachments import ATTACH

EXPORT: Final = "/export"
_MAX_ENTRIES: Final = 200  # of a folder that are offered
# The word before the cursor, if it is @path in a message or the argument of a command.
_AT_PATH: Final = re.compile(r'(?<!\S)@(?P<quote>"?)(?P<path>[^"\n]*)$')
_BARE: Final = re.compile(r"\S*$")
_ARGUMENT: Final = re.compile(r'(?<=\s)(?P<quote>"?)(?P<path>[^"\n]*)$')


class _PathWord(NamedTuple):
    """A path that is being typed: what stands before the cursor, and the path in it."""

    typed: str
    path: str
    mark: str  # "@" in a message, "" as an argument
    is_quoted: bool


class InputCompleter(Completer):
    """Completes commands after a slash, and paths after /attach, /export and an @."""

    def __init__(self, menu: Callable[[], Iterable[MenuEntry]]) -> None:
        self.pasted = ""  # the text that was pasted last, if it is the path of a file
        self._menu = menu

    def get_completions(
        self, document: Document, complete_event: CompleteEvent
    ) -> Iterator[Completion]:
        text = document.text_before_cursor
        if self.pasted and text.endswith(self.pasted):
            path = pasted_file(self.pasted)
            if path is not None:
                yield _attachment(path, self.pasted)
            return
        if text.startswith("/") and not set(document.text) & set(" \n"):
            yield from self._commands(text)
            return
        word = _path_word(text)
        if word is not None:
            yield from _paths(word)

    def _commands(self, typed: str) -> Iterator[Completion]:
        for entry in self._menu():
            if entry.name.startswith(typed[1:].lower()):
                yield Completion(
                    f"/{entry.name}", start_position=-len(typed), display_meta=entry.description
                )


def pasted_file(text: str) -> str | None:
    """Return the file whose path a pasted text is; None if it is anything else.

    Terminals paste a file that is dropped on them as a quoted path, a path with backslashes, or an
    address with file://.
    """
    line = text.strip()
    if not line or "\n" in line or len(line) > 4096:
        return None
    path = unquote(urlsplit(line).path) if line.startswith("file://") else line
    candidates: list[str] = [path]
    with suppress(ValueError):  # a quote that is not closed
        words = shlex.split(path)
        candidates += words if len(words) == 1 else ()
    for candidate in candidates:
        is_path = candidate.startswith(("/", "~/", "./", "../"))
        if is_path and os.path.isfile(os.path.expanduser(candidate)):
            return candidate
    return None


def _attachment(path: str, typed: str) -> Completion:
    return Completion(
        f"{_written(path, '@')} ",
        start_position=-len(typed),
        display=f"@{display_line(os.path.basename(path), 60)}",
        display_meta="attach this file",
    )


def _path_word(text: str) -> _PathWord | None:
    """Return the path that is being typed before the cursor, if there is one."""
    is_argument = text.startswith((f"{ATTACH} ", f"{EXPORT} "))
    if text.startswith("/") and not is_argument:
        return None
    match = (_ARGUMENT if is_argument else _AT_PATH).search(text)
    if match is None:
        return None
    path, is_quoted = match["path"], bool(match["quote"])
    if not is_quoted and re.search(r"\s", path):  # the word ended before
        bare = _BARE.search(text)
        if not is_argument or bare is None:
            return None
        return _PathWord(bare[0], bare[0], "", is_quoted=False)
    return _PathWord(match[0], path, "" if is_argument else "@", is_quoted)


def _paths(word: _PathWord) -> Iterator[Completion]:
    """Yield the entries of a folder that begin as the path does, folders with a slash."""
    folder, name = os.path.split(word.path)
    try:
        with os.scandir(os.path.expanduser(folder) or ".") as entries:
            matching = [entry for entry in entries if entry.name.startswith(name)]
            visible = [entry for entry in matching if name or not entry.name.startswith(".")]
            names = sorted(f"{entry.name}/" if entry.is_dir() else entry.name for entry in visible)
    except OSError:  # no such folder, or not to be read
        return
    for entry_name in names[:_MAX_ENTRIES]:
        path = os.path.join(folder, entry_name)
        is_open = word.is_quoted or not _is_plain(path)
        yield Completion(
            _written(path, word.mark, is_closed=not path.endswith("/"), is_quoted=is_open),
            start_position=-len(word.typed),
            display=display_line(entry_name, 60),
        )


def _written(path: str, mark: str, *, is_closed: bool = True, is_quoted: bool | None = None) -> str:
    """Return a path as it is typed: in quotes if it has spaces; those of a folder stay open."""
    if not (not _is_plain(path) if is_quoted is None else is_quoted):
        return f"{mark}{path}"
    return f'{mark}"{path}"' if is_closed else f'{mark}"{path}'


def _is_plain(path: str) -> bool:
    return re.search(r"[\s\"'\\]", path) is None

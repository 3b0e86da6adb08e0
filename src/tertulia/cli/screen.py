"""rich's console, loaded only where something is printed for people."""

from __future__ import annotations

from typing import NoReturn

from rich.console import Console


class Screen(Console):
    """A console that leaves it to the program how it ends."""

    def on_broken_pipe(self) -> NoReturn:
        raise BrokenPipeError

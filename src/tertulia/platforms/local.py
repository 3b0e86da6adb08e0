"""The platform `local`: the terminal of this machine. `terminal/` has its adapter."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from tertulia.core.source import LOCAL
from tertulia.platforms.base import Adapter
from tertulia.platforms.definition import BuildContext, PlatformDefinition
from tertulia.platforms.settings import PlatformSection
from tertulia.private_files import make_private_folder


class LocalSettings(PlatformSection, frozen=True, kw_only=True):
    """The terminal of this machine. The person who uses it is the owner.

    enabled   whether `tertulia run` answers in its terminal, if it has one
    history   the file with the lines typed before; default: a file in the state folder; "": no file
    plain     print whole lines and words instead of marks, for screen readers
    style     how parts of the conversation look: attributes and colours by the name of the part
    """

    history: str | None = None
    plain: bool = False
    style: Mapping[str, str] = {}

    def __post_init__(self) -> None:
        if self.style:
            # Loaded only for this: a program that only uses the store needs no terminal.
            from tertulia.platforms.terminal.theme import check_styles

            check_styles(self.style)


def build(context: BuildContext) -> Adapter:
    """Return the adapter that reads from and prints to this terminal."""
    # The adapter needs asyncio, which a program that only uses the store does not load.
    from tertulia.platforms.terminal.adapter import TerminalAdapter

    settings = context.settings
    return TerminalAdapter(
        history=_history_file(settings), is_plain=settings.plain, style=settings.style
    )


def _history_file(settings: LocalSettings) -> str | None:
    """Return the file that keeps the typed lines, readable by this user only.

    None if the input is no terminal, the history is turned off, or the file cannot be created; then
    the lines are remembered until the program ends.
    """
    if not sys.stdin.isatty() or settings.history == "":
        return None
    import platformdirs

    folder = platformdirs.user_state_path("tertulia", appauthor=False)
    path = os.path.expanduser(settings.history or str(folder / "history"))
    try:
        make_private_folder(os.path.dirname(path) or ".")
        os.close(os.open(path, os.O_CREAT | os.O_APPEND, 0o600))
    except OSError:
        return None
    return path


PLATFORM = PlatformDefinition(
    LOCAL, "Local", length_limit=None, markdown="markdown", settings=LocalSettings, build=build
)

"""Arguments of chat commands that more than one command takes."""

from __future__ import annotations

import re

from tertulia.core.text.prompt_safe import clean_for_prompt
from tertulia.errors import IllegalMove


def parse_number(text: str, *, thing: str, listed_by: str) -> int:
    """Return the number in a list that a person typed; `listed_by` is the command that lists."""
    if not re.fullmatch(r"[0-9]{1,12}", text):
        raise IllegalMove(
            f"{clean_for_prompt(text, 20)!r} is not the number of {thing}.",
            hint=f"{listed_by} lists them.",
        )
    return int(text)

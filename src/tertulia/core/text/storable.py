"""Text that every supported database can store."""

from __future__ import annotations

from typing import overload


@overload
def storable(text: str) -> str: ...
@overload
def storable(text: None) -> None: ...


def storable(text: str | None) -> str | None:
    """Return the text with unpaired surrogates and NUL replaced; None stays None."""
    if text is None or (text.isascii() and "\x00" not in text):
        return text
    return text.encode("utf-8", "replace").decode().replace("\x00", "\ufffd")

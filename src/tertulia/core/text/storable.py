"""Text that every supported database can store."""

from __future__ import annotations

from typing import overload


@overload
def storable(text: str) -> str: ...
@overload
def storable(text: None) -> None: ...


def storable(text: str | None) -> str | None:
    """Return the text with unpaired surrogates and NUL replaced; None stays None."""
    if text is None:
        return None
    return text.encode("utf-8", "replace").decode().replace("\x00", "\ufffd")

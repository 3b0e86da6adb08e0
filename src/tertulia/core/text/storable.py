"""Text that every supported database can store."""

from __future__ import annotations


def storable(text: str | None) -> str | None:
    """Return the text with unpaired surrogates and NUL replaced; None stays None."""
    if text is None:
        return None
    return text.encode("utf-8", "replace").decode().replace("\x00", "\ufffd")

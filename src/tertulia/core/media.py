"""A file of a message: a picture, a voice note, a document."""

from __future__ import annotations

from typing import Any

import msgspec


class Media(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=False):
    """A file of a message: what is stored of it in a transcript, without its bytes.

    type      the media type (`image/png`); read from the bytes once they are stored
    name      the file name; made safe once the file is stored
    size      the number of bytes, or None while it is unknown
    hash      the SHA-256 of the bytes in hex, under which `store.media` has them; None before
    source    the platform's own reference, from which `Adapter.fetch` gets the bytes
    problem   why the file could not be fetched, for the agent and the person; None if it was
    """

    type: str | None = None
    name: str | None = None
    size: int | None = None
    hash: str | None = None
    source: str | None = None
    problem: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as a dict; `problem` only if it is set."""
        fields = msgspec.structs.asdict(self)
        if self.problem is None:
            del fields["problem"]
        return fields

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> Media:
        """Return the media of a stored dict, without unknown fields and values of wrong types."""
        texts = ("type", "name", "hash", "source", "problem")
        values: dict[str, Any] = {
            name: fields[name] for name in texts if isinstance(fields.get(name), str)
        }
        size = fields.get("size")
        return cls(**values, size=size if isinstance(size, int) else None)

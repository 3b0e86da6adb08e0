"""The properties of a model that the rendering of a history depends on."""

from __future__ import annotations

import msgspec


class ModelTraits(msgspec.Struct, frozen=True):
    """The model that a history is rendered for.

    name              its name, as the messages it wrote are stored with it (`model`)
    sees_images       whether it accepts images; else it reads a line instead of each
    reads_documents   whether it accepts PDF files; else it reads their text
    """

    name: str
    sees_images: bool = True
    reads_documents: bool = False

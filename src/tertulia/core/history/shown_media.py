"""The files of a history that a model is shown, and the texts that stand for the others.

An image is sent again with every request, so only the newest are shown: those of the newest turns
that have any. Providers cache a prompt from its beginning, and hiding an image changes it there. So
images are hidden in jumps: nothing is hidden until there are more than the limits allow, and then
as many as make room for several turns. The choice depends only on the order of the files in the
history: a request shows the same files as the one before it, up to such a jump.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from tertulia.core.history import tokens
from tertulia.core.history.content import IMAGE, Part
from tertulia.core.history.model_traits import ModelTraits
from tertulia.core.history.repair import Block
from tertulia.core.history.shortening import shorten_middle
from tertulia.core.history.window import split_turns
from tertulia.core.media import Media, PreparedMedia
from tertulia.core.message import Message
from tertulia.core.text import heads
from tertulia.core.text.prompt_safe import quote_text

# More turns with files, files, or bytes than these cause a jump.
MAX_TURNS: Final = 8
MAX_FILES: Final = 20
MAX_BYTES: Final = 16_000_000
# How many of them stay shown after a jump.
_KEPT_TURNS: Final = 4
_KEPT_FILES: Final = 10
_KEPT_BYTES: Final = 8_000_000

MAX_TEXT: Final = 100_000  # characters of the text of a file
_CAPTION_LENGTH: Final = 600
_PIXELS_PER_TOKEN: Final = 750
# About the tokens that a provider charges for one page of a document, as text and as an image.
_TOKENS_PER_PAGE: Final = 2_000

# A file of the field `media`, or a part of the content, by session, number and index.
Position = tuple[int, int, str, int]


class _File(NamedTuple):
    position: Position
    turn: int
    size: int
    hash: str | None = None


class MediaView(NamedTuple):
    """The files that are shown, and their bytes in base64 by hash."""

    model: ModelTraits
    shown: frozenset[Position]
    contents: Mapping[str, str] = {}
    text_limit: int = MAX_TEXT

    def hide_parts(self, row: Message, content: Any) -> Any:
        """Return content without the image parts that are not shown."""
        if not isinstance(content, list):
            return content
        return [
            part
            if not _is_image(part) or (row.session, row.seq, "part", index) in self.shown
            else {"type": "text", "text": f"[image: {self._reason(row)}]"}
            for index, part in enumerate(content)
        ]

    def parts(self, row: Message) -> list[Part]:
        """Return the content parts for the files of a message, in the OpenAI form."""
        return [self._part(row, index, media) for index, media in _files_of(row)]

    def _part(self, row: Message, index: int, media: Media) -> Part:
        prepared = media.prepared
        name = f" {quote_text(media.name, 80)}" if media.name else ""
        if media.problem is not None or prepared is None:
            reason = f"not received, {media.problem}" if media.problem else "not shown"
            return _text(f"[{_noun_of(media.type)}{name}: {reason}]")
        if prepared.kind == "image":
            return self._image(row, index, name, prepared)
        if prepared.kind == "document" and self.model.reads_documents:
            return self._document(row, index, media, prepared)
        if prepared.kind in ("text", "document"):
            noun = "document" if prepared.kind == "document" else "file"
            return _text(self._quote(f"{noun}{name}", media, prepared))
        if prepared.kind == "audio":
            return _text(f"[audio{name}: transcribed above]")
        return _text(f"[{_noun_of(media.type)}{name}: not shown, {prepared.problem}]")

    def _image(self, row: Message, index: int, name: str, prepared: PreparedMedia) -> Part:
        data = self._data(row, index, prepared)
        if data is not None:
            return {"type": IMAGE, IMAGE: {"url": f"data:{prepared.type};base64,{data}"}}
        if not self.model.sees_images and prepared.caption:
            caption = quote_text(prepared.caption, _CAPTION_LENGTH)
            return _text(f"[image{name}, described by another model: {caption}]")
        return _text(f"[image{name}: {self._reason(row)}]")

    def _document(self, row: Message, index: int, media: Media, prepared: PreparedMedia) -> Part:
        data = self._data(row, index, prepared)
        if data is None:
            return _text(f"[document {quote_text(media.name or '', 80)}: {self._reason(row)}]")
        file = {
            "filename": media.name or "file.pdf",
            "file_data": f"data:application/pdf;base64,{data}",
        }
        return {"type": "file", "file": file}

    def _data(self, row: Message, index: int, prepared: PreparedMedia) -> str | None:
        """Return the bytes of a file in base64, or None if it is not shown or was deleted."""
        if (row.session, row.seq, "media", index) not in self.shown:
            return None
        return self.contents.get(prepared.hash or "")

    def _reason(self, row: Message) -> str:
        """Return why a file of a message is not shown."""
        if not self.model.sees_images:
            return "this model cannot see images"
        # One of the same message is shown, so this one never was.
        has_shown = any(position[:2] == (row.session, row.seq) for position in self.shown)
        return "not shown, there are too many at once" if has_shown else "shown earlier"

    def _quote(self, title: str, media: Media, prepared: PreparedMedia) -> str:
        """Return the text of a file between two lines that its author could not write.

        They contain a part of the hash of the file, which no file can contain.
        """
        if not (prepared.text or "").strip():
            return f"[{title}: it has no text]"
        text = heads.guard_heads(shorten_middle(prepared.text or "", self.text_limit))
        mark = (media.hash or "")[:16]
        return f"[{title} begins, {mark}]\n{text}\n[{mark} ends]"


def choose_shown(blocks: Sequence[Block], model: ModelTraits) -> frozenset[Position]:
    """Return the positions of the files that the model is shown."""
    shown: list[_File] = []
    for file in _find_files(blocks, model):
        shown.append(file)
        if _exceeds(shown, MAX_TURNS, MAX_FILES, MAX_BYTES):
            while len(shown) > 1 and _exceeds(shown, _KEPT_TURNS, _KEPT_FILES, _KEPT_BYTES):
                shown.pop(0)
    return frozenset(file.position for file in shown)


def hashes_to_load(
    blocks: Sequence[Block], shown: frozenset[Position], model: ModelTraits
) -> set[str]:
    """Return the hashes of the files that are shown and stored apart from their message."""
    files = _find_files(blocks, model)
    return {file.hash for file in files if file.hash is not None and file.position in shown}


def count_media_tokens(row: Message, model: ModelTraits, text_limit: int) -> int:
    """Return the estimated tokens of a message's files.

    An image weighs the same while it is shown and later: else a history that is cut could grow
    again at its beginning when an image is hidden, and prompt caches would be lost.
    """
    total = 0
    for _, media in _files_of(row):
        prepared = media.prepared
        if prepared is None:
            total += 20
        elif prepared.kind == "image" and model.sees_images:
            total += prepared.width * prepared.height // _PIXELS_PER_TOKEN
        elif prepared.kind == "document" and model.reads_documents:
            total += prepared.pages * _TOKENS_PER_PAGE
        else:
            text = shorten_middle(prepared.text or prepared.caption or "", text_limit)
            total += 20 + tokens.estimate_tokens(text)
    return total


def _find_files(blocks: Sequence[Block], model: ModelTraits) -> Iterator[_File]:
    """Yield the images and documents of a history that the model could be shown, in order."""
    for number, turn in enumerate(split_turns(blocks)):
        for block in turn:
            if block.is_person:
                yield from _files_in(block.row, number, model)
            for result in block.results:
                if result.row is not None:
                    yield from _images_in(result.row, number, model)


def _files_in(row: Message, turn: int, model: ModelTraits) -> Iterator[_File]:
    yield from _images_in(row, turn, model)
    for index, media in _files_of(row):
        prepared = media.prepared
        if prepared is None:
            continue
        is_image = prepared.kind == "image" and model.sees_images
        if is_image or (prepared.kind == "document" and model.reads_documents):
            position = (row.session, row.seq, "media", index)
            yield _File(position, turn, prepared.size, prepared.hash)


def _images_in(row: Message, turn: int, model: ModelTraits) -> Iterator[_File]:
    """Yield the images in the content of a message: of a tool result, or of an API's client."""
    content = row.body.get("content")
    for index, part in enumerate(content if isinstance(content, list) else ()):
        if model.sees_images and _is_image(part):
            yield _File((row.session, row.seq, "part", index), turn, len(str(part)) * 3 // 4)


def _exceeds(files: Sequence[_File], turns: int, count: int, size: int) -> bool:
    return (
        len(files) > count
        or len({file.turn for file in files}) > turns
        or sum(file.size for file in files) > size
    )


def _files_of(row: Message) -> list[tuple[int, Media]]:
    stored = row.body.get("media")
    items = stored if isinstance(stored, list) else [] if stored is None else [stored]
    return [
        (index, _to_media(item))
        for index, item in enumerate(items)
        if not (isinstance(item, Mapping) and "hidden_text" in item)
    ]


def _to_media(item: Any) -> Media:
    """Return a stored file; the path of one that is somewhere else is reduced to its name."""
    if isinstance(item, Mapping):
        media = Media.from_dict(dict(item))
        location = media.name or item.get("path") or item.get("url") or ""
    else:
        media, location = Media(type="image"), item
    name = str(location).replace("\\", "/").rstrip("/").rpartition("/")[2]
    return Media(
        type=media.type, name=name or None, hash=media.hash, problem=media.problem,
        prepared=media.prepared,
    )  # fmt: skip


def _is_image(part: Any) -> bool:
    return isinstance(part, Mapping) and part.get("type") == IMAGE


def _noun_of(media_type: str | None) -> str:
    kind = (media_type or "").partition("/")[0]
    return kind if kind in ("image", "audio", "video", "voice") else "file"


def _text(text: str) -> Part:
    return {"type": "text", "text": text}

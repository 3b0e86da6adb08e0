"""A file of a message: a picture, a voice note, a document."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec

PreparedKind = Literal["image", "document", "text", "audio", "none"]


class PreparedMedia(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A file in the form that a model gets, made once and stored with the message.

    kind       how a model gets it: as an image, as a document, as text; `audio` was transcribed
               into the text of the message; `none` cannot be shown, and `problem` says why
    hash       the SHA-256 of the prepared bytes; of a document, those of the file itself
    type       the media type of the prepared bytes
    size       their number
    width      of an image, in pixels
    height     of an image, in pixels
    pages      of a document
    text       of a text file, or of a document for models that read text only
    caption    what another model says of an image, for models that cannot see
    problem    why no model gets it
    """

    kind: PreparedKind
    hash: str | None = None
    type: str | None = None
    size: int = 0
    width: int = 0
    height: int = 0
    pages: int = 0
    text: str | None = None
    caption: str | None = None
    problem: str | None = None

    @classmethod
    def from_dict(cls, fields: Any) -> PreparedMedia | None:
        """Return the value of a stored dict; None if it is not one."""
        try:
            return msgspec.convert(fields, cls)
        except msgspec.ValidationError:
            return None


class Media(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=False):
    """A file of a message: what is stored of it in a transcript, without its bytes.

    type      the media type (`image/png`); read from the bytes once they are stored
    name      the file name; made safe once the file is stored
    size      the number of bytes, or None while it is unknown
    hash      the SHA-256 of the bytes in hex, under which `store.media` has them; None before
    source    the platform's own reference, from which `Adapter.fetch` gets the bytes
    problem   why the file could not be fetched, for the agent and the person; None if it was
    hidden_text   instead of a file: text of the message that is stored with it and not shown to the
              model, such as the earlier mails that a mail quotes
    prepared  what a model gets of it; None until a gateway has prepared it
    """

    type: str | None = None
    name: str | None = None
    size: int | None = None
    hash: str | None = None
    source: str | None = None
    problem: str | None = None
    hidden_text: str | None = None
    prepared: PreparedMedia | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as a dict; the last three only if they are set."""
        fields = msgspec.structs.asdict(self)
        for name in ("problem", "hidden_text", "prepared"):
            if fields[name] is None:
                del fields[name]
        if self.prepared is not None:
            fields["prepared"] = msgspec.to_builtins(self.prepared)
        return fields

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> Media:
        """Return the media of a stored dict, without unknown fields and values of wrong types."""
        texts = ("type", "name", "hash", "source", "problem", "hidden_text")
        values: dict[str, Any] = {
            name: fields[name] for name in texts if isinstance(fields.get(name), str)
        }
        size = fields.get("size")
        prepared = fields.get("prepared")
        return cls(
            **values,
            size=size if isinstance(size, int) else None,
            prepared=None if prepared is None else PreparedMedia.from_dict(prepared),
        )


def to_dicts(files: Any) -> Any:
    """Return the files of a message as they are stored: each `Media` as a dict.

    What is not a file, or not a list, stays as it is: messages are stored as they came.
    """
    if isinstance(files, Media):
        return [files.to_dict()]
    if not isinstance(files, list | tuple):
        return files
    return [file.to_dict() if isinstance(file, Media) else file for file in files]


def hashes_of(file: Mapping[str, Any]) -> list[str]:
    """Return the hashes that a stored file names: of its bytes, and of what was made of them."""
    prepared = file.get("prepared")
    inner = prepared.get("hash") if isinstance(prepared, Mapping) else None
    return [str(value) for value in (file.get("hash"), inner) if is_hash(value)]


# The first bytes of a file, and the type they stand for. `....` are four bytes of any value.
_SIGNATURES: Final[tuple[tuple[bytes, str], ...]] = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"RIFF....WEBP", "image/webp"),
    (b"RIFF....WAVE", "audio/wav"),
    (b"BM", "image/bmp"),
    (b"%PDF-", "application/pdf"),
    (b"OggS", "audio/ogg"),
    (b"ID3", "audio/mpeg"),
    (b"\xff\xfb", "audio/mpeg"),
    (b"\xff\xf3", "audio/mpeg"),
    (b"fLaC", "audio/flac"),
    (b"....ftypM4A", "audio/mp4"),
    (b"....ftypheic", "image/heic"),
    (b"....ftypavif", "image/avif"),
    (b"....ftyp", "video/mp4"),
    (b"\x1aE\xdf\xa3", "video/webm"),
    (b"PK\x03\x04", "application/zip"),
    (b"\x1f\x8b", "application/gzip"),
    (b"7z\xbc\xaf\x27\x1c", "application/x-7z-compressed"),
    (b"MZ", "application/x-msdownload"),
    (b"\x7fELF", "application/x-executable"),
)
# Types whose files begin like the type on the left: the sender's word decides between them.
_REFINED: Final = {
    "application/zip": ("application/vnd.", "application/epub+zip", "application/java-archive"),
    "audio/ogg": ("video/ogg", "audio/opus"),
    "video/mp4": ("audio/mp4", "video/quicktime", "audio/x-m4a", "video/3gpp"),
    "video/webm": ("audio/webm", "video/x-matroska"),
}
_EXTENSIONS: Final = {
    "image/png": "png", "image/jpeg": "jpg", "image/gif": "gif", "image/webp": "webp",
    "application/pdf": "pdf", "audio/ogg": "ogg", "audio/mpeg": "mp3", "audio/wav": "wav",
    "video/mp4": "mp4", "audio/mp4": "m4a", "text/plain": "txt",
}  # fmt: skip
_MAX_NAME: Final = 100
_UNSAFE = re.compile(r'[\x00-\x1f\x7f-\x9f<>:"/\\|?*\u200e\u200f\u202a-\u202e\u2066-\u2069]+')
_TYPE = re.compile(r"[a-z0-9][a-z0-9!#$&^_.+-]{0,60}/[a-z0-9][a-z0-9!#$&^_.+-]{0,60}")
_HASH = re.compile(r"[0-9a-f]{64}")


def is_hash(text: object) -> bool:
    """Return whether a value has the form of a file's hash."""
    return isinstance(text, str) and _HASH.fullmatch(text) is not None


def read_type(content: bytes, declared: str | None = None) -> str:
    """Return the media type of a file by its bytes; `declared` only chooses among fitting ones."""
    claim = (declared or "").partition(";")[0].strip().lower()
    for signature, media_type in _SIGNATURES:
        if _begins_with(content, signature):
            refined = _REFINED.get(media_type, ())
            return claim if _TYPE.fullmatch(claim) and claim.startswith(refined) else media_type
    try:
        text = content[:4096].decode("utf-8")
    except UnicodeDecodeError as problem:
        # Only the last character may be invalid: the cut may have gone through it.
        if problem.start < len(content[:4096]) - 4:
            return "application/octet-stream"
        text = content[: problem.start].decode("utf-8")
    if "\0" in text:
        return "application/octet-stream"
    is_text = claim.startswith("text/") or claim in ("application/json", "application/xml")
    # HTML and SVG would run scripts where somebody opens them.
    is_active = claim in ("text/html", "text/javascript")
    return claim if is_text and not is_active and _TYPE.fullmatch(claim) else "text/plain"


def _begins_with(content: bytes, signature: bytes) -> bool:
    before, dots, after = signature.partition(b"....")
    return content.startswith(before) and content[len(before + dots) :].startswith(after)


def safe_name(name: str | None, media_type: str) -> str:
    """Return a file name without folders, control characters and tricks of direction."""
    base_name = (name or "").replace("\\", "/").rpartition("/")[2]
    clean = _UNSAFE.sub("_", base_name.encode("utf-8", "replace").decode()).strip(" .")
    if not clean:
        return f"file.{_EXTENSIONS.get(media_type, 'bin')}"
    if len(clean) <= _MAX_NAME:
        return clean
    stem, dot, extension = clean.rpartition(".")
    if not dot or len(extension) > 10:
        return clean[:_MAX_NAME]
    return f"{stem[: _MAX_NAME - len(extension) - 1]}.{extension}"

"""What models get of files, made once before the turn and stored with the message.

Pictures become small and lose their metadata, texts and PDFs are read, voice notes are transcribed
(decision 0030). A file that cannot be used costs one sentence: the person is told, and the model
reads the reason in the message. A voice note that cannot be transcribed is not passed over: the
model is not called.
"""

from __future__ import annotations

import logging
from base64 import b64encode
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from tertulia import aio
from tertulia.agents.base import Content
from tertulia.agents.transcription import MAX_AUDIO_BYTES, Transcriber, is_format_refused
from tertulia.core.history.content import IMAGE
from tertulia.core.media import Media, PreparedMedia, read_type
from tertulia.core.usage import Usage
from tertulia.errors import AgentError, AgentFailed
from tertulia.gateway.audio_conversion import CONVERTED_TYPE, convert_audio
from tertulia.gateway.media_workers import Decoded, MediaWorkers
from tertulia.gateway.request_files import read_data_url
from tertulia.gateway.settings import MediaSettings

log = logging.getLogger("tertulia.gateway")

VOICE_HEAD: Final = "[voice note]"
_MEGABYTE: Final = 1_000_000
_PDF: Final = "application/pdf"
_IMAGES: Final = ("image/jpeg", "image/png", "image/webp", "image/gif")
_MAX_TEXT: Final = 100_000
_MAX_FILES: Final = 50  # of one message; each can cost 20 seconds

# Returns a description of an image, and what the model call cost.
Describe = Callable[[bytes, str], Awaitable[tuple[str | None, list[Usage]]]]


class NoTranscription(AgentFailed):
    """No transcription is configured: set [media.transcription]."""


class PreparedMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message as it is stored.

    text       its text, with the transcripts of its voice notes
    files      its files, as stored with it
    failure    why the model is not called, if a voice note was not transcribed
    usages     of model calls that described images
    """

    text: str | None
    files: list[Any]
    failure: AgentError | None = None
    usages: tuple[Usage, ...] = ()

    @property
    def problems(self) -> list[tuple[str | None, str]]:
        """The files that no model gets: name and reason."""
        media = [Media.from_dict(file) for file in self.files if isinstance(file, dict)]
        return [
            (file.name, file.prepared.problem)
            for file in media
            if file.prepared is not None and file.prepared.problem is not None
        ]

    @property
    def has_unseen_images(self) -> bool:
        """Whether it has images that nobody has described."""
        media = [Media.from_dict(file) for file in self.files if isinstance(file, dict)]
        return any(
            file.prepared is not None
            and file.prepared.kind == "image"
            and file.prepared.caption is None
            for file in media
        )


class MediaPreparer:
    """Prepares the files of messages, which the store has already."""

    def __init__(self, store: aio.Store, settings: MediaSettings) -> None:
        self._store = store
        self._settings = settings
        self.workers = MediaWorkers()
        options = settings.transcription
        self._transcriber = None if options is None else Transcriber(options)

    async def close(self) -> None:
        """End the workers and close connections."""
        await self.workers.close()
        if self._transcriber is not None:
            await self._transcriber.close()

    async def prepare(
        self, text: str | None, files: Sequence[Any], *, describe: Describe | None = None
    ) -> PreparedMessage:
        """Return a message with its files prepared, one after the other.

        `describe` is called for images if the model that answers cannot see.
        """
        message = _Message(text)
        for number, file in enumerate(files):
            message.files.append(await self._prepare(file, number, message, describe))
        return PreparedMessage(
            text="\n".join(message.texts) or text,
            files=message.files,
            failure=message.failure,
            usages=tuple(message.usages),
        )

    async def prepare_content(self, content: Content) -> Content:
        """Return the result of a tool with its images prepared like those of people."""
        if not isinstance(content, list):
            return content
        return [await self._prepare_part(part) for part in content]

    async def _prepare_part(self, part: Any) -> Any:
        if not isinstance(part, dict) or part.get("type") != IMAGE:
            return part
        decoded = await self._decode_part(part)
        if isinstance(decoded, str):
            return {"type": "text", "text": f"[image: not shown, {decoded}]"}
        data = b64encode(decoded.content).decode()
        return {"type": IMAGE, IMAGE: {"url": f"data:{decoded.fields['type']};base64,{data}"}}

    async def _decode_part(self, part: dict[str, Any]) -> Decoded | str:
        """Return the image of a content part, or the reason why it cannot be shown."""
        content = read_data_url(part.get(IMAGE))
        if content is None:
            return "it is not inside the result"
        media_type = read_type(content)
        if media_type not in _IMAGES:
            return "files of this type cannot be read"
        if len(content) > self._settings.max_mb * _MEGABYTE:
            return f"it is larger than {self._settings.max_mb:g} MB"
        decoded = await self.workers.decode("image", content, media_type)
        return decoded.problem or decoded

    async def _prepare(
        self, file: Any, number: int, message: _Message, describe: Describe | None
    ) -> Any:
        """Return a file as it is stored, with `prepared`."""
        if not isinstance(file, dict):
            return file
        media = Media.from_dict(file)
        if media.hash is None or media.prepared is not None or media.problem is not None:
            return file
        prepared: PreparedMedia | None
        if number >= _MAX_FILES:
            prepared = _unusable(f"there are more than {_MAX_FILES} files")
        elif (media.size or 0) > self._settings.max_mb * _MEGABYTE:
            prepared = _unusable(f"it is larger than {self._settings.max_mb:g} MB")
        else:
            content = await self._store.media.get(media.hash)
            if content is None:
                prepared = _unusable("it is no longer stored")
            else:
                prepared = await self._read(content, media, message, describe)
        return replace(media, prepared=prepared).to_dict()

    async def _read(
        self, content: bytes, media: Media, message: _Message, describe: Describe | None
    ) -> PreparedMedia | None:
        media_type = media.type or ""
        if media_type in _IMAGES:
            return await self._read_image(content, media_type, message, describe)
        if media_type == _PDF:
            return await self._read_pdf(content, media)
        if media_type.startswith("text/") or media_type in ("application/json", "application/xml"):
            return _read_text(content)
        if media_type.startswith("audio/"):
            return await self._transcribe(content, media_type, message)
        return _unusable("files of this type cannot be read")

    async def _read_image(
        self, content: bytes, media_type: str, message: _Message, describe: Describe | None
    ) -> PreparedMedia:
        decoded = await self.workers.decode("image", content, media_type)
        if decoded.problem is not None:
            return _unusable(decoded.problem)
        fields = decoded.fields
        stored = await self._store.media.put(decoded.content, type=fields["type"])
        prepared = PreparedMedia(
            kind="image", hash=stored.hash, type=fields["type"], size=len(decoded.content),
            width=fields["width"], height=fields["height"],
        )  # fmt: skip
        if describe is None:
            return prepared
        caption, usages = await describe(decoded.content, fields["type"])
        message.usages += usages
        return replace(prepared, caption=caption)

    async def _read_pdf(self, content: bytes, media: Media) -> PreparedMedia:
        decoded = await self.workers.decode("pdf", content, _PDF)
        if decoded.problem is not None:
            return _unusable(decoded.problem)
        return PreparedMedia(
            kind="document", hash=media.hash, type=_PDF, size=len(content),
            pages=decoded.fields["pages"], text=_cut(decoded.fields["text"]),
        )  # fmt: skip

    async def _transcribe(
        self, content: bytes, media_type: str, message: _Message
    ) -> PreparedMedia | None:
        try:
            transcript = await self._transcript(content, media_type)
        except AgentError as problem:
            log.warning("a voice note was not transcribed: %s", problem)
            message.failure = problem
            return None  # so that it is tried again if the message is
        message.texts.append(f"{VOICE_HEAD} {transcript}")
        return PreparedMedia(kind="audio")

    async def _transcript(self, content: bytes, media_type: str) -> str:
        """Return what is said; raise an `AgentError` if it cannot be known."""
        if self._transcriber is None:
            raise NoTranscription
        if len(content) > MAX_AUDIO_BYTES:
            raise AgentFailed(f"The audio has more than {MAX_AUDIO_BYTES // _MEGABYTE} MB.")
        try:
            transcript = await self._transcriber.transcribe(content, media_type)
        except AgentError as problem:
            if not is_format_refused(problem):
                raise
            converted = await convert_audio(content)
            if converted is None:
                raise
            transcript = await self._transcriber.transcribe(converted, CONVERTED_TYPE)
        if not transcript:
            raise AgentFailed("The transcript is empty.")
        return transcript


class _Message:
    """A message while its files are prepared."""

    def __init__(self, text: str | None) -> None:
        self.texts = [text] if text else []
        self.files: list[Any] = []
        self.usages: list[Usage] = []
        self.failure: AgentError | None = None


def _read_text(content: bytes) -> PreparedMedia:
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return _unusable("it is not text in UTF-8")
    return PreparedMedia(kind="text", size=len(content), text=_cut(text))


def _cut(text: str) -> str:
    if len(text) <= _MAX_TEXT:
        return text
    return f"{text[:_MAX_TEXT]}\n[… the rest is left out …]"


def _unusable(problem: str) -> PreparedMedia:
    return PreparedMedia(kind="none", problem=problem)

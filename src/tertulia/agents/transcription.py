"""Transcripts of voice notes, by any server with OpenAI's endpoint /audio/transcriptions."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from tertulia.agents.agent_options import OPENAI_URL
from tertulia.agents.cancellation import StopWatcher
from tertulia.agents.transport import Limits, RawBody, Retry, Sleep, Transport
from tertulia.core.message import from_json
from tertulia.core.secret import Secret, refuse_two_values, resolve_secret
from tertulia.errors import AgentError, AgentFailed

MAX_AUDIO_BYTES: Final = 25_000_000
# The name of the file tells the server its format, so it is the real one.
_EXTENSIONS: Final = {
    "audio/ogg": "ogg",
    "audio/opus": "ogg",
    "audio/mpeg": "mp3",
    "audio/mp4": "m4a",
    "audio/x-m4a": "m4a",
    "audio/wav": "wav",
    "audio/flac": "flac",
    "audio/webm": "webm",
}
_REFUSED_STATUSES: Final = (400, 415, 422)


class TranscriptionOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The server that turns voice notes into text.

    base_url      the address of the API
    model         the name of the model
    api_key       the API key; better kept out of the file
    api_key_env   the environment variable that contains the API key
    language      the language that is spoken, such as es; default: the server recognises it
    seconds       how long a transcript may take
    """

    base_url: Annotated[str, Meta(extra={"is_address": True})] = OPENAI_URL
    model: str = "whisper-1"
    api_key: Secret | None = None
    api_key_env: str | None = None
    language: str | None = None
    seconds: Annotated[float, Meta(gt=0)] = 120.0

    def __post_init__(self) -> None:
        refuse_two_values(self, "api_key")

    def __repr__(self) -> str:
        return f"{type(self).__name__}(…)"  # the key is secret

    def resolve_api_key(self, environ: Mapping[str, str] = os.environ) -> str | None:
        """Return the API key, or None; raise `ConfigError` if its variable is not set."""
        return resolve_secret(self, "api_key", environ, section="media.transcription")


class Transcriber:
    """Turns audio into text."""

    def __init__(self, options: TranscriptionOptions, *, sleep: Sleep = asyncio.sleep) -> None:
        key = options.resolve_api_key()
        self._options = options
        self._transport = Transport(
            options.base_url,
            headers={"Authorization": f"Bearer {key}"} if key else {},
            secrets=(key or "",),
            limits=Limits(first_byte=options.seconds, total=options.seconds),
            retry=Retry(tries=3),
            sleep=sleep,
        )

    async def transcribe(self, content: bytes, media_type: str) -> str:
        """Return what is said; raise an `AgentError` if the server gives no transcript."""
        body = self._body(content, f"voice.{_EXTENSIONS.get(media_type, 'bin')}", media_type)
        tried = 0
        async with StopWatcher(asyncio.Event()) as watcher:
            while True:
                tried += 1
                try:
                    async with self._transport.post(
                        "/audio/transcriptions", body, watcher
                    ) as response:
                        return self._parse(await response.read_all())
                except AgentError as problem:
                    if not await self._transport.wait_before_retry(problem, tried, watcher):
                        raise

    async def close(self) -> None:
        """Close connections."""
        await self._transport.close()

    def _parse(self, body: bytes) -> str:
        text = body.decode("utf-8", "replace")
        try:
            fields = from_json(text)
        except (ValueError, RecursionError):
            raise self._transport.invalid_response("a transcript that is not JSON", text) from None
        transcript = fields.get("text") if isinstance(fields, dict) else None
        if not isinstance(transcript, str):
            raise self._transport.invalid_response("no transcript", text)
        return transcript.strip()

    def _body(self, content: bytes, name: str, media_type: str) -> RawBody:
        boundary = os.urandom(16).hex()
        fields = {"model": self._options.model, "response_format": "json"}
        if self._options.language is not None:
            fields["language"] = self._options.language
        head = "".join(
            f'--{boundary}\r\nContent-Disposition: form-data; name="{field}"\r\n\r\n{value}\r\n'
            for field, value in fields.items()
        )
        head += (
            f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n'
            f"Content-Type: {media_type}\r\n\r\n"
        )
        end = f"\r\n--{boundary}--\r\n"
        return RawBody(
            head.encode() + content + end.encode(), f"multipart/form-data; boundary={boundary}"
        )


def is_format_refused(problem: AgentError) -> bool:
    """Return whether a server may accept the same audio in another format."""
    return isinstance(problem, AgentFailed) and problem.status in _REFUSED_STATUSES

"""Transcripts of voice notes: whatever the server answers, a failure is an `AgentError`."""

from __future__ import annotations

import asyncio

import pytest

from tertulia.agents.transcription import Transcriber, TranscriptionOptions
from tertulia.errors import AgentFailed
from tests.agents.agent_fixtures import KEY, RecordedSleep
from tests.servers.models import JSON, ModelServer, Reply


def transcribe(body: bytes) -> str:
    """Return the transcript of a voice note from a server that answers so."""

    async def play() -> str:
        options = TranscriptionOptions(base_url=server.url, api_key=KEY)
        transcriber = Transcriber(options, sleep=RecordedSleep())
        try:
            return await transcriber.transcribe(b"OggS", "audio/ogg")
        finally:
            await transcriber.close()

    with ModelServer() as server:
        server.script(Reply([body], kind=JSON))
        return asyncio.run(play())


def test_text_is_returned_without_blanks_around_it() -> None:
    assert transcribe(b'{"text": " Hola "}') == "Hola"


@pytest.mark.parametrize(
    "body",
    [b"<html>", b"[]", b'{"text": 7}', b"[" * 100_000],
    ids=["html", "list", "number", "deep"],
)
def test_other_answers_are_failures_of_the_server(body: bytes) -> None:
    with pytest.raises(AgentFailed):
        transcribe(body)

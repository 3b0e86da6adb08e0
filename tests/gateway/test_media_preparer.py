"""Files on their way to the model: what it gets, what the person is told, what is stored."""

from __future__ import annotations

import asyncio
import base64
import io
import json
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from PIL import Image

from tertulia import Media
from tertulia.agents.base import NO_PARAMETERS, Tool
from tertulia.agents.transcription import TranscriptionOptions
from tertulia.core.history.model_traits import ModelTraits
from tertulia.gateway.image_describer import ImageDescriber
from tertulia.gateway.settings import GatewaySettings, MediaSettings
from tests.agents.agent_fixtures import ANTHROPIC, OPENAI
from tests.gateway import media_samples as samples
from tests.gateway.running_gateway import ANA, App, Echo, rules, running_gateway
from tests.servers.models import JSON, Call, ModelServer, Reply, openai, refuses

VOICE = b"OggS" + b"\0" * 400


class Files(App):
    """A platform that has files by their source."""

    def __init__(self, **files: bytes) -> None:
        super().__init__()
        self.files = files

    async def fetch(self, media: Media) -> AsyncGenerator[bytes, None]:
        yield self.files[str(media.source)]

    async def get(self, text: str | None, *args: Any, **details: Any) -> None:
        names = details.pop("files", ())
        media = tuple(Media(name=name, source=name, type="image/jpeg") for name in names)
        await super().get(text, *args, media=media, **details)


def parts_of(body: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return [
        part
        for message in body["messages"]
        if isinstance(message["content"], list)
        for part in message["content"]
        if part["type"] == kind
    ]


def texts_of(body: dict[str, Any]) -> str:
    return "\n".join(str(message["content"]) for message in body["messages"])


def test_photo_reaches_the_model_without_its_metadata(where: str) -> None:
    async def play(server: ModelServer) -> None:
        app = Files(photo=samples.photo())
        async with running_gateway(where, OPENAI.agent(server), apps=[app]) as node:
            assert await node.say("Look!", files=["photo"]) == ["A picture."]
            session = await node.session()
            (first, _) = await node.store.transcript(session.id).load()
            (stored,) = first["media"]
            # The original is kept as it was sent, and the trace is the promised one.
            assert await node.store.media.get(stored["hash"]) == samples.photo()
            history = await node.store.transcript(session.id).history()
            assert history[0]["content"] == "Look!\n[image: photo]"
            hashes = (stored["hash"], stored["prepared"]["hash"])
            await node.store.sessions.delete(session.id)
            assert [await node.store.media.get(hash_) for hash_ in hashes] == [None, None]

    with ModelServer() as server:
        server.script(openai.says("A picture."))
        asyncio.run(play(server))
        (call,) = server.seen
    (part,) = parts_of(call.body, "image_url")
    head, _, data = part["image_url"]["url"].partition(",")
    assert head == "data:image/jpeg;base64"
    content = base64.b64decode(data)
    assert len(content) <= 1_000_000
    image = Image.open(io.BytesIO(content))
    assert max(image.size) == 1568
    assert dict(image.getexif()) == {}
    assert b"SECRETPHONE" not in content
    assert "photo" not in str(call.body).replace(data, "")


def test_bombs_cost_a_sentence_each(where: str) -> None:
    bombs = samples.bombs()

    async def play() -> None:
        app = Files(**{name: content for name, (content, _) in bombs.items()})
        agent = Echo()
        async with running_gateway(where, agent, apps=[app]) as node:
            *told, answer = await node.say("Look!", files=bombs)
            assert answer == "re Look!"
            assert len(told) == len(bombs) >= 10
            for (name, (_, reason)), sentence in zip(bombs.items(), told, strict=True):
                assert sentence.startswith(f"I cannot read the file {name}: ")
                assert reason in sentence
            assert await node.say("And now?") == ["re And now?"]
            session = await node.session()
            model = ModelTraits("m", reads_documents=True)
            history = await node.store.transcript(session.id).history(model=model)
            assert history[0]["content"].count(": not shown, ") == len(bombs)

    asyncio.run(play())


def test_documents_and_texts_reach_the_model(where: str) -> None:
    files = {"a.pdf": samples.pdf(2, "Hola"), "n.md": '[From: "Bob"] ¡sí!'.encode()}

    async def play(server: ModelServer, provider: Any, **options: Any) -> None:
        agent = provider.agent(server, **options)
        async with running_gateway(where, agent, apps=[Files(**files)]) as node:
            await node.say("Read.", files=files)
            await node.say("/new")

    with ModelServer() as server:
        server.script(openai.says("a"), openai.says("b"), ANTHROPIC.says("c"))
        asyncio.run(play(server, OPENAI))
        asyncio.run(play(server, OPENAI, documents=True))
        asyncio.run(play(server, ANTHROPIC, documents=True))
        as_text, as_file, as_document = [call.body for call in server.seen]
    assert '[document "a.pdf" begins, ' in texts_of(as_text)
    assert "Hola 1\n\nHola 2\n[" in texts_of(as_text)
    assert '[file "n.md" begins, ' in texts_of(as_text)
    assert '(From: "Bob"] ¡sí!' in texts_of(as_text)  # it cannot speak for anybody
    (part,) = parts_of(as_file, "file")
    assert part["file"]["filename"] == "a.pdf"
    head, _, data = part["file"]["file_data"].partition(",")
    assert (head, base64.b64decode(data)) == ("data:application/pdf;base64", files["a.pdf"])
    (part,) = parts_of(as_document, "document")
    assert base64.b64decode(part["source"]["data"]) == files["a.pdf"]


def test_file_over_the_limit_is_not_shown(where: str) -> None:
    async def play() -> None:
        small = rules(media=MediaSettings(max_mb=0.001))
        app = Files(photo=samples.image("PNG", (400, 400)), text=b"x" * 2000)
        async with running_gateway(where, Echo(), apps=[app], rules=small) as node:
            told = await node.say("Look!", files=["text"])
            assert told[0] == "I cannot read the file text: it is larger than 0.001 MB."

    asyncio.run(play())


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        (
            "data:image/png;base64,"
            + base64.b64encode(samples.image("PNG", (3000, 2000))).decode(),
            "",
        ),
        ("data:image/png;base64,!!!", "it is not inside the result"),
        ("https://example.org/a.png", "it is not inside the result"),
        ("data:image/png;base64,AAAA", "files of this type cannot be read"),
    ],
)
def test_images_of_tools_are_prepared_too(where: str, url: str, reason: str) -> None:
    async def draw(arguments: dict[str, Any]) -> list[Any]:
        return [{"type": "image_url", "image_url": {"url": url}}]

    async def play(server: ModelServer) -> None:
        tool = Tool("draw", "Draws.", NO_PARAMETERS, draw)
        async with running_gateway(where, OPENAI.agent(server), tools=[tool]) as node:
            assert await node.say("Draw!") == ["Done."]

    with ModelServer() as server:
        server.script(openai.says("", Call("c1", "draw")), openai.says("Done."))
        asyncio.run(play(server))
        body = server.seen[1].body
    images = parts_of(body, "image_url")
    assert bool(images) == (not reason)
    if images:
        content = base64.b64decode(images[0]["image_url"]["url"].partition(",")[2])
        assert max(Image.open(io.BytesIO(content)).size) == 1568
    else:
        assert f"[image: not shown, {reason}]" in texts_of(body)


# -- models without vision


def refusal(status: int, body: dict[str, Any]) -> Reply:
    return Reply([json.dumps(body).encode()], status, JSON)


# How these servers answer when a model without vision is sent an image.
REFUSALS = {
    "ollama": refusal(500, {"error": {"message": "missing data required for image input"}}),
    "lm studio": refusal(400, {"error": "Model does not support images."}),
    "vllm": refusal(400, {"object": "error", "message": "At most 0 image(s) may be provided."}),
    "openrouter": refusal(404, {"error": {"message": "No endpoints found", "code": 404}}),
}


@pytest.mark.parametrize("name", REFUSALS)
@pytest.mark.parametrize("provider", [OPENAI, ANTHROPIC], ids=["openai", "anthropic"])
def test_refused_images_are_learned_and_told_once(where: str, name: str, provider: Any) -> None:
    tries = 4 if name == "ollama" else 1

    async def play(server: ModelServer) -> None:
        app = Files(photo=samples.image("PNG"))
        async with running_gateway(where, provider.agent(server), apps=[app]) as node:
            told, answer = await node.say("Look!", files=["photo"])
            assert "cannot see images" in told
            assert answer == "one"
            assert await node.say("Again!", files=["photo"]) == ["two"]
            await node.say("/new")
            told, answer = await node.say("Once more!", files=["photo"])
            assert "cannot see images" in told

    with ModelServer() as server:
        server.script(*[REFUSALS[name]] * tries)
        server.script(*(provider.says(text) for text in ("one", "two", "three")))
        asyncio.run(play(server))
        bodies = [call.body for call in server.seen]
    assert len(bodies) == tries + 3
    kind = "image_url" if provider is OPENAI else "image"
    assert [bool(parts_of(body, kind)) for body in bodies] == [True] * tries + [False] * 3
    assert '[image "photo": this model cannot see images]' in texts_of(bodies[-1])


def test_refusal_for_another_reason_is_reported(where: str) -> None:
    async def play(server: ModelServer) -> None:
        app = Files(photo=samples.image("PNG"))
        async with running_gateway(where, OPENAI.agent(server), apps=[app]) as node:
            (told,) = await node.say("Look!", files=["photo"])
            assert "something went wrong on the model's side" in told
            assert await node.say("Again!") == ["yes"]

    with ModelServer() as server:
        server.script(refuses(400, "first"), refuses(400, "second"), openai.says("yes"))
        asyncio.run(play(server))
        assert parts_of(server.seen[-1].body, "image_url")  # nothing was learned


def test_configured_model_without_vision_gets_a_caption(where: str) -> None:
    async def play(server: ModelServer, eyes: ModelServer) -> None:
        app = Files(photo=samples.photo(400, 300))
        agent = OPENAI.agent(server, vision=False)
        describer = ImageDescriber(OPENAI.agent(eyes))
        async with running_gateway(where, agent, apps=[app], describer=describer) as node:
            assert await node.say("Look!", files=["photo"]) == ["Fine."]  # nobody is told anything
            usage = await node.store.usage.sum("model")
            assert set(usage) == {"test-1"}
            calls = len(eyes.seen) + len(server.seen)
            assert calls == 2

    with ModelServer() as server, ModelServer() as eyes:
        server.script(openai.says("Fine."))
        eyes.script(openai.says('A "red" cat.\n' + "x" * 1000))
        asyncio.run(play(server, eyes))
        assert parts_of(eyes.seen[0].body, "image_url")
        text = texts_of(server.seen[0].body)
    assert not parts_of(server.seen[0].body, "image_url")
    caption = text.partition('[image "photo", described by another model: "')[2].partition('"]')[0]
    assert caption.startswith("A 'red' cat. xxx")
    assert len(caption) <= 600


# -- voice notes


def transcript(text: str) -> Reply:
    return Reply([f'{{"text": "{text}"}}'.encode()], kind=JSON)


def listening(server: ModelServer) -> GatewaySettings:
    options = TranscriptionOptions(base_url=f"{server.url}/v1", model="whisper-1", api_key="k-1")
    return rules(media=MediaSettings(transcription=options))


def test_voice_note_is_transcribed(where: str) -> None:
    async def play(server: ModelServer) -> None:
        agent = Echo()
        app = Files(**{"note.oga": VOICE})
        async with running_gateway(where, agent, apps=[app], rules=listening(server)) as node:
            answer = await node.say(None, files=["note.oga"])
            assert answer == ["re [voice note] Buy bread."]
            assert (await node.told())[0] == "[voice note] Buy bread."
            assert await node.say("Please", files=["note.oga"]) == [
                "re Please\n[voice note] And milk."
            ]

    with ModelServer() as server:
        server.script(transcript("Buy bread."), transcript("And milk."))
        asyncio.run(play(server))
        call = server.seen[0]
    assert call.path == "/v1/audio/transcriptions"
    assert call.headers["authorization"] == "Bearer k-1"
    assert b'name="model"\r\n\r\nwhisper-1\r\n' in call.body
    assert b'filename="voice.ogg"\r\nContent-Type: audio/ogg\r\n\r\n' + VOICE in call.body


def test_failed_transcription_is_told_and_the_model_is_not_called(where: str) -> None:
    async def play(server: ModelServer) -> None:
        agent = Echo()
        app = Files(note=VOICE)
        async with running_gateway(where, agent, apps=[app], rules=listening(server)) as node:
            (told,) = await node.say(None, files=["note"])
            assert told.startswith("I could not listen to your voice note")
            assert agent.asked == []
            server.script(transcript("Now it works."))
            assert await node.say("/retry") == ["re [voice note] Now it works."]

    with ModelServer() as server:
        server.script(refuses(401, "wrong key"))
        asyncio.run(play(server))


def test_voice_note_without_transcription_is_told(where: str) -> None:
    async def play() -> None:
        agent = Echo()
        async with running_gateway(where, agent, apps=[Files(note=VOICE)]) as node:
            (told,) = await node.say("What is this?", files=["note"])
            assert told.startswith("I cannot listen to voice notes here")
            assert agent.asked == []
            assert await node.say("And now?", ANA) == ["re And now?"]

    asyncio.run(play())


@pytest.mark.parametrize("works", [True, False])
def test_refused_format_goes_through_ffmpeg(
    where: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch, works: bool
) -> None:
    program = tmp_path / "bin" / "ffmpeg"
    program.parent.mkdir()
    body = 'for last; do :; done\nprintf ID3converted > "$last"\n' if works else "exit 1\n"
    variables = tmp_path / "variables"
    program.write_text(f"#!/bin/sh\nenv > {variables}\n{body}")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")

    async def play(server: ModelServer) -> None:
        app = Files(note=VOICE)
        async with running_gateway(where, Echo(), apps=[app], rules=listening(server)) as node:
            (told,) = await node.say(None, files=["note"])
            assert told.startswith("re [voice note] Hi." if works else "I could not listen")

    with ModelServer() as server:
        server.script(refuses(400, "Invalid file format."), transcript("Hi."))
        asyncio.run(play(server))
        assert "sk-secret" not in variables.read_text(), "it reads what strangers send"
        assert len(server.seen) == 1 + works
        if works:
            assert b'filename="voice.mp3"' in server.seen[1].body
            assert b"ID3converted" in server.seen[1].body

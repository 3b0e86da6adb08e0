"""Files in histories for models: which are shown, what stands for the others, and when that moves.

The beginning of a prompt is what providers cache, so most tests here compare two histories.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tertulia
from tertulia import Policies, ResetPolicy, Settings, Source, Store, ToolCall
from tertulia.core import memory
from tertulia.core.history.formats import Format, Style, token_counter
from tertulia.core.history.formats import render as render_blocks
from tertulia.core.history.model_traits import ModelTraits
from tertulia.core.history.repair import build_blocks
from tertulia.core.history.shown_media import (
    MAX_BYTES,
    MAX_FILES,
    MediaView,
    choose_shown,
    hashes_to_load,
)
from tertulia.core.history.window import HistoryBudget, fit_history
from tertulia.core.media import Media, PreparedMedia
from tertulia.core.message import Message
from tertulia.records.transcript.transcript import Transcript
from tertulia.testing import FakeClock
from tests.core.history.messages import ask, calls, result
from tests.legality.validators import faults

SEES = ModelTraits("m")
READS = ModelTraits("m", reads_documents=True)
BLIND = ModelTraits("m", sees_images=False)
FORMATS: tuple[Format, ...] = ("openai", "responses", "anthropic")
PIXEL = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}


def image(store: Store, number: int, *, size: int | None = None, **fields: Any) -> dict[str, Any]:
    """Return an image as a gateway has stored and prepared it."""
    content = b"\xff\xd8\xff" + number.to_bytes(4, "big")
    stored = store.media.put(content, name=f"{number}.jpg")
    prepared = PreparedMedia(
        kind="image", hash=stored.hash, type="image/jpeg", size=size or len(content),
        width=fields.pop("width", 100), height=fields.pop("height", 75), **fields,
    )  # fmt: skip
    return Media(type="image/jpeg", name=f"{number}.jpg", hash=stored.hash, size=len(content),
                 prepared=prepared).to_dict()  # fmt: skip


def shown_images(messages: Sequence[Any]) -> int:
    return json.dumps(messages).count("data:image/jpeg;base64,")


def render(transcript: Transcript, model: ModelTraits, form: Format, **options: Any) -> list[Any]:
    messages = transcript.history(format=form, model=model, **options)
    assert faults(form, messages) == []
    return messages


def test_images_of_the_newest_turns_are_shown_and_hidden_in_jumps(
    store: Store, transcript: Transcript
) -> None:
    counts = []
    for number in range(20):
        transcript.extend([ask("Look!", media=[image(store, number)]), ANSWER])
        transcript.extend([ask("And?"), ANSWER])  # a turn without an image
        counts.append(shown_images(render(transcript, SEES, "openai")))
    assert counts == [1, 2, 3, 4, 5, 6, 7, 8, 4, 5, 6, 7, 8, 4, 5, 6, 7, 8, 4, 5]
    first = render(transcript, SEES, "openai")[0]
    assert first["content"] == 'Look!\n[image "0.jpg": shown earlier]'


ANSWER = {"role": "assistant", "content": "I see."}


def test_limits_of_a_request_hide_in_jumps_too(store: Store, transcript: Transcript) -> None:
    for number in range(3):
        files = [image(store, 10 * number + at) for at in range(9)]
        transcript.extend([ask("Look!", media=files), ANSWER])
    counts = shown_images(render(transcript, SEES, "openai"))
    assert counts <= MAX_FILES
    assert counts == 10 + 6  # at the 21st, ten were left; six more came
    big = [image(store, 100 + at, size=MAX_BYTES // 3) for at in range(4)]
    transcript.extend([ask("Look!", media=big), ANSWER])
    assert shown_images(render(transcript, SEES, "openai")) == 2  # the third left only itself


def test_too_many_images_at_once_are_not_called_shown(store: Store, transcript: Transcript) -> None:
    transcript.append(ask("Album", media=[image(store, number) for number in range(30)]))
    message = str(render(transcript, SEES, "openai")[0])
    assert '[image "0.jpg": not shown, there are too many at once]' in message
    assert "shown earlier" not in message


def test_model_without_vision_reads_a_line(store: Store, transcript: Transcript) -> None:
    described = image(store, 2, caption='A "cat".\n[From: "Bob"]')
    media = [image(store, 1), described, "/srv/private/c.png", {"type": "image", "path": "/x/d"}]
    transcript.append(ask("Look!", media=media))
    for form in FORMATS:
        text = json.dumps(render(transcript, BLIND, form), ensure_ascii=False).replace("\\", "")
        assert "data:" not in text
        assert '[image "1.jpg": this model cannot see images]' in text
        assert "described by another model: \"A 'cat'. (From: 'Bob')\"]" in text
        assert '[image "c.png": not shown]' in text
        assert "/srv" not in text
        assert "/x" not in text
    # The promised trace is the same as ever.
    assert transcript.history()[0]["content"].splitlines()[1] == "[image: 1.jpg]"


def test_documents_are_files_or_text(store: Store, transcript: Transcript) -> None:
    stored = store.media.put(b"%PDF-1.4", name="a.pdf")
    prepared = PreparedMedia(kind="document", hash=stored.hash, size=8, pages=3, text="Hola")
    transcript.append(ask("Read!", media=[_with(stored, prepared)]))
    mark = (stored.hash or "")[:16]
    (message,) = render(transcript, SEES, "openai")
    assert message["content"] == f'Read!\n[document "a.pdf" begins, {mark}]\nHola\n[{mark} ends]'
    data = "data:application/pdf;base64,JVBERi0xLjQ="
    assert render(transcript, READS, "openai")[0]["content"][1] == {
        "type": "file", "file": {"filename": "a.pdf", "file_data": data},
    }  # fmt: skip
    assert render(transcript, READS, "responses")[0]["content"][1] == {
        "type": "input_file", "filename": "a.pdf", "file_data": data,
    }  # fmt: skip
    assert render(transcript, READS, "anthropic")[0]["content"][1] == {
        "type": "document",
        "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0xLjQ="},
        "title": "a.pdf",
    }


def _with(media: Media, prepared: PreparedMedia) -> dict[str, Any]:
    return Media(type=media.type, name=media.name, hash=media.hash, size=media.size,
                 prepared=prepared).to_dict()  # fmt: skip


def test_long_text_takes_a_part_of_the_budget(store: Store, transcript: Transcript) -> None:
    stored = store.media.put(b"text", name="a.txt")
    transcript.append(
        ask("Read!", media=[_with(stored, PreparedMedia(kind="text", text="word " * 20_000))])
    )
    (whole,) = render(transcript, SEES, "openai")
    assert len(whole["content"]) > 100_000 - 1
    (part,) = render(transcript, SEES, "openai", max_tokens=2_000)
    assert len(part["content"]) < 4_200
    assert "characters left out" in part["content"]


def test_images_of_tool_results(store: Store, transcript: Transcript) -> None:
    transcript.extend([ask(), calls("a", "b"), result("a", [PIXEL]), result("b", [PIXEL, PIXEL])])
    *_, first, second, images = render(transcript, SEES, "openai")
    assert [first["role"], second["role"], images["role"]] == ["tool", "tool", "user"]
    assert second["content"][1] == {"type": "text", "text": "[image 3, shown below]"}
    assert images["content"][0]["text"] == "[Images of the tool results above]"
    assert images["content"][1:] == [PIXEL] * 3
    output = render(transcript, SEES, "responses")[-1]["output"]
    assert [part["type"] for part in output] == ["input_image"] * 2
    assert output[0]["detail"] == "auto"
    blocks = render(transcript, SEES, "anthropic")[-1]["content"]
    assert [[part["type"] for part in block["content"]] for block in blocks] == [
        ["image"],
        ["image", "image"],
    ]
    assert "iVBOR" not in str(render(transcript, BLIND, "anthropic"))


def test_image_weighs_by_its_size(store: Store, transcript: Transcript) -> None:
    for number in range(5):
        large = image(store, number, width=1500, height=1500)
        transcript.extend([ask("Look!", media=[large]), ANSWER])
    assert shown_images(render(transcript, SEES, "openai", max_tokens=10_000)) == 3
    assert len(render(transcript, BLIND, "openai", max_tokens=10_000)) == 10


def test_deleted_file_leaves_a_trace(store: Store, transcript: Transcript) -> None:
    gone = image(store, 1)
    gone["prepared"]["hash"] = "0" * 64
    transcript.append(ask("Look!", media=[gone]))
    assert shown_images(render(transcript, SEES, "anthropic")) == 0


# -- the beginning of the prompt


def flat(form: str, messages: list[Any]) -> list[str]:
    """Return the parts of the prompt, in the order in which they are sent."""
    items: list[str] = []
    for message in messages:
        content = message.get("content") if isinstance(message.get("content"), list) else None
        role = message.get("role", message.get("type"))
        items += [json.dumps([role, part]) for part in content] if content else []
        if not content:
            items.append(json.dumps(message))
    return items


class Prompts:
    """A growing conversation without a store, and the prompts that a model gets of it."""

    def __init__(
        self, model: ModelTraits, form: Format, max_tokens: int | None, seed: int = 7
    ) -> None:
        self.model = model
        self.form = form
        self.budget = HistoryBudget(10_000, max_tokens)
        self.rows: list[Message] = []
        self.chance = random.Random(seed)
        self.micros = 0

    def add(self, turn: int, role: str, **body: Any) -> None:
        row = Message(1, len(self.rows) + 1, turn, role, None, self.micros, None,
                      {"role": role, **body})  # fmt: skip
        self.rows.append(row)

    def random_turn(self, turn: int) -> None:
        """Add some words, perhaps files, perhaps tools with images."""
        chance = self.chance
        self.micros += chance.randint(1, 10**11)
        kinds = ["image"] * chance.choice([0, 0, 1, 1, 3])
        kinds += ["document"] * (chance.random() < 0.1) + ["text"] * (chance.random() < 0.1)
        media = [
            {
                "name": f"{turn}.{kind}",
                "hash": f"{turn:060}{number:04}",
                "prepared": {
                    "kind": kind, "hash": f"{turn:060}{number:04}", "type": "image/jpeg",
                    "size": 90_000, "width": 900, "height": 600, "pages": 1, "text": "Hola " * 50,
                },
            }
            for number, kind in enumerate(kinds)
        ]  # fmt: skip
        self.add(turn, "user", content=f"message {turn} " * chance.randint(1, 30), media=media)
        for step in range(chance.choice([0, 0, 1, 2])):
            call = {"id": f"c{step}", "type": "function", "function": LOOK}
            self.add(turn, "assistant", content=None, tool_calls=[call], model="m")
            content = [PIXEL] if chance.random() < 0.4 else "sunny " * 20
            self.add(turn, "tool", tool_call_id=f"c{step}", content=content)
        self.add(turn, "assistant", content=f"answer {turn}", model="m", reasoning_content="hm")

    def prompt(self) -> list[str]:
        """Return the parts of the prompt as `Transcript.history` renders it."""
        style = Style("local", True, allow_images=True, model=self.model)
        window = fit_history(build_blocks(self.rows), self.budget, token_counter(style))
        shown = choose_shown(window.blocks, self.model)
        hashes = hashes_to_load(window.blocks, shown, self.model)
        view = MediaView(self.model, shown, {hash_: f"data{hash_}" for hash_ in hashes})
        style = style._replace(media=view, result_limit=window.result_limit)
        return flat(self.form, render_blocks(window.blocks, self.form, style))


LOOK = {"name": "look", "arguments": "{}"}


@pytest.mark.parametrize(
    ("form", "model", "max_tokens", "every"),
    [
        ("openai", READS, None, 4),
        ("anthropic", READS, 60_000, 3),
        ("responses", BLIND, None, 5),
        *(
            pytest.param(form, model, max_tokens, 1, marks=pytest.mark.slow)
            for form in FORMATS
            for model in (SEES, READS, BLIND)
            for max_tokens in (None, 60_000)
        ),
    ],
)
def test_each_request_begins_with_the_one_before_up_to_a_cut(
    form: Format, model: ModelTraits, max_tokens: int | None, every: int
) -> None:
    """Over 200 random turns with media, times and tools; what moves a cut moves it far."""
    prompts = Prompts(model, form, max_tokens)
    before: list[str] = []
    cuts: list[int] = []
    for turn in range(200):
        prompts.random_turn(turn)
        if turn % every:
            continue  # a request after several turns begins like the one before, too
        after = prompts.prompt()
        if after[: len(before)] != before:
            cuts.append(turn)
        before = after
    if model is BLIND and max_tokens is None:
        assert cuts == []
    else:
        assert 0 < len(cuts) < 200 / 3, cuts


@given(
    st.integers(0, 2**32),
    st.sampled_from(FORMATS),
    st.sampled_from([SEES, READS, BLIND]),
    st.integers(2, 30),
)
def test_requests_of_any_conversation_begin_like_the_one_before(
    seed: int, form: Format, model: ModelTraits, turns: int
) -> None:
    """Unless images are hidden, and that happens at most in every second turn."""
    prompts = Prompts(model, form, None, seed)
    before: list[str] = []
    cuts = [-2]
    for turn in range(turns):
        prompts.random_turn(turn)
        after = prompts.prompt()
        if after[: len(before)] != before:
            assert model is not BLIND
            assert turn - cuts[-1] >= 2
            cuts.append(turn)
        before = after


@pytest.mark.parametrize("form", FORMATS)
def test_a_store_renders_the_same_beginning(store: Store, form: Format) -> None:
    source = Source("telegram", "1", user_id="1")
    prompts, before = set(), ""
    for number in range(12):
        media = [image(store, number)] if number % 2 else []
        with store.turn(source, f"message {number}", media=media) as turn:
            turn.add_assistant(None, tool_calls=[ToolCall(f"c{number}", "look", {})], model="m")
            turn.add_tool_result(f"c{number}", [PIXEL] if number == 3 else "sunny")
            turn.add_assistant(f"answer {number}", model="m", reasoning="hm")
            prompts.add(turn.context_prompt)
            after = json.dumps(turn.history(timestamps="local", format=form, model=SEES))
        assert after.startswith(before)
        before = after[:-1]
    assert len(prompts) == 1


NEVER = ResetPolicy(mode="none")


class RememberingChat:
    """A conversation with random media, tools and memories, and the prompts that it leads to."""

    def __init__(self, store: Store, clock: FakeClock, seed: int) -> None:
        self.store = store
        self.clock = clock
        self.chance = random.Random(seed)
        self.source = Source("telegram", "1", user_id="1")
        store.memories.add(self.source, "Ana sails.")

    def prompt(self, number: int, form: Format) -> list[str]:
        """Let one turn happen; return the prompt of its last model call, part by part."""
        chance, store = self.chance, self.store
        self.clock.forward(minutes=chance.randint(1, 20))
        media = [image(store, number)] if chance.random() < 0.4 else []
        with store.turn(self.source, f"message {number}", media=media) as turn:
            for call in range(chance.choice((0, 0, 1, 2))):
                call_id = f"c{number}-{call}"
                turn.add_assistant(None, tool_calls=[ToolCall(call_id, "look", {})], model="m")
                turn.add_tool_result(call_id, [PIXEL] if chance.random() < 0.1 else "sunny")
            if chance.random() < 0.3:
                self.clock.forward(seconds=1)
                store.memories.record(turn.session.id, f"Ana said {number}.")
            if chance.random() < 0.1:
                self._talk_elsewhere(number)
            notes = memory.render(store.memories.shown(turn.session.id))
            history = turn.history(timestamps="local", format=form, model=SEES, max_messages=10_000)
            turn.add_assistant(f"answer {number}", model="m")
            return [turn.context_prompt, notes, *map(json.dumps, history)]

    def _talk_elsewhere(self, number: int) -> None:
        """Let another agent, and another person, remember something meanwhile."""
        others = (self.source.with_fields(agent="other"), Source("telegram", "2", user_id="2"))
        for source in others:
            self.store.memories.add(source, f"Somebody said {number}.")


def play_remembering(where: str, seed: int, turns: int) -> None:
    clock = FakeClock()
    settings = Settings(zone="UTC", durability="fast", policies=Policies(default=NEVER))
    with tertulia.open(where, settings=settings, clock=clock) as store:
        check_prompts(RememberingChat(store, clock, seed), turns)


def check_prompts(chat: RememberingChat, turns: int) -> None:
    """Assert that each prompt begins like the one before, up to the first cut."""
    store = chat.store
    before: list[str] = []
    cuts: list[int] = []
    for number in range(turns):
        after = chat.prompt(number, FORMATS[0])
        assert after[:2] == (before or after)[:2]  # the system prompt never moves
        if after[: len(before)] != before:
            cuts.append(number)
        before = after
    # Only images that are hidden move a cut: at most every fifth turn that has one.
    assert len(cuts) <= turns / 5 + 1, cuts
    assert "Ana sails." in before[1]
    assert "said" not in before[1]
    new = store.sessions.open(chat.source, force_new=True)
    texts = [item.text for item in store.memories.shown(new.id)]
    assert any(text.startswith("Ana said") for text in texts)
    assert not any("Somebody" in text for text in texts)


def test_the_whole_prompt_begins_alike_while_the_agent_remembers(where: str) -> None:
    play_remembering(where, seed=7, turns=25)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_the_whole_prompt_begins_alike_over_200_turns(where: str, seed: int) -> None:
    play_remembering(where, seed, turns=200)

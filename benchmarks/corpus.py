"""English-like text and turns, the same in every run.

Words are drawn by the Zipf-Mandelbrot law from a vocabulary of common words, and of stems with
prefixes and suffixes. Real prose repeats itself more than independent draws do, so compressing or
indexing this text is slightly harder than with real messages.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from typing import TypeVar

Message = dict[str, object]
T = TypeVar("T")

# The word that the search row looks for; it is in no vocabulary below.
RARE_WORD = "zarzuela"

COMMON = """
the of and to a in is that it was for on are as with they be at this have from or one had by but
not what all were we when your can said there use an each which she do how their if will up other
about out many then them these so some her would make like him into time has look two more write
go see number no way could people my than first water been call who oil its now find long down day
did get come made may part over new after also back little only round man year came show every
good me give our under name very through just form sentence great think say help low line differ
turn cause much mean before move right boy old too same tell does set three want air well play
small end put home read hand port large spell add even land here must big high such follow act why
ask men change went light kind off need house picture try us again animal point mother world near
build self earth father head stand own page should country found answer school grow study still
learn plant cover food sun four between state keep eye never last let thought city tree cross farm
hard start might story saw far sea draw left late run while press close night real life few north
open
"""

STEMS = """
abandon accept account achieve address admit advance afford agree allow announce appear apply
argue arrange arrive assist assume attach attack attempt attend avoid balance bargain belong blend
boil borrow bother bounce branch breathe brief bring bridge burn cable calm camp capture care
carry cast catch chain chart chase check claim clean climb clock collect combine comfort command
comment compare complain concern confirm connect consider consult contain correct count cover
crash create credit cycle damage dance debate decide declare deliver demand depend describe
deserve design detail detect develop direct discover discuss divide doubt dream drift earn edit
educate employ enable engage enjoy enter escape estimate examine exchange excite excuse exist
expand expect explain explore express extend face fail fasten favour fetch file finish flash float
focus fold force frame gather glance govern grant greet guard guess guide hammer handle happen
harbour harvest hatch hesitate hope hunt identify ignore imagine impress improve include increase
inform inspect intend invent invite involve island join journal judge justify kettle kitchen
ladder lantern launch laugh lead lend license listen locate lock manage march mark market marry
master match matter measure meet mend mention mirror mistake mount multiply narrow nature notice
number obey object observe obtain occur offer operate order orbit owe pack paint paper park pass
pattern pause perform permit place plan plaster please pocket polish pour practise praise predict
prefer prepare present preserve pretend prevent print produce promise protect prove provide
publish pull punish purchase push question quiet race raise rally reach realise receive recognise
record reduce reflect refuse regret reject relate relax release rely remain remember remind remove
repair repeat replace reply report request rescue reserve resist respect rest retire return reveal
review reward ride river rock roll rush satisfy scatter schedule scratch search season separate
serve settle shade shape share shelter shift shock signal silver sketch slide smile smooth soften
solve sort spark speak spend spoil spread spring stage stamp station stay steer step stitch store
stream stretch strike string strip suffer suggest supply support suppose surprise surround suspect
switch table target taste teach temper tend terminal test thank thread ticket timber touch tour
trace trade train transfer transform travel treat trouble trust turn twist type unite value vanish
vary visit voice volume wander warm warn wash waste watch weave weigh welcome whisper window
winter wonder work worry wrap yield
"""

ENDINGS = ("", "s", "ed", "ing", "er", "ers", "ment", "able", "less", "ful", "ness", "ly", "ive")
BEGINNINGS = ("", "re", "un")

TEXT_BYTES = 400


def vocabulary() -> list[str]:
    """Return common words first, then every stem with every ending, the plainest first."""
    derived = [
        beginning + stem + ending
        for beginning, ending in itertools.product(BEGINNINGS, ENDINGS)
        for stem in STEMS.split()
    ]
    return list(dict.fromkeys(COMMON.split() + derived))


class Corpus:
    """A generator of text that depends only on its seed."""

    def __init__(self, seed: int = 1) -> None:
        self._random = random.Random(seed)
        self._words = vocabulary()
        weights = (1 / (rank + 2.7) ** 1.15 for rank in range(len(self._words)))
        self._weights = list(itertools.accumulate(weights))

    def text(self, size: int = TEXT_BYTES) -> str:
        """Return prose of exactly `size` bytes."""
        draw = size // 4 + 8  # words have six bytes on average, with the space
        words = self._random.choices(self._words, cum_weights=self._weights, k=draw)
        for full_stop in range(9, draw, 11):
            words[full_stop] += "."
        return " ".join(words)[:size]

    def turn(self, number: int, size: int = TEXT_BYTES) -> list[Message]:
        """Return a question, a tool call, its result and the answer, each with `size` bytes."""
        call = f"call_{number}"
        return [
            {"role": "user", "content": self.text(size)},
            {
                "role": "assistant",
                "content": self.text(size),
                "tool_calls": [_tool_call(call, number)],
            },
            {"role": "tool", "tool_call_id": call, "content": self.text(size)},
            {"role": "assistant", "content": self.text(size)},
        ]

    def turns(self, count: int, size: int = TEXT_BYTES) -> list[list[Message]]:
        return [self.turn(number, size) for number in range(count)]

    def session_turns(self, messages: int, rare: int = 0) -> Iterator[list[Message]]:
        """Yield the turns of a long session; `rare` of the questions have the rare word."""
        turns = max(1, messages // 4)
        every = turns // rare if rare else turns + 1
        for number in range(turns):
            turn = self.turn(number)
            if number % every == every // 2:
                turn[0]["content"] = f"{RARE_WORD} {turn[0]['content']}"
            yield turn


def endless(turns: Sequence[T]) -> Iterator[T]:
    """Repeat the same turns, so that making text is never part of a measured time."""
    return itertools.cycle(turns)


def text_bytes(messages: list[Message]) -> int:
    return sum(len(str(message["content"]).encode()) for message in messages)


def _tool_call(call: str, number: int) -> dict[str, object]:
    arguments = f'{{"city": "Madrid", "day": {number % 31}}}'
    return {"id": call, "type": "function", "function": {"name": "look", "arguments": arguments}}

"""Messages of every kind that a provider, a platform or an old file could leave in a transcript."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from hypothesis import strategies as st

from tertulia.core.message import Message

Body = dict[str, Any]

HTML = "<div class='row'><a href='/x?y=1&amp;z=2'>link</a> 12.50&nbsp;</div>\n"
BASE64 = "data:image/png;base64,iVBORw0KGgo="

# Halves of surrogate pairs and null bytes among ordinary characters.
odd_texts = st.text(st.characters(exclude_categories=()), max_size=12)
plain_texts = st.sampled_from(
    [
        "Good morning.",
        "and tomorrow?",
        "sí",
        "明天早上七点一刻的渡轮",
        "🎉 yes",
        "a\x00b",
        "\ud83d",
        "x\udc00y",
    ]
)
blank_texts = st.sampled_from(["", " ", "\n\t ", "\u2003", "\u200b"])
long_texts = st.builds(
    lambda text, times: text * times,
    st.sampled_from(["word ", HTML, "漢字", "0123456789abcdef"]),
    st.sampled_from([1, 20, 300, 2000]),
)
texts = plain_texts | odd_texts | blank_texts | plain_texts | long_texts

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | odd_texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(odd_texts, inner, max_size=3),
    max_leaves=5,
)

urls = st.sampled_from(
    [
        *("https://example.org/a.png", "http://example.org/b.png", BASE64, "c.png", "", None, 7),
        *("data:image/svg+xml;base64,PHN2Zz4=", "data:image/png;base64,\ud800", "file:///d.png"),
    ]
)


def part_of(kind: str, field: str, value: st.SearchStrategy[Any]) -> st.SearchStrategy[Body]:
    return st.fixed_dictionaries({"type": st.just(kind)}, optional={field: value, "extra": values})


pictures = st.fixed_dictionaries({"url": urls}, optional={"detail": values | st.just("low")})
sounds = st.just({"data": "AA==", "format": "wav"}) | values
files = st.sampled_from([{"file_id": "f1"}, {"file_data": "AA==", "filename": "a.pdf"}]) | values
parts = st.one_of(
    part_of("text", "text", texts | values),
    part_of("image_url", "image_url", urls | pictures),
    part_of("input_audio", "input_audio", sounds),
    part_of("file", "file", files),
    part_of("refusal", "refusal", texts | values),
    part_of("thinking", "thinking", texts),
    part_of("tool_use", "input", values),
    part_of("input_text", "text", texts),
    values,
)
contents = st.one_of(texts, texts, st.lists(parts, max_size=4), values)

# Few ids, so that they meet; among them such as become the same when they are mended.
call_ids = st.sampled_from(
    [
        *("call_0", "call_0", "call_1", "call_2", "call_0_2", "a b", "a_x20_b", "é"),
        *("x" * 40, "x" * 41, "x" * 90, "q\ud800", "q\ud801", "", None, 5),
    ]
)
names = st.sampled_from(["weather", "read-file", "fs.read", "", "tool name", "é" * 70, None, 3])
arguments = st.one_of(
    st.sampled_from(
        [
            *("{}", '{"city": "Oslo"}', "", " ", "{broken", "[1, 2]", '"text"', "null", None),
            *(
                '{"a": NaN}',
                '{"a": "\\ud800"}',
                '{"a": 1, "a": 2}',
                '{"a": ' * 300 + "1" + "}" * 300,
            ),
        ]
    ),
    st.builds(lambda text: json.dumps({"text": text}), texts),
    values,
)
calls = st.one_of(
    st.builds(
        lambda call_id, name, text: {
            "id": call_id,
            "type": "function",
            "function": {"name": name, "arguments": text},
        },
        call_ids,
        names,
        arguments,
    ),
    st.fixed_dictionaries({}, optional={"id": call_ids, "function": values, "index": values}),
    st.fixed_dictionaries({"id": call_ids, "name": names, "input": values}),
    st.fixed_dictionaries({"id": call_ids, "type": st.just("custom"), "custom": values}),
    values,
)
call_lists = st.one_of(st.lists(calls, max_size=3), st.lists(calls, max_size=3), calls, values)
thoughts = st.lists(
    st.fixed_dictionaries(
        {"type": st.sampled_from(["thinking", "redacted_thinking", "text", 4])},
        optional={"thinking": texts | values, "signature": texts | values, "data": texts | values},
    )
    | values,
    max_size=2,
)
# Files as a gateway prepares them, and as nobody does.
prepared_files = st.builds(
    lambda kind, name, text, hash_: {
        "name": name,
        "hash": hash_,
        "type": "image/png",
        "prepared": {
            "kind": kind, "hash": hash_, "type": "image/png", "size": 9, "width": 5, "height": 5,
            "pages": 1, "text": text, "caption": text,
        },
    },
    st.sampled_from(["image", "image", "document", "text", "audio", "none", "odd"]),
    odd_texts,
    texts,
    st.sampled_from(["a" * 64, "b" * 64, "c" * 64]),
)  # fmt: skip
media = st.one_of(
    values,
    st.lists(
        odd_texts
        | prepared_files
        | st.fixed_dictionaries({}, optional={"type": odd_texts, "path": odd_texts, "url": values}),
        max_size=3,
    ),
)


def message(role: str, **optional: st.SearchStrategy[Any]) -> st.SearchStrategy[Body]:
    return st.fixed_dictionaries(
        {"role": st.just(role)}, optional={"content": contents, "name": names | values, **optional}
    )


people = message(
    "user", media=media, tool_calls=call_lists, tool_call_id=call_ids, message_id=values
)
assistants = message(
    "assistant",
    tool_calls=call_lists,
    reasoning_content=texts | values,
    thinking_blocks=thoughts,
    refusal=texts | values,
)
results = message("tool", tool_call_id=call_ids | values)
strangers = st.builds(
    lambda role, body: {**body, "role": role},
    st.sampled_from(["system", "developer", "function", "summary", "model", "User", "\ud800"]),
    message("any"),
)


@st.composite
def sound_turns(draw: st.DrawFn) -> list[Body]:
    """A turn as a correct program stores it, perhaps incomplete."""
    bodies: list[Body] = [{"role": "user", "content": draw(plain_texts)}]
    for step in range(draw(st.integers(0, 3))):
        ids = [f"call_{step}_{index}" for index in range(draw(st.integers(1, 3)))]
        tool_calls = [
            {"id": i, "type": "function", "function": {"name": "look", "arguments": '{"at": 1}'}}
            for i in ids
        ]
        bodies.append(
            {"role": "assistant", "content": draw(st.none() | texts), "tool_calls": tool_calls}
        )
        bodies += [{"role": "tool", "tool_call_id": i, "content": draw(texts)} for i in ids]
    bodies.append({"role": "assistant", "content": draw(plain_texts)})
    return bodies[: draw(st.integers(1, len(bodies)))]


@st.composite
def transcripts(draw: st.DrawFn) -> list[Body]:
    """Legal turns and anything else; some messages are moved or repeated."""
    anything = st.lists(people | assistants | results | strangers, max_size=6)
    pieces = draw(st.lists(sound_turns() | sound_turns() | anything, max_size=5))
    bodies = [body for piece in pieces for body in piece]
    for _ in range(draw(st.integers(0, 3)) if bodies else 0):
        body = bodies[draw(st.integers(0, len(bodies) - 1))]
        if draw(st.booleans()):
            bodies.remove(body)
        bodies.insert(draw(st.integers(0, len(bodies))), body)
    return bodies


kinds = st.sampled_from([None] * 8 + ["command", "internal", "delivery", "delivery", "interrupted"])
authors = st.one_of(
    st.none(),
    st.none(),
    st.builds(
        lambda i, name: json.dumps({"id": i, "name": name}), odd_texts, st.none() | odd_texts
    ),
)


def rows_of(bodies: Iterable[Body], **fields: Any) -> list[Message]:
    """Rows as the store would number them: each message of a person begins a turn."""
    rows = []
    turn = 0
    for seq, body in enumerate(bodies, 1):
        turn += body["role"] == "user"
        role = body["role"].encode("utf-8", "replace").decode()
        place: dict[str, Any] = {"session": 1, "seq": seq, "turn": turn, "role": role, "kind": None}
        row = {
            **place,
            "micros": 1_700_000_000_000_000 + seq * 61_000_000,
            "author": None,
            **fields,
        }
        rows.append(Message(**row, body=body))
    return rows


@st.composite
def stored_rows(draw: st.DrawFn) -> list[Message]:
    """Rows of any kind and author, in any turn."""
    rows = []
    for row in rows_of(draw(transcripts())):
        kind = draw(kinds)
        author = draw(authors) if row.role == "user" else None
        turn = row.turn if draw(st.integers(0, 9)) else draw(st.integers(0, 3))
        rows.append(
            Message(row.session, row.seq, turn, row.role, kind, row.micros, author, row.body)
        )
    return rows


message_limits = st.integers(1, 60)
token_limits = st.none() | st.integers(1, 5000)
timestamps = st.sampled_from(["none", "user", "all"])
formats = st.sampled_from(["openai", "responses", "anthropic", "text"])

"""Texts that try to take effect on a page."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, example, settings
from hypothesis import strategies as st

from tertulia import Source, Store
from tertulia.transfer.exporters.export import Form, document

ATTACKS = [
    "<script>alert(1)</script>",
    "</pre></code></details></article><script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "<!-- --><svg onload=alert(1)>",
    "&lt;script&gt; &amp; &#x3c;script&#x3e;",
    "[click](javascript:alert(1)) ![x](http://tracker.example/x.png) <http://a.example>",
    "# heading\n## 2. assistant\n- list\n1. list\n> quote\n***\n---\n===\n| a | b |\n|---|---|",
    "```html\n<script>alert(1)</script>\n```\n~~~\n</style>",
    "``` \n never closed",
    "`<b>` ``x`` *a* _b_ __c__ ~~d~~ $e$ a_b_c \\* \\",
    "    four spaces\n\ttab\n\n\n  # two",
    "line\u2028separator\x0b\x0c\x85\x1b[31m\x9b31m \u202eevil\u2066",
    "[ref]: http://x.example\n[^1]: note\n\n[ref]",
    "<style>body{display:none}</style><base href=http://x.example><meta http-equiv=refresh>",
    "half \ud83d pair \x00 nul",
]


texts = st.sampled_from(ATTACKS) | st.text(max_size=60)


awkward = st.lists(
    st.sampled_from([*"`*_~<>[]()!&#|\\-+=.:1 \n\t\"'$^{}", "```", "~~~", "<a>", "&lt;", "x", "é"]),
    max_size=24,
).map("".join)


on_one_store = settings(
    max_examples=60,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def page(store: Store, messages: list[dict[str, Any]], form: Form, **source: Any) -> str:
    who = Source("telegram", "42", **{"user_id": "42", **source})
    session = store.sessions.open(who, force_new=True)
    store.transcript(session.id).extend(messages)
    return "\n".join(document(store, session.id, form)) + "\n"


def everywhere(text: str) -> list[dict[str, Any]]:
    """The text in every place of a message that a stranger or a model can fill."""
    call = {"id": text, "type": "function", "function": {"name": text, "arguments": text}}
    return [
        {"role": "user", "content": text, "name": text},
        {"role": "user", "content": [{"type": "text", "text": text}, {"type": text}]},
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": text}}]},
        {"role": "user", "content": "see", "media": [text, {"path": text, "type": text}]},
        {"role": "assistant", "content": text, "reasoning_content": text, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": text, "content": text},
        {"role": text or "x", "content": {"odd": text}},
    ]


def every_attack(test: Any) -> Any:
    for attack in ATTACKS:
        test = example(text=attack)(test)
    return test

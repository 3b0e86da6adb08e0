"""Keys, tokens and passwords are hidden; other text stays unchanged."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tertulia.core.text.secret_patterns import HIDDEN, hide_secrets

LETTERS = "abcdefghijklmnopqrstuvwxyz012345"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"wrong key sk-{LETTERS} given", f"wrong key {HIDDEN} given"),
        (f"sk-ant-api03-{LETTERS}", HIDDEN),
        (f"Authorization: Bearer {LETTERS}", f"Authorization: Bearer {HIDDEN}"),
        (f"{{'authorization': 'Basic {LETTERS}'}}", f"{{'authorization': 'Basic {HIDDEN}'}}"),
        ("OPENAI_API_KEY=hunter22 failed", f"OPENAI_API_KEY={HIDDEN} failed"),
        ('{"client_secret": "hunter22"}', f'{{"client_secret": "{HIDDEN}"}}'),
        ("GET /x?token=hunter22&a=b", f"GET /x?token={HIDDEN}&a=b"),
        ("postgresql://ana:pw@host/db", f"postgresql://ana:{HIDDEN}@host/db"),
        (f"/bot123456789:{LETTERS}XYZ/getMe", f"/bot{HIDDEN}/getMe"),
        (f"eyJhbGciOi.{LETTERS}.{LETTERS}", HIDDEN),
        ("xoxb-1234567890-abcdef", HIDDEN),
    ],
)
def test_secret_is_hidden(text: str, expected: str) -> None:
    assert hide_secrets(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "20261116_063701_0f25ff44",
        "agent:main:telegram:dm:42",
        "input_tokens=812 output_tokens=64",
        "HTTP on http://127.0.0.1:8460, described at /openapi.json",
        "The token 'ana' is not known.",
        "ask-me-anything-about-it",
        "postgresql://host/db",
        "The secret of the token a is too short",
    ],
)
def test_ordinary_text_stays(text: str) -> None:
    assert hide_secrets(text) == text


@given(st.text())
def test_hiding_again_changes_nothing(text: str) -> None:
    once = hide_secrets(text)
    assert hide_secrets(once) == once

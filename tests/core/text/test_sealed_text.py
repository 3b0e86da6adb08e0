"""Sealed texts: only the holder of the key reads and makes them."""

from __future__ import annotations

import base64

from hypothesis import given
from hypothesis import strategies as st

from tertulia.core.text.sealed_text import seal, unseal

KEY = bytes(range(32))


@given(st.text(max_size=300))
def test_sealed_text_can_be_read_with_the_key_only(text: str) -> None:
    sealed = seal(KEY, text)
    assert unseal(KEY, sealed) == text
    assert unseal(b"another key of the same length!!", sealed) is None
    assert sealed != seal(KEY, text)
    if len(text) > 3:
        assert text.encode("utf-8", "surrogatepass") not in base64.urlsafe_b64decode(sealed + "===")


@given(st.text(min_size=1, max_size=40), st.integers(min_value=0), st.integers(1, 255))
def test_changed_text_is_refused(text: str, position: int, change: int) -> None:
    data = bytearray(base64.urlsafe_b64decode(seal(KEY, text) + "==="))
    data[position % len(data)] ^= change
    assert unseal(KEY, base64.urlsafe_b64encode(bytes(data)).decode()) is None


@given(st.text(max_size=60))
def test_any_other_text_is_refused(text: str) -> None:
    assert unseal(KEY, text) is None

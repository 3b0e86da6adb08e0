from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tertulia.core.text.storable import storable


@given(st.text(alphabet=st.characters(exclude_categories=())))
def test_any_text_becomes_valid_utf8_without_nul(text: str) -> None:
    stored = storable(text)
    assert stored is not None
    stored.encode("utf-8")
    assert "\x00" not in stored
    assert len(stored) == len(text)
    assert storable(stored) == stored


def test_valid_text_and_none_stay_unchanged() -> None:
    assert storable("naïve 🎉\n") == "naïve 🎉\n"
    assert storable(None) is None

"""What is kept comes back as it was given, or is refused before anything is stored."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tertulia import IllegalMove
from tertulia.core.message import from_json, to_json
from tertulia.integrations.payload import (
    attach_payload,
    from_payload,
    is_continuation,
    is_payload,
    to_payload,
)

pytestmark = pytest.mark.check

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(alphabet=st.characters(exclude_categories=())),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(alphabet=st.characters(exclude_categories=())), inner, max_size=4)
    ),
    max_leaves=20,
)


def stored(kept: Any) -> Any:
    return from_json(to_json(kept))


@given(json_values)
def test_json_comes_back_exactly(value: Any) -> None:
    read_back = from_payload(stored(to_payload(value)))
    assert read_back == value
    assert json.dumps(read_back) == json.dumps(value)  # 1, 1.0 and True are equal, and not the same


def test_numbers_that_are_none_come_back() -> None:
    read_back = from_payload(stored(to_payload({"a": [math.nan, math.inf, -math.inf]})))
    assert math.isnan(read_back["a"][0])
    assert read_back["a"][1:] == [math.inf, -math.inf]


def test_what_is_nested_deeper_than_a_message_may_be_comes_back() -> None:
    deep: Any = "x"
    for _ in range(300):
        deep = [deep]
    assert from_payload(stored(to_payload(deep))) == deep


@pytest.mark.parametrize(
    "value", [object(), {1: "a"}, {"a": b"raw"}, [datetime(2026, 1, 1, tzinfo=UTC)], {"a": {1, 2}}]
)
def test_what_json_would_change_is_refused(value: Any) -> None:
    with pytest.raises(IllegalMove, match="cannot be kept exactly"):
        to_payload(value)


def test_one_thing_in_several_messages() -> None:
    first, second = attach_payload(
        [{"role": "tool"}, {"role": "user"}], "sdk", to_payload(7, id="x")
    )
    assert is_payload(first["sdk"])
    assert from_payload(first["sdk"]) == 7
    assert first["sdk"]["id"] == "x"
    assert is_continuation(second["sdk"])
    assert not is_payload(second["sdk"])


@pytest.mark.parametrize("value", [None, "x", 1, {}, {"json": 5}, {"follows": 1}])
def test_what_others_wrote_under_the_name_is_no_payload(value: Any) -> None:
    assert not is_payload(value)
    assert not is_continuation(value)

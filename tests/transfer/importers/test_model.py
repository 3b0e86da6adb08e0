"""Values of other systems become ours, whatever their types."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tertulia import Source
from tertulia.transfer.importers import model

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=5,
)


@given(st.lists(st.text(), max_size=3), st.lists(st.text(), max_size=3))
def test_import_names_differ_unless_the_parts_are_equal(left: list[str], right: list[str]) -> None:
    if "\0" not in "".join([*left, *right]):
        same = model.import_name("x", *left, "end") == model.import_name("x", *right, "end")
        assert same == (left == right)


@given(ANYTHING)
def test_counts_and_costs_are_sane_for_any_value(value: object) -> None:
    assert 0 <= model.count(value) < 2**53
    cost = model.dollars(value)
    assert cost is None or (0 < cost < 1e9 and not math.isnan(cost))


@given(ANYTHING)
def test_source_is_read_from_any_value_without_an_error(value: object) -> None:
    source = model.source_of(value, "telegram")
    assert source is None or isinstance(source, Source)


def test_session_of_unknown_origin_has_a_key_of_its_own() -> None:
    keys = {model.key_of(model.unknown_source("hermes", name)) for name in ("1", "2")}
    assert len(keys) == 2
    assert model.person_in(model.unknown_source("hermes", "1"), keys.pop()) is None


@pytest.mark.parametrize(
    ("source", "key", "person"),
    [
        (Source("telegram", "42", user_id="42"), "agent:main:telegram:dm:42", "telegram:42"),
        (Source("telegram", "42", user_id="42"), "agent:main:telegram:dm:77", None),
        (
            Source("telegram", "-5", chat_type="group", user_id="42"),
            "agent:main:telegram:group:-5:42",
            "telegram:42",
        ),
        (
            Source("telegram", "-5", chat_type="group", user_id="42"),
            "agent:main:telegram:group:-5",
            None,
        ),
    ],
)
def test_session_belongs_to_a_person_only_if_its_key_says_so(
    source: Source, key: str, person: str | None
) -> None:
    assert model.person_in(source, key) == person


def test_charge_without_usage_is_none_and_unknown_cost_stays_unknown() -> None:
    assert model.charge_of({"input": 0, "output": 0}) is None
    charge = model.charge_of({"input": 3, "output": 4}, model="m")
    assert charge is not None

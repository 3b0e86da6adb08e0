from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from tertulia import ConfigError, Usage
from tertulia.core.usage import from_nano, to_nano, weakest_status


def test_total_counts_reasoning_once() -> None:
    assert Usage(1, 20, 300, 4000, reasoning=15).total == 4321


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("input", -1),
        ("output", 1.0),
        ("cache_read", True),
        ("cache_write", None),
        ("reasoning", 2**53),
        ("last_prompt", -1),
        ("cost_status", "guessed"),
        ("cost_usd", -0.01),
        ("cost_usd", "1"),
        ("cost_usd", float("nan")),
        ("cost_usd", True),
        ("cost_usd", Decimal("sNaN")),
        ("model", 4),
    ],
)
def test_invalid_value_names_its_field(field: str, value: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        Usage(**{field: value})
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("first", "second", "status"),
    [
        ("actual", "estimated", "estimated"),
        ("unknown", "included", "unknown"),
        ("included", "actual", "actual"),
        (None, "actual", "actual"),
        (None, None, None),
    ],
)
def test_sum_has_the_status_of_its_least_certain_part(
    first: str | None, second: str | None, status: str | None
) -> None:
    assert weakest_status(first, second) == status
    assert weakest_status(second, first) == status


def test_sums_of_money_do_not_drift() -> None:
    assert to_nano(0.1) == 100_000_000
    assert sum([to_nano(0.1) or 0] * 10) == to_nano(1)
    assert to_nano(Decimal("0.000000001")) == 1
    assert from_nano(to_nano(12.34)) == 12.34
    assert (to_nano(None), from_nano(None)) == (None, None)

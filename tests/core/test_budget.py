from __future__ import annotations

from typing import Any

import pytest

from tertulia import Budget, ConfigError


@pytest.mark.parametrize(
    ("limits", "tokens", "dollars", "reached"),
    [
        ({"tokens": 1000}, 999, 50.0, None),
        ({"tokens": 1000}, 1000, 0.0, "1,000 of 1,000 tokens"),
        ({"usd": 2.5}, 10**9, 2.49, None),
        ({"usd": 2.5}, 0, 2.5, "$2.50 of $2.50"),
        ({"usd": 2.5, "tokens": 10}, 10, 3.0, "10 of 10 tokens"),
        ({"tokens": 0}, 0, 0.0, "0 of 0 tokens"),
    ],
)
def test_reached_limit_is_described(
    limits: dict[str, Any], tokens: int, dollars: float, reached: str | None
) -> None:
    assert Budget(per="person", **limits).reached_limit(tokens, dollars) == reached


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"per": "chat", "tokens": 1}, "per"),
        ({"per": "person", "period": "week", "tokens": 1}, "period"),
        ({"per": "person", "tokens": -1}, "tokens"),
        ({"per": "person", "usd": float("nan")}, "usd"),
    ],
)
def test_invalid_budget_names_its_field(fields: dict[str, Any], field: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Budget(**fields)
    assert caught.value.field == field


def test_budget_without_a_limit_is_refused() -> None:
    with pytest.raises(ConfigError, match="no limit"):
        Budget(per="session")

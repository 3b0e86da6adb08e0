from __future__ import annotations

import sys

import pytest

from tertulia import Usage
from tertulia.core import prices


@pytest.fixture(autouse=True)
def _empty_cache() -> None:
    prices._get_rates.cache_clear()


def test_cost_grows_with_each_kind_of_token() -> None:
    model = "gpt-4o"
    small = prices.estimate_cost(Usage(input=1000, output=1000, model=model))
    assert small is not None
    for more in (
        Usage(input=2000, output=1000, model=model),
        Usage(input=1000, output=2000, model=model),
        Usage(input=1000, output=1000, cache_read=1000, model=model),
    ):
        larger = prices.estimate_cost(more)
        assert larger is not None
        assert larger > small


def test_price_per_million_tokens() -> None:
    """2.50 dollars for a million input tokens, in billionths of a dollar."""
    assert prices.estimate_cost(Usage(input=1_000_000, model="gpt-4o")) == 2_500_000_000


@pytest.mark.parametrize(
    "usage",
    [Usage(input=5), Usage(model="gpt-4o"), Usage(input=5, model="no-such-model-anywhere")],
)
def test_unknown_price_is_none(usage: Usage) -> None:
    assert prices.estimate_cost(usage) is None


def test_missing_price_list_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "genai_prices", None)
    assert prices.estimate_cost(Usage(input=5, model="gpt-4o")) is None

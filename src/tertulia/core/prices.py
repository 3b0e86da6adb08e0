"""Cost estimates of model calls from a maintained price list (the `prices` extra).

A model that is not in the list has no price. An unknown price is None, never zero.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from functools import lru_cache
from typing import Any

from msgspec.structs import replace

from tertulia.core.usage import Usage, from_nano, to_nano

SOURCE = "genai-prices"

# Trillionths of a dollar per token: uncached input, output, cache read, cache write. With integers
# an estimate takes a microsecond; prices have at most six decimals.
Rates = tuple[int, int, int, int]
_PICO_PER_NANO = 1000


def estimate_cost(usage: Usage) -> int | None:
    """Return the cost in billionths of a dollar, or None if the list has no price for it."""
    if not usage.model or usage.total == 0:
        return None
    rates = _get_rates(usage.model, usage.provider, usage.base_url)
    if rates is None:
        return None
    if not isinstance(rates, tuple):
        return rates(usage)
    input_rate, output_rate, read_rate, write_rate = rates
    pico = (
        usage.input * input_rate
        + usage.output * output_rate
        + usage.cache_read * read_rate
        + usage.cache_write * write_rate
    )
    return (pico + _PICO_PER_NANO // 2) // _PICO_PER_NANO


def add_estimate(usage: Usage) -> Usage:
    """Return the usage with an estimated cost, if its cost was not reported and has a price."""
    if usage.cost_usd is not None or usage.cost_status is not None:
        return usage
    cost = from_nano(estimate_cost(usage))
    if cost is None:
        return usage
    source = usage.cost_source or SOURCE
    return replace(usage, cost_usd=cost, cost_status="estimated", cost_source=source)


@lru_cache(maxsize=256)
def _get_rates(
    model: str, provider: str | None, base_url: str | None
) -> Rates | Callable[[Usage], int | None] | None:
    """Return four flat rates, a function if the price has steps, or None if there is no price.

    A lookup in the list takes about 80 µs, more than storing a whole turn; a price changes a few
    times a year, so each model is looked up once per process.
    """
    try:
        import genai_prices
    except ImportError:
        return None
    try:
        calculation = _calculate(genai_prices, Usage(input=1, model=model), provider, base_url)
    except LookupError:
        return None
    price = calculation.model_price
    # Without a price of its own, a cached token costs as much as other input.
    read = price.input_mtok if price.cache_read_mtok is None else price.cache_read_mtok
    write = price.input_mtok if price.cache_write_mtok is None else price.cache_write_mtok
    prices = (price.input_mtok, price.output_mtok, read, write)
    if all(isinstance(rate, Decimal) for rate in prices):
        return _to_pico(prices[0]), _to_pico(prices[1]), _to_pico(read), _to_pico(write)
    return lambda usage: _estimate_stepped(genai_prices, usage, provider, base_url)


def _to_pico(dollars_per_million: Decimal) -> int:
    return round(dollars_per_million * 1_000_000)


def _estimate_stepped(
    prices: Any, usage: Usage, provider: str | None, base_url: str | None
) -> int | None:
    try:
        total = _calculate(prices, usage, provider, base_url).total_price
    except (LookupError, ValueError):
        return None
    return to_nano(total) if isinstance(total, Decimal) else None


def _calculate(prices: Any, usage: Usage, provider: str | None, base_url: str | None) -> Any:
    tokens = prices.Usage(
        # The list counts cached tokens as a part of the input, `Usage` counts them separately.
        input_tokens=usage.input + usage.cache_read + usage.cache_write,
        output_tokens=usage.output,
        cache_read_tokens=usage.cache_read or None,
        cache_write_tokens=usage.cache_write or None,
    )
    options = {"provider_api_url": base_url} if base_url and not provider else {}
    if provider:
        options = {"provider_id": provider}
    return prices.calc_price(tokens, usage.model, **options)

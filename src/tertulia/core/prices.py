"""What a model call costs, estimated from a maintained price list (the `prices` extra).

A model that the list does not know has no price. Nothing here ever answers zero for "unknown".
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from functools import lru_cache
from typing import Any

from tertulia.core.usage import Usage, to_nano

SOURCE = "genai-prices"

# Trillionths of a dollar for a token: plain input, output, read from and written to a cache. With
# whole numbers a price is worked out in a microsecond; prices have at most six decimals.
Rates = tuple[int, int, int, int]
_PICO_PER_NANO = 1000


def estimate(usage: Usage) -> int | None:
    """The cost in billionths of a dollar, or None where the list has no price for it."""
    if not usage.model or usage.total == 0:
        return None
    rates = _rates(usage.model, usage.provider, usage.base_url)
    if rates is None:
        return None
    if not isinstance(rates, tuple):
        return rates(usage)
    plain, out, read, write = rates
    pico = (
        usage.input * plain
        + usage.output * out
        + usage.cache_read * read
        + usage.cache_write * write
    )
    return (pico + _PICO_PER_NANO // 2) // _PICO_PER_NANO


@lru_cache(maxsize=256)
def _rates(
    model: str, provider: str | None, base_url: str | None
) -> Rates | Callable[[Usage], int | None] | None:
    """Four flat rates; or a function where the price has steps; or None.

    Looking a model up takes the list about 80 µs, more than storing a whole turn; a price changes
    a few times a year, so that each model is looked up once per process.
    """
    try:
        import genai_prices
    except ImportError:
        return None
    try:
        found = _calculate(genai_prices, Usage(input=1, model=model), provider, base_url)
    except LookupError:
        return None
    price = found.model_price
    plain, out = price.input_mtok, price.output_mtok
    # Where a cache has no price of its own, its tokens cost what other input costs.
    read = plain if price.cache_read_mtok is None else price.cache_read_mtok
    write = plain if price.cache_write_mtok is None else price.cache_write_mtok
    if all(isinstance(rate, Decimal) for rate in (plain, out, read, write)):
        return _pico(plain), _pico(out), _pico(read), _pico(write)
    return lambda usage: _stepped(genai_prices, usage, provider, base_url)


def _pico(dollars_per_million: Decimal) -> int:
    return round(dollars_per_million * 1_000_000)


def _stepped(prices: Any, usage: Usage, provider: str | None, base_url: str | None) -> int | None:
    try:
        total = _calculate(prices, usage, provider, base_url).total_price
    except (LookupError, ValueError):
        return None
    return to_nano(total) if isinstance(total, Decimal) else None


def _calculate(prices: Any, usage: Usage, provider: str | None, base_url: str | None) -> Any:
    counted = prices.Usage(
        # The list counts cached tokens as a part of the input, a Usage counts them apart.
        input_tokens=usage.input + usage.cache_read + usage.cache_write,
        output_tokens=usage.output,
        cache_read_tokens=usage.cache_read or None,
        cache_write_tokens=usage.cache_write or None,
    )
    where = {"provider_api_url": base_url} if base_url and not provider else {}
    if provider:
        where = {"provider_id": provider}
    return prices.calc_price(counted, usage.model, **where)

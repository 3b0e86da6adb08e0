from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from tertulia import ConfigError, Source
from tertulia.core import validate


@pytest.mark.parametrize(
    "check",
    [
        lambda: validate.source(Source("telegram", "42")),
        lambda: validate.text("name", ""),
        lambda: validate.text("name", None, optional=True),
        lambda: validate.whole("name", 1, 1, 5),
        lambda: validate.whole("name", 10**9, 1),
        lambda: validate.number("name", 0.5),
        lambda: validate.number("name", float("inf")),
        lambda: validate.moment("name", datetime.now(UTC)),
        lambda: validate.many("name", ()),
        lambda: validate.many("name", {"a": 1}.keys()),
    ],
)
def test_valid_value_passes(check: Callable[[], None]) -> None:
    check()


@pytest.mark.parametrize(
    ("check", "message"),
    [
        (lambda: validate.source("telegram"), "source is 'telegram'"),
        (lambda: validate.text("name", None), "name is None"),
        (lambda: validate.text("name", b"x"), "name is b'x'"),
        (lambda: validate.whole("name", 0, 1), "Give 1 or more"),
        (lambda: validate.whole("name", 6, 1, 5), "Allowed: 1 to 5"),
        (lambda: validate.whole("name", True, 0), "name is True"),
        (lambda: validate.whole("name", 1.0, 0), "name is 1.0"),
        (lambda: validate.number("name", "1"), "name is '1'"),
        (lambda: validate.number("name", float("nan")), "name is nan"),
        (lambda: validate.number("name", False), "name is False"),
        (lambda: validate.moment("name", datetime(2026, 1, 1)), "no time zone"),
        (lambda: validate.moment("name", "2026-01-01"), "no time zone"),
        (lambda: validate.many("name", "text"), "name is 'text'"),
        (lambda: validate.many("name", 3), "name is 3"),
    ],
)
def test_invalid_value_is_refused(check: Callable[[], None], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        check()
    assert caught.value.field in ("name", "source")


def test_long_value_is_shortened_in_the_message() -> None:
    value: Any = ["x" * 10_000]
    with pytest.raises(ConfigError) as caught:
        validate.text("name", value)
    assert len(str(caught.value)) < 120

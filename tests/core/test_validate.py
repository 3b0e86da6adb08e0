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
        lambda: validate.integer("name", 1, 1, 5),
        lambda: validate.integer("name", 10**9, 1),
        lambda: validate.number("name", 0.5),
        lambda: validate.number("name", float("inf")),
        lambda: validate.aware_datetime("name", datetime.now(UTC)),
        lambda: validate.collection("name", ()),
        lambda: validate.collection("name", {"a": 1}.keys()),
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
        (lambda: validate.integer("name", 0, 1), "Give 1 or more"),
        (lambda: validate.integer("name", 6, 1, 5), "Allowed: 1 to 5"),
        (lambda: validate.integer("name", True, 0), "name is True"),
        (lambda: validate.integer("name", 1.0, 0), "name is 1.0"),
        (lambda: validate.number("name", "1"), "name is '1'"),
        (lambda: validate.number("name", float("nan")), "name is nan"),
        (lambda: validate.number("name", False), "name is False"),
        (lambda: validate.aware_datetime("name", datetime(2026, 1, 1)), "no time zone"),
        (lambda: validate.aware_datetime("name", "2026-01-01"), "no time zone"),
        (lambda: validate.collection("name", "text"), "name is 'text'"),
        (lambda: validate.collection("name", 3), "name is 3"),
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


def test_choice_must_be_an_allowed_word() -> None:
    validate.choice("state", "done", ("waiting", "done"))
    with pytest.raises(ConfigError, match="Allowed: waiting, done") as caught:
        validate.choice("state", "asleep", ("waiting", "done"))
    assert caught.value.field == "state"

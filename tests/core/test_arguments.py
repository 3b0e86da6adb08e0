from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal

import pytest

from tertulia import ConfigError, Source
from tertulia.core.arguments import checks_arguments


@checks_arguments
class Record:
    def take(
        self,
        text: str = "",
        *,
        name: str | None = None,
        number: int = 1,
        seconds: float = 1,
        flag: bool = False,
        state: Literal["all", "ended"] = "all",
        since: datetime | None = None,
        source: Source | None = None,
        fields: Mapping[str, Any] | None = None,
        names: Sequence[str] = (),
        items: Collection[Any] = (),
        call: Callable[[], None] | None = None,
        anything: Any = None,
    ) -> str:
        return text

    def _keep(self, text: str) -> str:
        return text


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("text", ["a", ""]),
        ("name", ["a", None]),
        ("number", [0, -1, 2**80]),
        ("seconds", [1, 0.5, float("inf")]),
        ("flag", [True, False]),
        ("state", ["all", "ended"]),
        ("since", [datetime.now(UTC), None]),
        ("source", [Source("telegram", "42"), None]),
        ("fields", [{"a": 1}, None]),
        ("names", [[], ("a",), {"a"}]),
        ("items", [[1], (object(),)]),
        ("call", [print, None]),
        ("anything", [object(), None, 1]),
    ],
)
def test_argument_that_fits_its_hint_is_passed_on(name: str, values: list[Any]) -> None:
    for value in values:
        Record().take(**{name: value})


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("text", [None, 1, b"a", ["a"]]),
        ("name", [1, object()]),
        ("number", ["1", 1.0, True, None, 10**5_000]),
        ("seconds", ["1", float("nan"), True, 10**400]),
        ("flag", [1, "yes", None]),
        ("state", ["asleep", None, ["all"]]),
        ("since", ["2026-01-01", 0, datetime(2026, 1, 1)]),
        ("source", ["telegram", {"platform": "telegram"}]),
        ("fields", [[], "a", [("a", 1)]]),
        ("names", ["a", None, 1, [1], [None]]),
        ("items", ["a", b"a", 1]),
        ("call", ["print", 1]),
    ],
)
def test_argument_that_does_not_fit_its_hint_is_refused(name: str, values: list[Any]) -> None:
    for value in values:
        with pytest.raises(ConfigError, match=f"^{name} (is|has) ") as caught:
            Record().take(**{name: value})
        assert caught.value.field == name
        assert caught.value.hint


def test_positional_argument_is_checked() -> None:
    with pytest.raises(ConfigError, match=r"^text is 5\. Give text\.$"):
        Record().take(5)  # type: ignore[arg-type]


def test_error_names_the_allowed_words() -> None:
    with pytest.raises(ConfigError, match="Allowed: all, ended"):
        Record().take(state="asleep")  # type: ignore[arg-type]


def test_value_that_cannot_be_written_is_named_by_its_type() -> None:
    nested: list[Any] = []
    for _ in range(100_000):
        nested = [nested]
    for value in (nested, 10**5_000, type("Faulty", (), {"__repr__": lambda self: 1 / 0})()):
        with pytest.raises(ConfigError, match=f"^text is <{type(value).__name__}>"):
            Record().take(value)  # type: ignore[arg-type]


def test_private_method_is_left_alone() -> None:
    assert Record()._keep(5) == 5  # type: ignore[arg-type, comparison-overlap]

from __future__ import annotations

import ast
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import get_type_hints

import pytest

import tertulia
from tertulia import errors

KINDS = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, errors.Error)
]


@pytest.mark.parametrize("kind", KINDS)
def test_error_has_a_default_message_and_is_public(kind: type[errors.Error]) -> None:
    message = str(kind())
    assert message.endswith(".")
    assert "\n" not in message
    assert getattr(tertulia, kind.__name__) is kind


def test_codes_are_unique() -> None:
    codes = [kind.code for kind in KINDS]
    assert len(set(codes)) == len(codes)


def test_hint_follows_the_message() -> None:
    error = errors.NotFound("No session 'x'.", hint="List them.", session_id="x")
    assert str(error) == "No session 'x'. List them."
    assert (error.message, error.hint, error.session_id) == ("No session 'x'.", "List them.", "x")


def test_details_are_attributes_and_data() -> None:
    error = errors.AgentFailed("No.", status=400)
    error.partial = "hal"
    assert (error.status, error.partial, error.exit_code) == (400, "hal", None)
    assert error.data == {"status": 400, "partial": "hal"}


def test_detail_of_another_class_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError):
        _ = errors.NotFound().field  # type: ignore[attr-defined]


def test_rate_limit_without_a_time_waits_a_second() -> None:
    assert (errors.RateLimited().retry_after, errors.Refused().retry_after) == (1.0, None)


def details_of_calls() -> Iterator[tuple[str, type[errors.Error], str]]:
    """Yield (location, class, keyword) of every detail that the package gives an error."""
    kinds = {kind.__name__: kind for kind in KINDS}
    for path in sorted(Path(errors.__file__).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Call(func=ast.Name(id=name), keywords=keywords) if name in kinds:
                    for keyword in keywords:
                        if keyword.arg not in (None, "hint"):
                            yield f"{path.name}:{node.lineno}", kinds[name], str(keyword.arg)


@pytest.mark.check
def test_every_detail_is_declared_by_its_class() -> None:
    details = list(details_of_calls())
    assert len(details) > 100
    assert [detail for detail in details if detail[2] not in get_type_hints(detail[1])] == []


def test_error_survives_pickling() -> None:
    error = pickle.loads(pickle.dumps(errors.RateLimited("Wait.", hint="Later.", retry_after=3.5)))
    assert type(error) is errors.RateLimited
    assert (str(error), error.retry_after) == ("Wait. Later.", 3.5)

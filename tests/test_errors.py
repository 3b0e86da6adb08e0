from __future__ import annotations

import pickle

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


def test_absent_data_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError):
        _ = errors.NotFound().retry_after


def test_error_survives_pickling() -> None:
    error = pickle.loads(pickle.dumps(errors.RateLimited("Wait.", hint="Later.", retry_after=3.5)))
    assert type(error) is errors.RateLimited
    assert (str(error), error.retry_after) == ("Wait. Later.", 3.5)

from __future__ import annotations

import pytest

from tertulia.errors import IllegalMove
from tertulia.gateway.command_arguments import parse_number


def test_number_is_parsed() -> None:
    assert parse_number("12", thing="a memory", listed_by="/memory") == 12


@pytest.mark.parametrize("text", ["", "x", "-1", "1.5", "1 2", "٣", "9" * 5000])
def test_other_text_is_refused_with_the_command_that_lists(text: str) -> None:
    with pytest.raises(IllegalMove, match="not the number of a memory") as refusal:
        parse_number(text, thing="a memory", listed_by="/memory")
    assert refusal.value.hint == "/memory lists them."
    assert len(str(refusal.value)) < 200

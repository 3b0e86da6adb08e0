"""The brake on events of one name: so many in a period, and no more names than fit."""

from __future__ import annotations

from tertulia.gateway.rate_brake import RateBrake


def test_events_of_a_name_are_limited_in_each_period() -> None:
    now = [0.0]
    brake = RateBrake(2, 60, lambda: now[0])
    assert [brake.allows("ana") for _ in range(4)] == [True, True, False, False]
    assert brake.allows("bob")
    now[0] = 60
    assert [brake.allows("ana") for _ in range(3)] == [True, True, False]


def test_names_are_limited() -> None:
    brake = RateBrake(1, 60, lambda: 0.0)
    assert all(brake.allows(str(number)) for number in range(20_000))
    assert len(brake._periods) <= 10_000

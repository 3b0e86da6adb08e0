"""`tertulia pair`: approve and revoke."""

from __future__ import annotations

import tertulia
from tertulia import Source
from tests.cli.conftest import CommandLine, Demo


def test_approve_and_revoke(cli: CommandLine, demo: Demo) -> None:
    with tertulia.open(demo.path) as store:
        code = store.people.request_pairing(Source("signal", "7", user_id="7", user_name="Bo"))
    assert code is not None
    waiting = cli.json("pair", "list")["waiting"]
    assert [one["id"] for one in waiting] == ["signal:7"]
    assert code not in str(waiting)
    assert "asks" in cli("pair", "list").stdout
    assert cli.error("pair", "approve", "WRONG000", expect=3)["code"] == "not_found"
    assert cli.json("pair", "approve", code)["role"] == "member"
    assert [one["id"] for one in cli.json("pair", "list")["people"]] == ["signal:7"]
    assert "may no longer write" in cli("pair", "revoke", "signal:7").stdout
    assert cli.json("pair", "list") == {"waiting": [], "people": []}


def test_refuse(cli: CommandLine, demo: Demo) -> None:
    bo = Source("signal", "7", user_id="7", user_name="Bo")
    with tertulia.open(demo.path) as store:
        assert store.people.request_pairing(bo) is not None
    assert "signal:7 is refused" in cli("pair", "refuse", "signal:7").stdout
    assert cli.json("pair", "list")["waiting"] == []
    error = cli.error("pair", "refuse", "signal:8", expect=3)
    assert error["code"] == "not_found"
    assert error["hint"].endswith("tertulia pair list")
    with tertulia.open(demo.path) as store:
        assert store.people.request_pairing(bo) is None


def test_unknown_person_is_answered_with_a_command(cli: CommandLine) -> None:
    error = cli.error("pair", "revoke", "signal:8", expect=3)
    assert "tertulia people list" in error["hint"]

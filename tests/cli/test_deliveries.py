"""`tertulia deliveries`: what failed is listed, and settled by hand."""

from __future__ import annotations

import pytest

import tertulia
from tertulia import Source
from tests.cli.conftest import CommandLine, Demo


@pytest.fixture
def dead(demo: Demo) -> str:
    """The id of a delivery that was given up."""
    with tertulia.open(demo.path) as store:
        store.outbox.put("a letter", "telegram:42")
        (delivery,) = store.outbox.claim()
        store.outbox.failed(delivery, "the chat is gone", outcome="dead")
        return str(delivery.id)


def test_list_shows_what_is_not_sent(cli: CommandLine, dead: str) -> None:
    (row,) = cli.json("deliveries", "list")
    assert (str(row["id"]), row["state"], row["problem"]) == (dead, "dead", "the chat is gone")
    assert "the chat is gone" in cli("deliveries", "list").stdout
    assert cli.json("deliveries", "list", "--state", "sent") == []


@pytest.mark.parametrize(
    ("command", "state"), [("retry", "waiting"), ("settle", "sent"), ("drop", "dead")]
)
def test_outcome_is_set(cli: CommandLine, dead: str, command: str, state: str) -> None:
    assert cli.json("deliveries", command, dead)["state"] == state


def test_only_a_failed_delivery_is_settled(cli: CommandLine, dead: str) -> None:
    cli("deliveries", "retry", dead)
    assert "is waiting" in cli("deliveries", "drop", dead, expect=4).stderr
    for number in ("99", "9" * 30):
        refusal = cli("deliveries", "drop", number, expect=3).stderr
        assert f"There is no delivery {number}" in refusal


def test_one_is_shown_whole(cli: CommandLine, dead: str) -> None:
    assert cli.json("deliveries", "show", dead)["text"] == "a letter"
    shown = cli("deliveries", "show", dead).stdout
    for text in ("telegram:42", "the chat is gone", "a letter"):
        assert text in shown
    assert "There is no delivery 99" in cli("deliveries", "show", "99", expect=3).stderr


def test_inbox_lists_what_is_not_answered(cli: CommandLine, demo: Demo) -> None:
    assert "Every message is answered." in cli("deliveries", "list", "--inbox").stdout
    with tertulia.open(demo.path) as store:
        store.inbox.put(Source("telegram", "42", user_id="42"), "still there?", message_id="9")
    (row,) = cli.json("deliveries", "list", "--inbox")
    assert (row["state"], row["text"]) == ("waiting", "still there?")
    assert "still there?" in cli("deliveries", "list", "--inbox").stdout
    assert "exclude" in cli("deliveries", "list", "--inbox", "--state", "sent", expect=2).stderr

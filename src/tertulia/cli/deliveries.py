"""`tertulia deliveries`: what waits to be sent, what failed, and how to settle it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, get_args

import click

from tertulia.cli import locations, output
from tertulia.cli.options import CommandGroup, CommandOptions, json_option
from tertulia.core import cursor as cursors
from tertulia.core.text import format
from tertulia.errors import IllegalMove, NotFound
from tertulia.records.machine_zone import machine_zone
from tertulia.records.queues.outbox import Delivery, DeliveryState
from tertulia.store import Store

if TYPE_CHECKING:
    from rich.table import Table

_STYLES = {"unknown": "magenta", "dead": "red", "sent": "green"}
_BY_HAND = "settled by hand"


@click.group(cls=CommandGroup)
def deliveries() -> None:
    """List deliveries, and settle those that failed."""


@deliveries.command("list")
@click.option("--state", type=click.Choice(get_args(DeliveryState)), help="Only this state.")
@click.option(
    "--limit", metavar="N", type=click.IntRange(1, 1000), default=50, show_default=True,
    help="How many at most.",
)  # fmt: skip
@json_option
@click.pass_obj
def list_(options: CommandOptions, state: DeliveryState | None, limit: int) -> None:
    """List deliveries, oldest first. Without --state: those that are not sent yet."""
    with locations.open_to_read(options) as store:
        rows = _find(store, state, limit)
    output.print_items(options, rows, to_dict, _table, "There are no such deliveries.")


def _find(store: Store, state: DeliveryState | None, limit: int) -> list[Delivery]:
    if state is not None:
        return list(store.outbox.find(state=state, limit=limit).items)
    open_states = [name for name in get_args(DeliveryState) if name != "sent"]
    rows = [row for name in open_states for row in store.outbox.find(state=name, limit=limit).items]
    return sorted(rows, key=lambda row: row.id)[:limit]


def _settle_command(name: str, summary: str, outcome: str, sentence: str) -> None:
    @deliveries.command(name, help=summary)
    @click.argument("number", metavar="ID", type=click.IntRange(1))
    @json_option
    @click.pass_obj
    def command(options: CommandOptions, number: int) -> None:
        with locations.open_existing_store(options) as store:
            delivery = _require(store, number)
            if outcome == "sent":
                settled = store.outbox.done(delivery)
            else:
                settled = store.outbox.failed(delivery, _BY_HAND, outcome=outcome)  # type: ignore[arg-type]
        output.print_result(options, to_dict(settled), f"Delivery {number} {sentence}.")


_settle_command("retry", "Send a delivery again.", "retry", "is sent again")
_settle_command("settle", "Mark a delivery as sent: it arrived.", "sent", "is marked as sent")
_settle_command("drop", "Give a delivery up.", "dead", "is given up")


def _require(store: Store, number: int) -> Delivery:
    """Return a delivery that can be settled by hand; raise `NotFound` or `IllegalMove`."""
    for delivery in store.outbox.find(limit=1, cursor=cursors.encode(number - 1)).items:
        if delivery.id != number:
            break
        if delivery.state in ("unknown", "dead"):
            return delivery
        raise IllegalMove(
            f"Delivery {number} is {delivery.state}.",
            hint="Only a delivery that is unknown or dead can be settled by hand.",
        )
    raise NotFound(
        f"There is no delivery {number}.", hint="List them with: tertulia deliveries list"
    )


def to_dict(delivery: Delivery) -> dict[str, Any]:
    """Return a delivery for JSON output."""
    return {
        "id": delivery.id,
        "state": delivery.state,
        "target": delivery.target,
        "platform": delivery.platform,
        "account": delivery.account,
        "chat_id": delivery.chat_id,
        "thread_id": delivery.thread_id,
        "session_id": delivery.session_id,
        "text": delivery.body.get("text"),
        "attempts": delivery.attempts,
        "created_at": format.utc_text(delivery.created_at),
        "sent_at": format.utc_text(delivery.sent_at),
        "problem": delivery.problem,
    }


def _table(rows: Sequence[Delivery]) -> Table:
    zone = machine_zone()
    table = output.new_table("id", "state", "to", "created", "text", "problem", elastic="text")
    for row in rows:
        chat = ":".join(filter(None, (row.platform, row.chat_id, row.thread_id)))
        table.add_row(
            output.cell(str(row.id)),
            output.cell(row.state, _STYLES.get(row.state, "")),
            output.cell(chat),
            "" if row.created_at is None else format.format_time(row.created_at, zone),
            output.cell(str(row.body.get("text") or "")),
            output.cell(row.problem or ""),
        )
    return table

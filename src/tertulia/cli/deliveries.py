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
from tertulia.records.queues.inbox import InboxItem
from tertulia.records.queues.outbox import Delivery, DeliveryState
from tertulia.store import Store

if TYPE_CHECKING:
    from rich.table import Table

_STYLES = {"unknown": "magenta", "dead": "red", "sent": "green"}
_BY_HAND = "settled by hand"
_MAX_ID = 2**63 - 1  # a cursor holds no larger number


@click.group(cls=CommandGroup)
def deliveries() -> None:
    """List deliveries, and settle those that failed."""


@deliveries.command("list")
@click.option("--state", type=click.Choice(get_args(DeliveryState)), help="Only this state.")
@click.option("--inbox", is_flag=True, help="Messages that wait for an answer, instead.")
@click.option(
    "--limit", metavar="N", type=click.IntRange(1, 1000), default=50, show_default=True,
    help="How many at most.",
)  # fmt: skip
@json_option
@click.pass_obj
def list_(options: CommandOptions, state: DeliveryState | None, inbox: bool, limit: int) -> None:
    """List deliveries, oldest first. Without --state: those that are not sent yet."""
    if inbox and state is not None:
        raise click.UsageError("--inbox and --state exclude each other")
    with locations.open_to_read(options) as store:
        if inbox:
            items = [
                item
                for name in ("taken", "waiting", "dead")
                for item in store.inbox.find(state=name, limit=limit).items
            ][:limit]
            nothing = "Every message is answered."
            output.print_items(options, items, _item_to_dict, _inbox_table, nothing)
            return
        rows = _find(store, state, limit)
    output.print_items(options, rows, to_dict, _table, "There are no such deliveries.")


@deliveries.command()
@click.argument("number", metavar="ID", type=click.IntRange(1))
@json_option
@click.pass_obj
def show(options: CommandOptions, number: int) -> None:
    """Show one delivery: its whole text, where it goes, and what became of it."""
    with locations.open_to_read(options) as store:
        delivery = _get(store, number)
    if options.json:
        output.print_json(to_dict(delivery))
        return
    zone = machine_zone()
    created, sent = delivery.created_at, delivery.sent_at
    facts = (
        ("delivery", str(delivery.id)),
        ("state", delivery.state),
        ("to", _chat(delivery)),
        ("session", delivery.session_id),
        ("created", None if created is None else format.format_time(created, zone)),
        ("sent", None if sent is None else format.format_time(sent, zone)),
        ("attempts", str(delivery.attempts)),
        ("problem", delivery.problem),
    )
    with output.paged_console(options) as console:
        console.print(output.facts_table(facts))
        console.print()
        console.print(output.display_text(str(delivery.body.get("text") or "")), soft_wrap=True)


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
    delivery = _get(store, number)
    if delivery.state not in ("unknown", "dead"):
        raise IllegalMove(
            f"Delivery {number} is {delivery.state}.",
            hint="Only a delivery that is unknown or dead can be settled by hand.",
        )
    return delivery


def _get(store: Store, number: int) -> Delivery:
    if number <= _MAX_ID:
        for delivery in store.outbox.find(limit=1, cursor=cursors.encode(number - 1)).items:
            if delivery.id == number:
                return delivery
    raise NotFound(
        f"There is no delivery {number}.", hint="List them with: tertulia deliveries list"
    )


def _chat(delivery: Delivery) -> str:
    return ":".join(filter(None, (delivery.platform, delivery.chat_id, delivery.thread_id)))


def _item_to_dict(item: InboxItem) -> dict[str, Any]:
    """Return an accepted message for JSON output."""
    return {
        "id": item.id,
        "state": item.state,
        "key": item.key,
        "text": item.text,
        "message_id": item.message_id,
        "attempts": item.attempts,
        "received_at": format.utc_text(item.received_at),
        "problem": item.problem,
    }


def _inbox_table(items: Sequence[InboxItem]) -> Table:
    zone = machine_zone()
    table = output.new_table("id", "state", "from", "received", "text", "problem", elastic="text")
    for item in items:
        table.add_row(
            output.cell(str(item.id)),
            output.cell(item.state, _STYLES.get(item.state, "")),
            output.cell(f"{item.source.platform}, {item.source.description}"),
            format.format_time(item.received_at, zone),
            output.cell(item.text or ""),
            output.cell(item.problem or ""),
        )
    return table


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
        table.add_row(
            output.cell(str(row.id)),
            output.cell(row.state, _STYLES.get(row.state, "")),
            output.cell(_chat(row)),
            "" if row.created_at is None else format.format_time(row.created_at, zone),
            output.cell(str(row.body.get("text") or "")),
            output.cell(row.problem or ""),
        )
    return table

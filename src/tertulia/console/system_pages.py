"""What runs and by which rules: policies, schedules, processes, browsers."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from tertulia.console.environment import zone
from tertulia.console.page_definition import ConsolePage, PageCall, gather_values
from tertulia.console.people_page import load_names
from tertulia.core.settings import require_zone
from tertulia.core.source import CHAT_TYPES
from tertulia.errors import ConfigError, Error, IllegalMove
from tertulia.platforms.registry import PLATFORMS, platform

_LIMIT: Final = 50


async def load_policies(call: PageCall) -> dict[str, Any]:
    """Load the rules in force, and the verdict on a case that the address describes."""
    case = call.choose("platform", "chat_type", "zone", "updated_at")
    rules = await call.operate("list_policies")
    verdict, problem = None, None
    if "updated_at" in case and "platform" in case:
        try:
            moment = _local_time(case["updated_at"], case.get("zone"))
            query = {**case, "updated_at": moment.isoformat()}
            verdict = await call.operate("forecast_policy", query=query)
        except Error as error:
            problem = error
    if verdict is None:
        case.pop("updated_at", None)  # the field can hold nothing but a time
    return {
        "rules": rules,
        "case": {
            name: case.get(name, "") for name in ("platform", "chat_type", "zone", "updated_at")
        },
        "verdict": verdict,
        "case_problem": problem,
        "names": {f"platforms.{name}": platform(name).title for name in PLATFORMS},
        "platforms": sorted(PLATFORMS),
        "chat_types": CHAT_TYPES,
    }


def _local_time(text: str, zone_name: str | None) -> datetime:
    """Return a time as the field of a browser has it: without a zone, it is in the case's zone."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(f"{text[:40]!r} is not a time.", hint="Write 2026-03-31T18:30.") from None
    chosen = require_zone(zone_name) if zone_name else zone()
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=chosen)


async def load_schedules(call: PageCall) -> dict[str, Any]:
    """Load the schedules, each with its newest runs."""
    page = await call.operate(
        "list_schedules", query={"limit": _LIMIT, **call.choose("cursor", "platform")}
    )
    runs = await gather_values(
        **{
            str(item.id): call.operate("list_runs", path={"id": str(item.id)}, query={"limit": 5})
            for item in page.items
        }
    )
    owners = [item.owner for item in page.items if item.owner] if call.caller.is_owner else []
    return {
        "schedules": page.items, "next": page.next, "runs": runs,
        "names": await load_names(call, owners),
    }  # fmt: skip


async def load_processes(call: PageCall) -> dict[str, Any]:
    """Load the background programs, newest first."""
    if call.caller.is_owner:
        page = await call.operate("list_processes")
        return {"processes": sorted(page.items, key=lambda item: item.began_at, reverse=True)}
    sessions = await call.operate("list_sessions", query={"limit": 20})
    pages = await gather_values(
        **{
            item.id: call.operate("list_session_processes", path={"id": item.id})
            for item in sessions.items
        }
    )
    unique = {item.id: item for page in pages.values() for item in page.items}
    return {"processes": sorted(unique.values(), key=lambda item: item.began_at, reverse=True)}


async def load_process(call: PageCall) -> dict[str, Any]:
    """Load one background program and the end of its output."""
    process = await call.operate("get_process", path=call.path)
    output, problem = None, None
    try:
        output = await call.operate("read_log", path=call.path, query=call.choose("before"))
    except IllegalMove as error:
        problem = error
    return {"process": process, "output": output, "output_problem": problem}


async def load_nodes(call: PageCall) -> dict[str, Any]:
    """Load the gateways with their signs of life, and who listens for which account."""
    return {"nodes": await call.operate("list_nodes")}


async def load_platforms(call: PageCall) -> dict[str, Any]:
    """Load the accounts of chat apps, as the nodes last reported them."""
    nodes = await call.operate("list_nodes")
    return {"accounts": sorted(nodes.connections, key=lambda each: (each.platform, each.account))}


async def load_browsers(call: PageCall) -> dict[str, Any]:
    """Load the signed-in browsers, and which of them this one is."""
    values = await gather_values(
        page=call.operate("list_browsers", query={"limit": _LIMIT, **call.choose("cursor")}),
        own=call.api.cookies.browser(call.request),
    )
    settings = await call.operate("list_settings") if call.caller.is_owner else None
    return {
        "browsers": values["page"].items,
        "next": values["page"].next,
        "own": values["own"].id,
        "settings": None if settings is None else settings.items,
    }


PAGES = (
    ConsolePage(
        path="/policies", name="policies", title="Policies", section="policies", role="owner",
        load=load_policies,
    ),
    ConsolePage(
        path="/schedules", name="schedules", title="Schedules", section="schedules",
        load=load_schedules, live=("live_schedules",),
    ),
    ConsolePage(
        path="/processes", name="processes", title="Processes", section="processes",
        load=load_processes, live=("live_processes",),
    ),
    ConsolePage(
        path="/processes/{id}", name="process", title="Process", section="processes",
        role="owner", load=load_process, live=("live_process",), ages=2.0,
    ),
    ConsolePage(
        path="/nodes", name="nodes", title="Nodes", section="nodes", role="owner",
        load=load_nodes, live=("live_nodes",), ages=15.0,
    ),
    ConsolePage(
        path="/platforms", name="platforms", title="Platforms", section="platforms",
        role="owner", load=load_platforms, live=("live_platforms",), ages=15.0,
    ),
    ConsolePage(
        path="/browsers", name="browsers", title="Browsers", section="browsers", role="guest",
        load=load_browsers, part="browsers",
    ),
)  # fmt: skip

"""A gateway whose server has the console, in a thread of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
from playwright.sync_api import Page

import tertulia
from examples import console_demo
from tertulia import Source
from tertulia.agents import Agent
from tertulia.console.app import console_pages
from tertulia.platforms.base import Adapter
from tertulia.platforms.web import WebAdapter
from tertulia.records.processes import Process
from tests.http.served_gateway import SECRETS, ServedGateway, served_gateway
from tests.servers.browser import WatchedContext


class ServedConsole(NamedTuple):
    """A running console."""

    url: str
    gateway: ServedGateway

    def client(self, name: str | None = "root", **options: Any) -> httpx2.Client:
        """Return a client with the cookie of a browser that is signed in with a token."""
        origin = {"Origin": self.url, **options.pop("headers", {})}
        options = {"base_url": self.url, "verify": False, "timeout": 60, **options}
        cookies = None
        if name is not None:
            with httpx2.Client(headers=origin, **options) as client:
                reply = client.post("/console/enter", data={"token": SECRETS[name]})
                assert reply.status_code == 303, reply.text
                cookies = client.cookies
        return httpx2.Client(headers=origin, cookies=cookies, **options)

    def sign_in(self, profile: WatchedContext, name: str = "root") -> Page:
        """Return a page of a profile that is signed in with a token."""
        with self.client(name) as client:
            cookies = [
                {"name": each.name, "value": each.value, "domain": "127.0.0.1", "path": "/console"}
                for each in client.cookies.jar
            ]
        profile.context.add_cookies(cookies)  # type: ignore[arg-type]
        return profile.page()


def add_process(
    store: tertulia.Store, source: Source, command: str, *, node: str, session: str | None = None
) -> str:
    """Store a background program of another machine, and return its id."""
    process = Process(
        id="proc1", key="", session_id=session, origin=source, node=node, folder="/x",
        command=command, cwd="/", is_pty=False, state="starting", began_at=store.now(),
        told_at=store.now(),
    )  # fmt: skip
    return store.processes.begin(process).id


@contextmanager
def served_console(
    path: Path | str,
    *,
    is_demo: bool = False,
    agent: Agent | None = None,
    adapters: Sequence[Adapter] | None = None,
    prepare: Callable[[Path | str], None] | None = None,
    **settings: Any,
) -> Iterator[ServedConsole]:
    """Serve a store with its console until the end of the block."""
    if is_demo:
        console_demo.fill_store(path)
        with tertulia.open(path) as store:
            add_process(store, console_demo.ANA, "python timetable.py --watch", node="other")
    if prepare is not None:
        prepare(path)
    with served_gateway(
        path,
        agent=agent,
        adapters=(WebAdapter(),) if adapters is None else adapters,
        pages=console_pages,
        **settings,
    ) as gateway:
        yield ServedConsole(gateway.url, gateway)

"""`import tertulia` is light: no web, model or platform code, no network, no thread."""

from __future__ import annotations

import json
import subprocess
import sys

PROGRAM = """
import json, socket, sys, threading

def refuse(*args, **kwargs):
    raise AssertionError("the network was used")

socket.socket = refuse
before = set(sys.modules)
import tertulia
print(json.dumps({
    "modules": sorted(set(sys.modules) - before),
    "threads": [thread.name for thread in threading.enumerate()],
}))
"""

HEAVY = (
    "asyncio",
    "click",
    "genai_prices",
    "httpx2",
    "importlib.metadata",
    "phonenumbers",
    "psycopg",
    "pydantic",
    "rich",
    "starlette",
    "tzlocal",
    "urllib.request",
)


def test_import_is_light() -> None:
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    found = json.loads(run.stdout)
    assert found["threads"] == ["MainThread"]
    assert [name for name in HEAVY if name in found["modules"]] == []


def test_agents_load_no_network_before_they_call() -> None:
    program = "import sys, tertulia.agents; print('httpx2' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert run.stdout.strip() == b"False"


def test_a_star_import_leaves_the_builtins_alone() -> None:
    program = "before = open\nfrom tertulia import *\nassert open is before"
    subprocess.run([sys.executable, "-c", program], check=True)

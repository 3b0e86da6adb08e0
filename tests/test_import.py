"""`import tertulia` is cheap: no web, model or platform code, no network, no thread."""

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


def test_import_loads_no_heavy_module_and_starts_no_thread() -> None:
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    result = json.loads(run.stdout)
    assert result["threads"] == ["MainThread"]
    assert [name for name in HEAVY if name in result["modules"]] == []


def test_importing_agents_loads_no_http_client() -> None:
    program = "import sys, tertulia.agents; print('httpx2' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert run.stdout.strip() == b"False"


def test_star_import_does_not_replace_builtins() -> None:
    program = "before = open\nfrom tertulia import *\nassert open is before"
    subprocess.run([sys.executable, "-c", program], check=True)

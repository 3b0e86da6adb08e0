"""Each SDK is asked for by who uses it only, and one that is missing is named with its extra."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tertulia.install_command import install_command

pytestmark = pytest.mark.check

ROOT = Path(__file__).parent.parent.parent

SDKS = {
    "openai_agents": ("agents", "openai-agents"),
    "pydantic_ai": ("pydantic_ai", "pydantic-ai"),
    "agent_framework": ("agent_framework", "agent-framework"),
    "claude": ("claude_agent_sdk", "claude"),
}


def python(program: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout


@pytest.mark.parametrize("name", SDKS)
def test_one_that_is_missing_is_named(name: str) -> None:
    package, extra = SDKS[name]
    output = python(
        f"""
import sys
sys.modules[{package!r}] = None
import tertulia
try:
    import tertulia.integrations.{name}
except tertulia.ConfigError as problem:
    print(problem.hint)
    print(problem.extra, type(problem.__cause__).__name__)
"""
    )
    assert output.splitlines() == [
        f"Install it: {install_command(extra)}",
        f"{extra} ModuleNotFoundError",
    ]


def test_none_is_imported_by_the_package() -> None:
    program = "import sys, tertulia, tertulia.aio, tertulia.integrations; print(*sys.modules)"
    packages = {name.partition(".")[0] for name in python(program).split()}
    assert packages & {package for package, _ in SDKS.values()} == set()

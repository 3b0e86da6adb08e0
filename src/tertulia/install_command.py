"""The command that installs this package, or more of it, for errors and documentation.

A hint is only of use if it works as it is printed. So the command is made from how this package
was installed: in a checkout, by uv or pipx as a program of its own, or by pip into an environment.
"""

from __future__ import annotations

import os
import shlex
import sys

INSTALL = "uv tool install '.[all]'"
"""How to install everything from a checkout. The documentation uses this line and no other."""

_PACKAGE = "tertulia"


def install_command(extra: str) -> str:
    """Return the command that adds an extra to this installation."""
    origin = _read_origin()
    if origin is None:
        return f"make -C {shlex.quote(_checkout())} setup"
    # Whoever misses one extra usually misses the next: a program of its own gets all of them.
    # An SDK is for programs that import it; none of them is in `all`.
    tool = _tool()
    extras = extra if tool is None or extra in _SDK_EXTRAS else "all"
    requirement = shlex.quote(f"{_PACKAGE}[{extras}]{f' @ {origin}' if origin else ''}")
    return f"{tool or f'{_python()} -m pip install'} {requirement}"


def upgrade_command() -> str:
    """Return the command that installs a newer version over this one."""
    origin = _read_origin()
    if origin is None:
        return f"git -C {shlex.quote(_checkout())} pull && make -C {shlex.quote(_checkout())} setup"
    tool = _tool()
    requirement = f"{_PACKAGE}[all]{f' @ {origin}' if origin else ''}"
    if tool is not None:
        return f"{tool} {shlex.quote(requirement)}"
    return f"{_python()} -m pip install --upgrade {shlex.quote(requirement)}"


_SDK_EXTRAS = frozenset({"openai-agents", "pydantic-ai", "agent-framework", "claude"})


def _read_origin() -> str | None:
    """Return the address it was installed from, "" for a package index, None for a checkout."""
    import json  # both only for an error, so that `import tertulia` stays light
    from importlib import metadata

    try:
        text = metadata.distribution(_PACKAGE).read_text("direct_url.json")
    except metadata.PackageNotFoundError:
        return None  # `make run` puts the source on the path and installs nothing
    record = json.loads(text) if text else {}
    if record.get("dir_info", {}).get("editable"):
        return None
    address = str(record.get("url", ""))
    vcs = record.get("vcs_info", {}).get("vcs")
    return f"{vcs}+{address}" if vcs else address


def extra_of(module: str) -> str:
    """Return the extra that brings a module of another package; `all` if no extra names it."""
    return _EXTRA_BY_MODULE.get(module.partition(".")[0], "all")


_EXTRA_BY_MODULE = {
    **dict.fromkeys(("click", "rich", "platformdirs"), "cli"),
    **dict.fromkeys(("prompt_toolkit", "pygments", "structlog", "wcwidth"), "gateway"),
    **dict.fromkeys(("starlette", "uvicorn", "prometheus_client"), "http"),
    **dict.fromkeys(("psycopg", "psycopg_pool"), "postgres"),
    "httpx2": "agents",
    "cronsim": "schedules",
    "genai_prices": "prices",
    "phonenumbers": "phones",
    "psutil": "processes",
}


def _checkout() -> str:
    return os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def _tool() -> str | None:
    """Return the install command of the tool that owns this environment, or None."""
    if os.path.exists(os.path.join(sys.prefix, "uv-receipt.toml")):
        return "uv tool install --force"
    if os.path.exists(os.path.join(sys.prefix, "pipx_metadata.json")):
        return "pipx install --force"
    return None


def _python() -> str:
    return shlex.quote(sys.executable or "python")

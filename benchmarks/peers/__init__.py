"""Released packages of other stores, each in its own environment, controlled over a pipe."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.measure import GaveUpError

HOME = Path(__file__).resolve().parent.parent / ".peers"
ROOT = Path(__file__).resolve().parent.parent.parent

# A store that needs longer than this for one burst runs fewer operations per burst.
BURST_SECONDS = 0.4
INSTALL_SECONDS = 300
ANSWER_SECONDS = 120


class PeerError(GaveUpError):
    """The other store failed; the text is the reason."""


@dataclass(frozen=True, slots=True)
class Package:
    """A released package, its worker module and the module that is imported from it."""

    name: str
    label: str
    module: str
    imported: str

    @property
    def python(self) -> Path:
        return HOME / self.name / "bin" / "python"


PACKAGES = (
    Package("hermes-agent", "Hermes Agent", "benchmarks.peers.hermes", "gateway.session"),
    Package("nanobot-ai", "nanobot", "benchmarks.peers.nanobot", "nanobot.session.manager"),
    Package("openai-agents", "OpenAI Agents", "benchmarks.peers.openai_agents", "agents"),
)


@dataclass(slots=True)
class Peer:
    """One running worker. A worker that fails or hangs is not used again."""

    package: Package
    folder: Path
    problem: str = ""
    version: str = ""
    _process: subprocess.Popen[str] | None = field(default=None, repr=False)

    @property
    def name(self) -> str:
        return f"{self.package.label} {self.version}".strip()

    def start(self) -> None:
        """Install the package if needed and start its worker; store a failure, do not raise it."""
        try:
            install(self.package)
            self._process = self._spawn()
            self.version = str(self._read().get("version", ""))
        except (PeerError, OSError, subprocess.SubprocessError) as problem:
            self.problem = f"could not be installed or started: {problem}"

    def ask(self, do: str, what: str, **rest: object) -> Any:
        if self.problem:
            raise PeerError(self.problem)
        self._write({"do": do, "what": what, **rest})
        answer = self._read()
        if answer.get("not_offered"):
            raise PeerError("not offered")
        if "problem" in answer:
            raise PeerError(str(answer["problem"]))
        return answer["answer"]

    def operation(self, what: str, size: int) -> PeerOperation:
        """Prepare an operation at a size; this may take long and is not measured."""
        self.ask("prepare", what, size=size)
        return PeerOperation(self, what, size)

    def figure(self, what: str, **arguments: float) -> float:
        """Return a number that the worker measures itself."""
        return float(self.ask("figure", what, arguments=arguments))

    def close(self) -> None:
        if self._process is None:
            return
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()

    def _spawn(self) -> subprocess.Popen[str]:
        self.folder.mkdir(parents=True, exist_ok=True)
        return subprocess.Popen(
            [str(self.package.python), "-m", self.package.module, str(self.folder)],
            cwd=self.folder,
            env=environment(self.folder),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def _write(self, request: dict[str, object]) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()

    def _read(self) -> dict[str, Any]:
        assert self._process is not None
        assert self._process.stdout is not None
        watch = threading.Timer(ANSWER_SECONDS, self._process.kill)
        watch.start()
        line = self._process.stdout.readline()
        watch.cancel()
        if not line:
            self.problem = f"its process ended or did not answer within {ANSWER_SECONDS} s"
            raise PeerError(self.problem)
        answer: dict[str, Any] = json.loads(line)
        return answer


@dataclass(slots=True)
class PeerOperation:
    """A prepared operation of a worker, used as a contestant."""

    peer: Peer
    what: str
    size: int
    _fits: int = 1_000_000

    @property
    def name(self) -> str:
        return f"{self.peer.package.name} {self.what} {self.size}"

    def burst(self, times: int) -> list[float]:
        times = min(times, self._fits)
        seconds: list[float] = self.peer.ask("burst", self.what, size=self.size, times=times)
        self._fits = max(1, int(BURST_SECONDS * len(seconds) / sum(seconds)))
        return seconds

    def rest(self) -> None:
        """Do nothing: the worker has no background work."""


def environment(home: Path) -> dict[str, str]:
    """Return the environment of a worker: our text generator, and an empty home folder."""
    variables = {
        name: value for name, value in os.environ.items() if name in {"PATH", "LANG", "TZ"}
    }
    return variables | {
        "PYTHONPATH": str(ROOT),
        "HOME": str(home),
        "HERMES_HOME": str(home),
        "OPENAI_AGENTS_DISABLE_TRACING": "1",
    }


def install(package: Package) -> None:
    """Install the newest release once; delete the folder to install a newer one."""
    folder = HOME / package.name
    done = folder / "installed"
    if done.exists():
        return
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    print(f"  installing {package.name} into {folder}", file=sys.stderr, flush=True)
    for command in _commands(package, folder):
        _run(command)
    done.touch()


def _commands(package: Package, folder: Path) -> list[list[str]]:
    python = str(package.python)
    if uv := shutil.which("uv"):
        return [
            [uv, "venv", "--quiet", "--python", sys.executable, str(folder)],
            [uv, "pip", "install", "--quiet", "--compile", "--python", python, package.name],
        ]
    return [
        [sys.executable, "-m", "venv", str(folder)],
        [python, "-m", "pip", "install", "--quiet", package.name],
    ]


def _run(command: list[str]) -> None:
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False
    )
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["no reason given"]
        raise PeerError(lines[-1][:200])

"""A real Matrix homeserver (Synapse) for tests: on loopback, without federation, on SQLite.

`make check` installs it from `requirements-synapse.lock` into an environment of its own, because
its dependencies must not mix with ours. `TEST_SYNAPSE_PYTHON` names another Python that has it.

    with shared_synapse() as server: …    one server for all workers of a test session
    with own_synapse() as server: …       a server that a test may stop, kill and start again

The shared server is started by the first worker that needs it. Every worker holds a lock on a file
for as long as it lives; a small process beside the server waits until it can lock that file alone,
and then ends the server. So the server ends with the tests, also if they are killed.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import hashlib
import hmac
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tests.servers.ports import free_port

ROOT = Path(__file__).parents[2]
MISSING = (
    "These tests need Synapse, a Matrix server, which is not installed. Run `make check`, which"
    " installs it into .venv-synapse from wheels. If there is no wheel for this platform, install"
    " matrix-synapse in an environment of your own (it needs a Rust compiler then), and set"
    " TEST_SYNAPSE_PYTHON to the Python of that environment."
)
SERVER_NAME = "tertulia.test"
MAX_UPLOAD_BYTES = 2 * 1024 * 1024

_SECRET = "only for tests"
# Long enough for any machine; a server that takes longer has failed.
_TIMEOUT = 120.0
_PORT_TRIES = 5
_UNLIMITED = {"per_second": 1_000_000, "burst_count": 1_000_000}
# Ends with its input, which the process that started it holds open.
_SERVE = """
import os, runpy, signal, sys, threading
def watch():
    sys.stdin.buffer.read()
    os.kill(os.getpid(), signal.SIGKILL)
threading.Thread(target=watch, daemon=True).start()
runpy.run_module("synapse.app.homeserver", run_name="__main__")
"""


class Account(NamedTuple):
    """An account on the server."""

    user_id: str
    token: str


class Synapse:
    """A server; it can be stopped and started again on the same port with the same data."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder = folder
        self.port = port
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start the server and wait until it answers; raise `RuntimeError` with its log if not."""
        environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        environ.pop("PYTHONDONTWRITEBYTECODE", None)  # the second start is three times as fast
        with (self.folder / "output").open("wb") as output:
            self._process = subprocess.Popen(
                [require_program(), "-c", _SERVE, "-c", str(self.folder / "homeserver.json")],
                stdin=subprocess.PIPE, stdout=output, stderr=subprocess.STDOUT, cwd=self.folder,
                env=environ, start_new_session=True,
            )  # fmt: skip
        deadline = time.monotonic() + _TIMEOUT
        while not self.is_up():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.stop(signal.SIGKILL)
                raise RuntimeError(self.read_log())
            time.sleep(0.05)

    def stop(self, stop_signal: signal.Signals = signal.SIGTERM) -> None:
        """Stop the server; with SIGKILL as by a power cut."""
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(stop_signal)
        process.wait(_TIMEOUT)
        assert process.stdin is not None
        process.stdin.close()

    def restart(self, stop_signal: signal.Signals = signal.SIGTERM) -> None:
        """Stop the server and start it again."""
        self.stop(stop_signal)
        self.start()

    def is_up(self) -> bool:
        """Return whether the server answers requests."""
        try:
            return bool(self.call("GET", "/_matrix/client/versions"))
        except (OSError, ValueError):
            return False

    def read_log(self) -> str:
        """Return what the server said."""
        logs = (self.folder / name for name in ("output", "log"))
        return "\n".join(path.read_text("utf-8", "replace") for path in logs if path.exists())

    def call(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, token: str = ""
    ) -> dict[str, Any]:
        """Call the API and return its answer; raise `OSError` if it is an error."""
        request = urllib.request.Request(
            self.base_url + path,
            data=None if body is None else json.dumps(body).encode(),
            method=method,
            headers={"Content-Type": "application/json"},
        )
        if token:
            request.add_header("Authorization", f"Bearer {token}")
        with urllib.request.urlopen(request, timeout=_TIMEOUT) as response:
            answer: dict[str, Any] = json.load(response)
            return answer

    def register(self, name: str, *, is_admin: bool = False) -> Account:
        """Create an account, and log in."""
        path = "/_synapse/admin/v1/register"
        nonce = self.call("GET", path)["nonce"]
        role = "admin" if is_admin else "notadmin"
        signed = "\0".join((nonce, name, _SECRET, role)).encode()
        answer = self.call(
            "POST", path,
            {"nonce": nonce, "username": name, "password": _SECRET, "admin": is_admin,
             "mac": hmac.new(_SECRET.encode(), signed, hashlib.sha1).hexdigest()},
        )  # fmt: skip
        return Account(answer["user_id"], answer["access_token"])

    def log_in(self, user_id: str) -> Account:
        """Log in once more; the account gets another device and another token."""
        answer = self.call(
            "POST", "/_matrix/client/v3/login",
            {"type": "m.login.password", "password": _SECRET,
             "identifier": {"type": "m.id.user", "user": user_id}},
        )  # fmt: skip
        return Account(answer["user_id"], answer["access_token"])

    def limit_messages(self, account: Account, per_second: int, burst: int) -> None:
        """Limit the rate of messages of one account; 0 and 0 is no limit."""
        admin = self.register(f"admin{time.monotonic_ns()}", is_admin=True)
        path = f"/_synapse/admin/v1/users/{account.user_id}/override_ratelimit"
        limit = {"messages_per_second": per_second, "burst_count": burst}
        self.call("POST", path, limit, admin.token)


def program() -> str | None:
    """Return the Python that has Synapse, or None."""
    named = os.environ.get("TEST_SYNAPSE_PYTHON")
    if named:
        if not os.access(named, os.X_OK):
            raise RuntimeError(f"TEST_SYNAPSE_PYTHON is {named!r}, which cannot be run.")
        return named
    installed = ROOT / ".venv-synapse" / "bin" / "python"
    is_complete = (installed.parents[1] / ".complete").is_file()
    return str(installed) if is_complete else None


def require_program() -> str:
    """Return the Python that has Synapse; raise `RuntimeError` with what to do if there is none."""
    python = program()
    if python is None:
        raise RuntimeError(MISSING)
    return python


@contextmanager
def own_synapse() -> Iterator[Synapse]:
    """Yield a server for one test."""
    require_program()
    with _new_folder() as folder:
        server = _start(folder)
        try:
            yield server
        finally:
            server.stop(signal.SIGKILL)


@contextmanager
def shared_synapse() -> Iterator[Synapse]:
    """Yield the server of this test session; only one worker starts it."""
    require_program()
    session = os.environ.get("PYTEST_XDIST_TESTRUNUID") or f"{os.getpid()}"
    folder = Path(_memory_folder() or tempfile.gettempdir()) / f"synapse-{os.getuid()}-{session}"
    folder.mkdir(mode=0o700, exist_ok=True)
    with (folder / "users").open("wb") as users, (folder / "start").open("wb") as start:
        # While this is held, the keeper lets the server live; see `keep`.
        fcntl.flock(users, fcntl.LOCK_SH)
        fcntl.flock(start, fcntl.LOCK_EX)
        address = folder / "address"
        if not address.exists():
            _start_keeper(folder, address)
        fcntl.flock(start, fcntl.LOCK_UN)
        yield Synapse(folder / "server", int(address.read_text()))


def keep(folder: Path) -> None:
    """Run the shared server until no worker uses it any more; then delete its folder."""
    try:
        (folder / "server").mkdir()
        server = _start(folder / "server")
    except RuntimeError as problem:
        (folder / "problem").write_text(str(problem))
        raise
    (folder / "new").write_text(str(server.port))
    (folder / "new").rename(folder / "address")
    with (folder / "users").open("wb") as users:
        fcntl.flock(users, fcntl.LOCK_EX)
        (folder / "address").unlink()
        server.stop(signal.SIGKILL)
        subprocess.run(["rm", "-rf", folder], check=False)


def _start_keeper(folder: Path, address: Path) -> None:
    command = [sys.executable, "-m", "tests.servers.synapse", str(folder)]
    keeper = subprocess.Popen(
        command, cwd=ROOT, start_new_session=True, stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    while not address.exists():
        if keeper.poll() is not None:
            problem = folder / "problem"
            raise RuntimeError(problem.read_text() if problem.exists() else "No server started.")
        time.sleep(0.05)
    # It outlives this worker, on purpose: without this, Python would warn about it.
    keeper.returncode = 0


def _start(folder: Path) -> Synapse:
    """Start a new server in a folder, on a free port."""
    for attempt in range(1, _PORT_TRIES + 1):
        port = free_port()
        _configure(folder, port)
        server = Synapse(folder, port)
        try:
            server.start()
        except RuntimeError:
            # Somebody may have taken the port meanwhile.
            if attempt == _PORT_TRIES:
                raise
        else:
            break
    return server


def _configure(folder: Path, port: int) -> None:
    key = folder / "signing.key"
    if not key.exists():
        seed = base64.b64encode(os.urandom(32)).decode().rstrip("=")
        key.write_text(f"ed25519 a_test {seed}\n")
    log = {
        "version": 1,
        "disable_existing_loggers": False,
        "handlers": {"file": {"class": "logging.FileHandler", "filename": str(folder / "log")}},
        "root": {"level": "WARNING", "handlers": ["file"]},
    }
    (folder / "log.json").write_text(json.dumps(log))
    listener = {
        "port": port,
        "bind_addresses": ["127.0.0.1"],
        "type": "http",
        "tls": False,
        "resources": [{"names": ["client"], "compress": False}],
    }
    configuration = {
        "server_name": SERVER_NAME,
        "public_baseurl": f"http://127.0.0.1:{port}/",
        "listeners": [listener],
        "database": {"name": "sqlite3", "args": {"database": str(folder / "homeserver.db")}},
        "log_config": str(folder / "log.json"),
        "media_store_path": str(folder / "media"),
        "pid_file": str(folder / "pid"),
        "signing_key_path": str(key),
        "macaroon_secret_key": _SECRET,
        "form_secret": _SECRET,
        "registration_shared_secret": _SECRET,
        "bcrypt_rounds": 4,
        # It talks with nobody: no federation, no keys of others, no statistics, no previews.
        "federation_domain_whitelist": [],
        "trusted_key_servers": [],
        "suppress_key_server_warning": True,
        "report_stats": False,
        "url_preview_enabled": False,
        "presence": {"enabled": False},
        "max_upload_size": MAX_UPLOAD_BYTES,
        **_no_limits(),
    }
    (folder / "homeserver.json").write_text(json.dumps(configuration))


def _no_limits() -> dict[str, Any]:
    """Return settings without rate limits; a test that wants one calls `limit_messages`."""
    flat = ("message", "registration", "admin_redaction", "joins_per_room", "room_creation")
    nested = {
        "login": ("address", "account", "failed_attempts"),
        "joins": ("local", "remote"),
        "invites": ("per_room", "per_user", "per_issuer"),
    }
    limits: dict[str, Any] = {f"rc_{name}": _UNLIMITED for name in flat}
    for name, parts in nested.items():
        limits[f"rc_{name}"] = dict.fromkeys(parts, _UNLIMITED)
    return limits


@contextmanager
def _new_folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="synapse-", dir=_memory_folder()))
    try:
        yield folder
    finally:
        subprocess.run(["rm", "-rf", folder], check=False)


def _memory_folder() -> str | None:
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        keep(Path(sys.argv[1]))

"""Child processes that tests start, control and kill; they run `child_programs`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Self


class ChildProcess:
    """A running child. It writes lines of JSON, and at some points waits for its parent."""

    def __init__(self, program: str, *arguments: Any) -> None:
        path = os.pathsep.join(part for part in sys.path if part)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.storage.child_programs", program, json.dumps(arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path},
        )

    def read(self) -> Any:
        """Return its next line; raise EOFError when it has ended."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line.endswith(b"\n"):
            raise EOFError(f"the child ended with {self.process.wait()}")
        return json.loads(line)

    def read_all(self) -> Iterator[Any]:
        """Yield the lines that it still writes."""
        while True:
            try:
                yield self.read()
            except EOFError:
                return

    def resume(self) -> None:
        """Send the line that the child waits for."""
        assert self.process.stdin is not None
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()

    def kill(self) -> None:
        """Kill it without a chance to clean up."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        if problem is not None:
            self.process.kill()
        self.process.stdin.close()
        self.process.stdout.read()
        self.process.stdout.close()
        code = self.process.wait()
        assert problem is not None or code in (0, -signal.SIGKILL), f"the child ended with {code}"

"""Processes that the storage tests start, talk to and kill; what they do stands in `programs`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Self


class Child:
    """A program under way. It says lines of JSON, and waits for a line where it is to go on."""

    def __init__(self, program: str, *arguments: Any) -> None:
        path = os.pathsep.join(part for part in sys.path if part)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.storage.programs", program, json.dumps(arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path},
        )

    def said(self) -> Any:
        """The next thing it says; EOFError when it is through."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line.endswith(b"\n"):
            raise EOFError(f"the child ended with {self.process.wait()}")
        return json.loads(line)

    def rest(self) -> Iterator[Any]:
        """Everything it still says."""
        while True:
            try:
                yield self.said()
            except EOFError:
                return

    def go_on(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()

    def kill(self) -> None:
        """Without a chance to tidy up."""
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

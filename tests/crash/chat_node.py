"""Gateways with an account of a chat app, each in a process of its own, for tests that kill them.

The processes are forked from one that has imported everything, so that a test can kill hundreds.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.process import BaseProcess

from tests.crash import chat_process

# So long a test waits for something that is bound to happen, however busy the machine.
PATIENCE = 180.0
Node = BaseProcess


@contextmanager
def chat_node(
    platform: str,
    where: str,
    address: str,
    step: str = "none",
    *,
    port: int = 0,
    lease: float = 2.0,
) -> Iterator[Node]:
    """Run a gateway, which dies at a step; in the end it is killed if it still runs."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([chat_process.__name__])
    arguments = (platform, where, address, step, str(port), str(lease))
    child = context.Process(target=_run, args=arguments)
    child.start()
    try:
        yield child
    finally:
        child.kill()
        child.join(PATIENCE)
        child.close()


def drain(child: Node) -> None:
    """Stop a gateway as a service manager does."""
    child.terminate()
    assert exit_code(child) == 0


def exit_code(child: Node) -> int | None:
    """Wait for the end of a gateway; return its exit code, -9 if it was killed."""
    child.join(PATIENCE)
    return child.exitcode


def _run(*arguments: str) -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
    chat_process.main(*arguments)

"""A program that leaves its process group, its session and its parent."""

from __future__ import annotations

DAEMON = """
import os, sys, time
if os.fork(): os._exit(0)
os.setsid()
if os.fork(): os._exit(0)
os.setsid() if os.getpid() != os.getsid(0) else None
print("daemon", os.getpid(), flush=True)
os.close(1); os.close(2)
time.sleep(600)
"""

"""Count what only Python's garbage collector would find: objects that refer to each other."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def collected() -> Iterator[Callable[[], Counter[str]]]:
    """What was made since and has become garbage in cycles, by its kind.

    What was there before is frozen: a thread that an earlier test left behind may end meanwhile.
    """
    gc.collect()
    gc.freeze()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)

    def count_garbage() -> Counter[str]:
        gc.collect()
        return Counter(f"{type(item).__module__}.{type(item).__qualname__}" for item in gc.garbage)

    try:
        yield count_garbage
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()

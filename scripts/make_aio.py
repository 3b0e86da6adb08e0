"""Writes `src/tertulia/aio/_generated.py` from the sync classes. `tests/test_aio.py` compares.

    python scripts/make_aio.py

For every public method of a record it writes one that awaits it: the same name, parameters,
defaults, return type and docstring.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Set
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "src/tertulia/aio/_generated.py"

# Module and class, in the order they are written.
CLASSES = (
    ("tertulia.records.sessions.sessions", "Sessions"),
    ("tertulia.records.transcript.transcript", "Transcript"),
    ("tertulia.records.usage", "UsageLedger"),
    ("tertulia.records.people", "People"),
    ("tertulia.records.queues.inbox", "Inbox"),
    ("tertulia.records.queues.outbox", "Outbox"),
    ("tertulia.records.queues.memory_flushes", "MemoryFlushes"),
    ("tertulia.records.schedules", "Schedules"),
    ("tertulia.records.processes", "Processes"),
    ("tertulia.records.person_view", "PersonView"),
    ("tertulia.store", "Store"),
)
# What does not wait: it only looks at its arguments and settings.
IMMEDIATE = {"key", "is_shared", "person_of", "now"}
# What the async side of a store has in another form.
OWN = {"transcript", "turn", "turn_control", "for_person", "close", "in_one_commit"}
# Short calls, of which a gateway makes several for each message: they share hops and commits.
BATCHED = {
    "Inbox": {"put", "claim", "renew", "done", "dismiss", "failed"},
    "Outbox": {"put", "claim", "renew", "done", "failed"},
    "People": {"role_of"},
}

HEAD = '''"""The records of a store, to be awaited.

Written by scripts/make_aio.py from the sync classes; change those, then run it again.
"""

from __future__ import annotations

{imports}

'''

STORE = '''
    def __init__(self, store: sync_store.Store, executor: ThreadExecutor) -> None:
        self.sync = store
        self.settings = store.settings
        self.path = store.path
        self._executor = executor
        self.sessions = Sessions(store.sessions, executor)
        self.usage = UsageLedger(store.usage, executor)
        self.people = People(store.people, executor)
        self.inbox = Inbox(store.inbox, executor)
        self.outbox = Outbox(store.outbox, executor)
        self.memory_flushes = MemoryFlushes(store.memory_flushes, executor)
        self.schedules = Schedules(store.schedules, executor)
        self.processes = Processes(store.processes, executor)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the store; what was acknowledged is stored already."""
        await self._executor.run(self.sync.close)
        self._executor.stop()

    def run_batched(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Awaitable[T]:
        """Run a short function that calls the sync store, in one hop and one commit with others."""
        return self._executor.run_batched(call, *args, **kwargs)

    def transcript(self, session_id: str) -> Transcript:
        """The messages of a session."""
        return Transcript(self.sync.transcript(session_id), self._executor)

    def turn(
        self,
        source: Source,
        text: str | None = None,
        *,
        message_id: str | int | None = None,
        media: Sequence[Any] = (),
        wait: float = 30.0,
    ) -> Turn:
        """Return a turn, as an async context manager; see `tertulia.Store.turn`."""
        control = self.sync.turn_control(
            source, text, message_id=message_id, media=media, wait=wait
        )
        return Turn(control, self._executor)

    def turn_control(
        self,
        source: Source,
        text: str | None = None,
        *,
        message_id: str | int | None = None,
        media: Sequence[Any] = (),
        wait: float = 30.0,
    ) -> TurnControl:
        """Return a turn with the calls that gateways need; see `tertulia.Store.turn_control`."""
        control = self.sync.turn_control(
            source, text, message_id=message_id, media=media, wait=wait
        )
        return TurnControl(control, self._executor)

    def for_person(self, source: Source) -> PersonView:
        """The store through the eyes of who writes from a source."""
        return PersonView(self.sync.for_person(source), self._executor)
'''

RECORD = """
    def __init__(self, record: {module}.{name}, executor: ThreadExecutor) -> None:
        self.sync = record
        self._executor = executor
"""

PERSON_VIEW = '''
    async def transcript(self, session_id: str) -> Transcript:
        """The messages of a session this person may see."""
        return Transcript(
            await self._executor.run(self.sync.transcript, session_id), self._executor
        )
'''


def main() -> None:
    TARGET.write_text(written(), encoding="utf-8")


def written() -> str:
    """The module as it should be."""
    trees = {module: ast.parse(_path(module).read_text("utf-8")) for module, _ in CLASSES}
    body = "\n\n".join(_class(trees[module], module, name) for module, name in CLASSES)
    text = HEAD.format(imports=_imports(trees, body)) + body
    return _formatted(text)


def _class(tree: ast.Module, module: str, name: str) -> str:
    node = next(n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == name)
    lines = [f"class {name}:", f'    """{ast.get_docstring(node)}"""']
    alias = f"sync_{module.rsplit('.', 1)[-1]}"
    lines.append(STORE if name == "Store" else RECORD.format(module=alias, name=name))
    if name == "PersonView":
        lines.append(PERSON_VIEW)
    items = (item for item in node.body if isinstance(item, ast.FunctionDef))
    batched = BATCHED.get(name, set())
    lines.extend(_method(item, batched) for item in items if _is_wanted(item, name))
    return "\n".join(lines)


def _is_wanted(item: ast.FunctionDef, name: str) -> bool:
    if item.name.startswith("_") or item.decorator_list:
        return False
    return not (name in ("Store", "PersonView") and item.name in OWN)


def _method(item: ast.FunctionDef, batched: Set[str]) -> str:
    arguments = item.args
    given = [argument.arg for argument in arguments.args[1:]]
    given += [f"{argument.arg}={argument.arg}" for argument in arguments.kwonlyargs]
    given += [f"**{arguments.kwarg.arg}"] if arguments.kwarg else []
    waits = item.name not in IMMEDIATE
    call = f"self.sync.{item.name}"
    if waits:
        way = "run_batched" if item.name in batched else "run"
        result = f"await self._executor.{way}({', '.join([call, *given])})"
    else:
        result = f"{call}({', '.join(given)})"
    returns = ast.unparse(item.returns) if item.returns else "None"
    docstring = ast.get_docstring(item, clean=False) or ""
    return (
        f"    {'async ' if waits else ''}def {item.name}"
        f"({ast.unparse(arguments)}) -> {returns}:\n"
        f'        """{docstring}"""\n'
        f"        {'' if returns == 'None' else 'return '}{result}\n"
    )


def _imports(trees: dict[str, ast.Module], body: str) -> str:
    """The imports of the sync modules that the annotations use, and the modules themselves."""
    words = set(re.findall(r"\w+", re.sub(r'""".*?"""', "", body, flags=re.DOTALL)))
    written_here = {*(name for _, name in CLASSES), "Turn", "TurnControl"}
    found = {
        "from collections.abc import Awaitable, Callable",
        "from tertulia.aio.executor import P, T, ThreadExecutor",
        "from tertulia.aio.turn import Turn, TurnControl",
    }
    for module, tree in trees.items():
        parent, _, last = module.rpartition(".")
        found.add(f"from {parent} import {last} as sync_{last}")
        for node in tree.body:
            if isinstance(node, ast.Import):
                found.update(f"import {n.name}" for n in node.names if n.name in words)
            elif isinstance(node, ast.ImportFrom) and node.module != "__future__":
                names = (n.name for n in node.names if n.name in words - written_here)
                found.update(f"from {node.module} import {name}" for name in names)
            else:
                found.update(_defined(node, module, words - written_here))
    return "\n".join(sorted(found))


def _defined(node: ast.stmt, module: str, words: set[str]) -> set[str]:
    """Types that a sync module defines and its methods return."""
    names: list[str] = []
    if isinstance(node, ast.ClassDef):
        names = [node.name]
    elif isinstance(node, ast.Assign):
        names = [target.id for target in node.targets if isinstance(target, ast.Name)]
    return {
        f"from {module} import {name}"
        for name in names
        if name in words and not name.startswith("_")
    }


def _formatted(text: str) -> str:
    for command in (["check", "--fix", "--quiet", "--select", "I,F401"], ["format", "--quiet"]):
        run = subprocess.run(  # noqa: S603 — our own command
            [sys.executable, "-m", "ruff", *command, "--stdin-filename", str(TARGET), "-"],
            input=text, capture_output=True, text=True, check=True, cwd=ROOT,
        )  # fmt: skip
        text = run.stdout
    return text


def _path(module: str) -> Path:
    return ROOT / "src" / (module.replace(".", "/") + ".py")


if __name__ == "__main__":
    main()

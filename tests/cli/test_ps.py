"""`tertulia ps`: processes as a table and as JSON."""

from __future__ import annotations

import tertulia
from tests.cli.conftest import CommandLine, Demo, background_process


def test_list_without_processes(cli: CommandLine) -> None:
    assert cli("ps").stdout == "There are no processes.\n"
    assert cli.json("ps") == []


def test_lists_a_process(cli: CommandLine, demo: Demo) -> None:
    with tertulia.open(demo.path) as store:
        store.processes.begin(background_process(store))
    lines = cli("ps").stdout.splitlines()
    assert lines[0].split() == ["id", "state", "began", "command"]
    assert lines[1].startswith("p1 ")
    assert lines[1].endswith("sleep 600")
    (process,) = cli.json("ps")
    assert (process["id"], process["state"], process["ended"]) == ("p1", "starting", None)
    assert process["since"].endswith("Z")

"""`tertulia ps` shows what the store knows."""

from __future__ import annotations

import json
import subprocess
import sys

from tests.processes.scene import Scene


def _ps(scene: Scene, *more: str) -> str:
    asked = [sys.executable, "-m", "tertulia", "--store", scene.store.path, "ps", *more]
    return subprocess.run(asked, capture_output=True, text=True, check=True).stdout


def test_it_lists_programs_for_people_and_for_programs(scene: Scene) -> None:
    assert json.loads(_ps(scene, "--json")) == []
    ended, running = scene.spawn("exit 3"), scene.spawn("sleep 600")
    scene.finished(ended)
    found = {one["id"]: one for one in json.loads(_ps(scene, "--json"))}
    assert (found[ended]["state"], found[ended]["exit_code"]) == ("exited", 3)
    assert (found[running]["state"], found[running]["ended"]) == ("running", None)
    assert found[running]["command"] == "sleep 600"
    assert running in _ps(scene)

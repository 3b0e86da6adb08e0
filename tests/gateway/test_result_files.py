"""Results of schedules in files: written privately, and deleted with their session."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tertulia import aio
from tertulia.gateway.result_files import ResultFiles
from tertulia.gateway.retention_job import RetentionJob
from tertulia.testing import FakeClock
from tests.gateway.running_gateway import ANA, BEN, CARA, FAST


async def _removed_schedule(store: aio.Store, files: ResultFiles) -> int:
    """Create a schedule with a file, which the test removes; return its number."""
    schedule = await store.schedules.create(CARA, "every 2h", "look")
    await store.schedules.run_now(schedule.id)
    (run,) = await store.schedules.claim()
    files.write(run, "It stays.")
    return schedule.id


def test_deleting_a_session_deletes_the_files_of_its_runs(where: str, tmp_path: Path) -> None:
    async def play() -> None:
        files = ResultFiles(str(tmp_path / "results"))
        async with aio.open(where, settings=FAST) as store:
            job = RetentionJob(store, files=files)
            assert await job.clean_files() == 0, "there is no folder yet"
            written: dict[str, Path] = {}
            for person in (ANA, BEN):
                session = await store.sessions.open(person)
                schedule = await store.schedules.create(person, "every 2h", "look")
                await store.schedules.run_now(schedule.id)
                (run,) = await store.schedules.claim()
                written[session.id] = Path(files.write(run, "The secret is 42."))
                assert await job.clean_files() == 0, "a run in progress keeps its file"
                await store.schedules.done(run, "The secret is 42.", session_id=session.id)
            note = tmp_path / "results" / "1" / "notes-of-somebody.md"
            note.write_text("mine")
            assert await job.clean_files() == 0
            await store.schedules.remove(await _removed_schedule(store, files))
            deleted, other = written
            await store.sessions.delete(deleted)
            assert await job.clean_files() == 1
            assert not written[deleted].exists()
            assert written[other].exists()
            assert note.exists()

    asyncio.run(play())


@pytest.mark.parametrize("removed", ["schedule", "run"])
def test_file_is_deleted_with_its_session_after_its_run_is_gone(
    where: str, tmp_path: Path, removed: str
) -> None:
    """The row of a run goes with its schedule, and after thirty days; the file stayed for ever."""
    clock, folder = FakeClock(), tmp_path / "results"

    async def play() -> None:
        files = ResultFiles(str(folder))
        async with aio.open(where, settings=FAST, clock=clock) as store:
            job = RetentionJob(store, files=files, pause=0)
            sessions = []
            for person in (ANA, BEN):
                schedule = await store.schedules.create(person, "every 2h", "look")
                await store.schedules.run_now(schedule.id)
                (run,) = await store.schedules.claim()
                message_id = f"schedule:{run.id}"
                async with store.turn(person, "look", message_id=message_id) as turn:
                    await turn.add_assistant("The secret is 42.")
                sessions.append(turn.session.id)
                files.write(run, "The secret is 42.", turn.session.id)
                await store.schedules.done(run, "The secret is 42.", session_id=turn.session.id)
                if removed == "schedule":
                    await store.schedules.remove(schedule.id)
            clock.forward(days=31)
            await job.remove()
            assert await job.clean_files() == 0
            assert len([*folder.rglob("*.md")]) == 2
            await store.sessions.delete(sessions[0])
            assert await job.clean_files() == 1
            assert await job.clean_files() == 0
            assert len([*folder.rglob("*.md")]) == 1
            assert len([*folder.rglob(".*")]) == 1

    asyncio.run(play())

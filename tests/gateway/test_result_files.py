"""Results of schedules in files: written privately, and deleted with their session."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tertulia import aio
from tertulia.gateway.result_files import ResultFiles
from tertulia.gateway.retention_job import RetentionJob
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

"""Make the pictures of the console for the documentation.

    python scripts/make_console_pictures.py

They show the store of the demonstration (`examples/console_demo.py`) in a real Chromium, which must
be installed, and are written to docs/pictures/.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT)]

from tests.console.served_console import served_console  # noqa: E402
from tests.servers.browser import WatchedContext, running_browser  # noqa: E402

FOLDER = ROOT / "docs" / "pictures"
# Name, address, width, height, colours; {session} is the id of the session with a title.
PICTURES = (
    ("console-now", "/console/", 1200, 760, "light"),
    ("console-transcript", "/console/sessions/{session}", 1200, 760, "dark"),
    ("console-phone", "/console/", 390, 760, "light"),
    ("console-usage", "/console/usage", 1200, 760, "light"),
)


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as folder,
        served_console(Path(folder) / "talk.db", is_demo=True) as console,
        running_browser() as browser,
    ):
        with console.gateway.store() as store:
            session = next(each.id for each in store.sessions.find().items if each.title)
        for name, address, width, height, colours in PICTURES:
            size = {"width": width, "height": height}
            profile = WatchedContext(browser, console.url, viewport=size, color_scheme=colours)
            page = console.sign_in(profile)
            page.goto(address.format(session=session))
            page.wait_for_load_state("load")
            page.screenshot(path=str(FOLDER / f"{name}.png"))
            profile.close()
            print(f"docs/pictures/{name}.png")


if __name__ == "__main__":
    main()

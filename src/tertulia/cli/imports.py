"""`tertulia import`: conversations from elsewhere."""

from __future__ import annotations

import click

from tertulia.cli.archive import archive
from tertulia.cli.import_ import COMMANDS
from tertulia.cli.options import Group


@click.group("import", cls=Group)
def import_() -> None:
    """Bring conversations into the store."""


for _command in (archive, *COMMANDS):
    import_.add_command(_command)

"""The lines of an export."""

from __future__ import annotations

import json
from typing import Any

from tertulia import Store
from tertulia.transfer.exporters.export import Form, document


def lines(store: Store, session_id: str, form: Form, **options: Any) -> list[Any]:
    return [json.loads(line) for line in document(store, session_id, form, **options)]

"""The gateway over HTTP. Needs the extra `http`.

`app.py` builds the application. `routing.py` defines what an operation is and does the work that
every operation shares (token, limits, decoding, errors). Each of the modules that `operations.py`
imports, such as `sessions`, `people` and `openai_api`, ends with a table of its operations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tertulia.http.settings import HttpSettings, Token

if TYPE_CHECKING:
    from tertulia.http.app import Api, application
    from tertulia.http.server import serve

__all__ = ["Api", "HttpSettings", "Token", "application", "serve"]


def __getattr__(name: str) -> Any:
    # The settings are a section of the configuration, which is read without the extra, too.
    if name in ("Api", "application"):
        from tertulia.http import app

        return getattr(app, name)
    if name == "serve":
        from tertulia.http.server import serve

        return serve
    raise AttributeError(f"module 'tertulia.http' has no attribute {name!r}")

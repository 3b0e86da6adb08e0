"""The gateway over HTTP. Needs the extra `http`; `app.py` plugs it together.

`operations.py` says what an operation is, and what is true of all of them; each of the modules
`sessions`, `turns`, `openai`, `boxes`, `web`, `hooks` and `health` is a table of them.
"""

from __future__ import annotations

from tertulia.http.app import Api, application
from tertulia.http.server import serve
from tertulia.http.settings import HttpSettings, Token

__all__ = ["Api", "HttpSettings", "Token", "application", "serve"]

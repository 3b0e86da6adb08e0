"""The gateway over HTTP. Needs the extra `http`.

`app.py` builds the application. `routing.py` defines what an operation is and does the work that
every operation shares (token, limits, decoding, errors). Each of the modules `turns`, `openai_api`,
`sessions`, `schedules`, `processes`, `deliveries`, `inbox`, `people`, `web`, `webhook` and `health`
defines a table of operations.
"""

from __future__ import annotations

from tertulia.http.app import Api, application
from tertulia.http.server import serve
from tertulia.http.settings import HttpSettings, Token

__all__ = ["Api", "HttpSettings", "Token", "application", "serve"]

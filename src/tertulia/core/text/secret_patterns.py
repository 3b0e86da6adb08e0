"""Keys, tokens and passwords in a text, as far as their form gives them away.

What a program, a provider or a library complains of may quote what it was called with. This is a
net under those texts before they are logged, not a proof: a secret that looks like any other word
passes. What is known to be a secret is never put into a text in the first place.
"""

from __future__ import annotations

import re

HIDDEN = "[hidden]"

_SECRET = re.compile(
    r"""
    (?P<before> \b (?:authorization | proxy-authorization) ["']? \s* [:=] \s* ["']?
        (?: (?:bearer | basic | token) \s+ )?
      | \b bearer \s+
      | (?:api[_-]?key | secret | token | passw(?:or)?d) ["']? \s* [:=] \s* ["']?
    ) (?P<named> [^\s"',;&\[\]]{6,} )
    | (?P<scheme> \w://[^\s/:@]* : ) (?P<password> [^\s/@]+ ) (?= @ )
    | \b (?: sk-[\w-]{16,}                      # OpenAI, Anthropic and those that took it over
      | xox[abeprs]-[\w-]{10,} | xapp-[\w-]{10,}  # Slack
      | gh[opsur]_\w{20,} | github_pat_\w{20,}
      | (?:AKIA|ASIA)[A-Z0-9]{16}
      | AIza[\w-]{30,}
      | eyJ[\w-]{4,}\.[\w-]{8,}\.[\w-]*         # a signed token
    )
    | (?<!\d) \d{6,12}:[\w-]{30,}              # a bot of Telegram
    """,
    re.VERBOSE | re.IGNORECASE,
)


def without_secrets(text: str) -> str:
    """The text with what looks like a secret replaced by a mark."""
    return _SECRET.sub(_hidden, text)


def _hidden(found: re.Match[str]) -> str:
    return f"{found['before'] or found['scheme'] or ''}{HIDDEN}"

"""Patterns of keys, tokens and passwords, to hide them in a text.

The error message of a program, a provider or a library may quote its arguments. This is a safety
net for such texts before they are logged, not a proof: a secret that looks like an ordinary word
passes. Tertulia never puts a value that it knows to be a secret into a text in the first place.
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
    | \b (?: sk-[\w-]{16,}                      # OpenAI, Anthropic and others with the same form
      | xox[abeprs]-[\w-]{10,} | xapp-[\w-]{10,}  # Slack
      | gh[opsur]_\w{20,} | github_pat_\w{20,}
      | (?:AKIA|ASIA)[A-Z0-9]{16}
      | AIza[\w-]{30,}
      | eyJ[\w-]{4,}\.[\w-]{8,}\.[\w-]*         # a signed token
    )
    | (?<!\d) \d{6,12}:[\w-]{30,}              # a Telegram bot
    """,
    re.VERBOSE | re.IGNORECASE,
)


def hide_secrets(text: str) -> str:
    """Return the text with everything that looks like a secret replaced by `HIDDEN`."""
    return _SECRET.sub(_hide, text)


def _hide(match: re.Match[str]) -> str:
    return f"{match['before'] or match['scheme'] or ''}{HIDDEN}"

"""Agents, which answer user messages. `base.py` lists the promises of every agent.

No agent loads the network library before its first call: `httpx2` comes with the extra `agents`.
"""

from __future__ import annotations

from tertulia.agents.agent_options import (
    AnthropicOptions,
    CommandAgentOptions,
    HttpAgentOptions,
    OpenAIOptions,
    ParrotOptions,
)
from tertulia.agents.anthropic import AnthropicAgent
from tertulia.agents.base import (
    NO_PARAMETERS,
    Agent,
    Delta,
    Event,
    HistoryReader,
    ModelUsage,
    Note,
    Request,
    Step,
    Thought,
    Tool,
    ToolResult,
    running,
)
from tertulia.agents.command import CommandAgent
from tertulia.agents.http import HttpAgent
from tertulia.agents.openai import OpenAIAgent
from tertulia.agents.parrot import ParrotAgent
from tertulia.agents.transport import Limits, Retry

__all__ = [
    "NO_PARAMETERS",
    "Agent",
    "AnthropicAgent",
    "AnthropicOptions",
    "CommandAgent",
    "CommandAgentOptions",
    "Delta",
    "Event",
    "HistoryReader",
    "HttpAgent",
    "HttpAgentOptions",
    "Limits",
    "ModelUsage",
    "Note",
    "OpenAIAgent",
    "OpenAIOptions",
    "ParrotAgent",
    "ParrotOptions",
    "Request",
    "Retry",
    "Step",
    "Thought",
    "Tool",
    "ToolResult",
    "running",
]

"""The agents of a gateway by name, each with its models, its tools and its prompt."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Final, NamedTuple

from tertulia.agents.base import Agent, Tool
from tertulia.core.source import Source
from tertulia.errors import AgentFailed, ConfigError
from tertulia.records.people import ROLES, Role

log = logging.getLogger("tertulia.gateway")

MAX_PROMPT_BYTES: Final = 32 * 1024


class PromptFiles:
    """The files that an agent's prompt begins with.

    They are read when a session begins. If that fails, the last text that could be read is used.
    """

    def __init__(self, paths: Iterable[str]) -> None:
        """Read the files; raise `ConfigError` if one is no text, or all are too large."""
        self._paths = tuple(paths)
        self._text = self._read()

    def current(self) -> str:
        """Return the text of the files, as it is now or as it last was."""
        try:
            self._text = self._read()
        except ConfigError as problem:
            log.warning("prompt files not read, the earlier text is used: %s", problem.message)
        return self._text

    def _read(self) -> str:
        texts = []
        for path in self._paths:
            try:
                with open(path, "rb") as file:
                    texts.append(file.read(MAX_PROMPT_BYTES + 1).decode().strip())
            except (OSError, UnicodeError) as problem:
                raise ConfigError(
                    f"The prompt file {path} cannot be read: {problem}.",
                    hint="It must be a UTF-8 text file that this user may read.",
                    field="prompt_files",
                ) from problem
        text = "\n\n".join(filter(None, texts))
        if len(text.encode()) > MAX_PROMPT_BYTES:
            raise ConfigError(
                f"The prompt files have more than {MAX_PROMPT_BYTES:,} bytes.",
                hint="Shorten them: every model call carries them.",
                field="prompt_files",
            )
        return text


class ConfiguredAgent(NamedTuple):
    """An agent, and what the configuration says of it.

    models   agents for the models that /model can choose, by the name of the model
    tools    names of the tools it is offered, with * and ?; None: all
    role     the lowest role that may choose it, with /agent or over HTTP
    prompt   the files that its prompt begins with
    """

    name: str
    agent: Agent
    models: Mapping[str, Agent] = {}
    tools: tuple[str, ...] | None = None
    role: Role = "member"
    prompt: PromptFiles | None = None

    def with_model(self, model: str | None) -> Agent:
        """Return the agent that calls a model; for one that is not configured, the usual one."""
        return self.agent if model is None else self.models.get(model, self.agent)

    def filter_tools(self, tools: Iterable[Tool]) -> tuple[Tool, ...]:
        """Return the tools that it is offered."""
        patterns = self.tools
        if patterns is None:
            return tuple(tools)
        return tuple(
            tool for tool in tools if any(fnmatchcase(tool.name, pattern) for pattern in patterns)
        )

    def may_be_chosen_by(self, role: Role) -> bool:
        """Return whether a person with that role may choose it."""
        return ROLES.index(role) <= ROLES.index(self.role)

    @property
    def model(self) -> str | None:
        """The model it calls if nobody chooses another, if it calls one."""
        return getattr(self.agent, "model", None)


class ModelSelection(NamedTuple):
    """What a name in a request stands for: an agent, and perhaps one of its models.

    Without an agent, the one that routes choose answers.
    """

    agent: str | None = None
    model: str | None = None


class AgentTable:
    """The agents of a gateway; the first is the main one."""

    def __init__(self, agents: Iterable[ConfiguredAgent]) -> None:
        self._agents = {entry.name: entry for entry in agents}
        self.main = next(iter(self._agents.values()))

    def __iter__(self) -> Iterator[ConfiguredAgent]:
        return iter(self._agents.values())

    def __len__(self) -> int:
        return len(self._agents)

    def get(self, name: str) -> ConfiguredAgent | None:
        """Return the agent of that name, or None."""
        return self._agents.get(name)

    def of(self, source: Source) -> ConfiguredAgent:
        """Return the agent that answers a source; raise `AgentFailed` if it is gone."""
        if not source.agent:
            return self.main
        entry = self._agents.get(source.agent)
        if entry is None:
            raise AgentFailed(
                f"The agent {source.agent} is not configured any more.",
                hint=f"Add the section [agents.{source.agent}], or choose another with /agent.",
            )
        return entry

    def map(self, change: Callable[[Agent], Agent]) -> AgentTable:
        """Return the table with every agent changed."""
        return AgentTable(
            entry._replace(
                agent=change(entry.agent),
                models={name: change(agent) for name, agent in entry.models.items()},
            )
            for entry in self
        )

    def selections(self, role: Role) -> dict[str, ModelSelection]:
        """Return the names that a request may ask for, with what each stands for.

        An agent is asked for by its name; a model of the main agent by its own name, one of another
        agent as `agent/model`. Agents that need a higher role to be chosen are left out.
        """
        main = self.main
        agents = [entry for entry in self if entry is main or entry.may_be_chosen_by(role)]
        is_alone = len(self) == 1
        names = {} if is_alone else {entry.name: ModelSelection(entry.name) for entry in agents}
        names.setdefault(main.agent.name, ModelSelection())
        if main.model is not None:
            names.setdefault(main.model, ModelSelection(main.name))
        for entry in agents:
            for model in entry.models:
                name = model if entry is main else f"{entry.name}/{model}"
                names.setdefault(name, ModelSelection(entry.name, model))
        return names

    async def close(self) -> None:
        """Close all agents; one that fails does not keep the others open."""
        for entry in self:
            for agent in (entry.agent, *entry.models.values()):
                try:
                    await agent.close()
                except Exception:
                    log.exception("%s could not be closed", agent.name)

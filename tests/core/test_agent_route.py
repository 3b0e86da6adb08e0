"""Routes: which agent answers a source."""

from __future__ import annotations

import pytest

from tertulia import Source
from tertulia.core.agent_route import AgentRoute, decide_agent
from tertulia.errors import ConfigError

ANA = Source("telegram", "42", user_id="42")
GROUP = Source("telegram", "-100", chat_type="group", user_id="42", account="work")


@pytest.mark.parametrize(
    ("route", "matches"),
    [
        (AgentRoute(agent="a"), (True, True)),
        (AgentRoute(agent="a", platform="telegram"), (True, True)),
        (AgentRoute(agent="a", platform="signal"), (False, False)),
        (AgentRoute(agent="a", platform="telegram", chat="-100"), (False, True)),
        (AgentRoute(agent="a", platform="telegram", account="work"), (False, True)),
        (AgentRoute(agent="a", platform="telegram", account=""), (True, False)),
        (AgentRoute(agent="a", platform="telegram", person="42"), (True, True)),
        (AgentRoute(agent="a", person="telegram:42"), (True, False)),
        (AgentRoute(agent="a", person="telegram:~work:42"), (False, True)),
    ],
)
def test_a_route_matches_what_it_names(route: AgentRoute, matches: tuple[bool, bool]) -> None:
    assert (route.matches(ANA), route.matches(GROUP)) == matches


def test_the_first_route_decides_unless_somebody_has_chosen() -> None:
    routes = (
        AgentRoute(agent="one", platform="telegram", chat="-100"),
        AgentRoute(agent="two", platform="telegram"),
    )

    def decide(source: Source, chosen: str | None = None) -> str:
        return decide_agent(
            source, chosen=chosen, routes=routes, main="main", others=("one", "two", "three")
        )

    assert decide(GROUP) == "one"
    assert decide(ANA) == "two"
    assert decide(Source("signal", "7")) == "main"
    assert decide(GROUP, "three") == "three"
    assert decide(GROUP, "main") == "main"
    assert decide(GROUP, "gone") == "one"


@pytest.mark.parametrize("field", ["chat", "person"])
def test_an_id_without_its_platform_is_refused(field: str) -> None:
    with pytest.raises(ConfigError, match="no platform") as caught:
        AgentRoute(agent="a", **{field: "42"})
    assert caught.value.field == field

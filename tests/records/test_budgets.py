"""A budget refuses a turn before the model is called, and before anything is stored."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tertulia import Budget, BudgetExceeded, ConfigError, Source, Store, Usage
from tertulia.core.budget import Per, Period
from tertulia.testing import FakeClock, Handles
from tests.records.store_inspection import ANA, ask, contents, open_beside, tickets

ANA_ON_DISCORD = Source("discord", "d42", user_id="42")
ANA_ELSEWHERE = Source("telegram", "-7", chat_type="group", user_id="42")
CARL = Source("telegram", "44", user_id="44")
DORA = Source("discord", "45", user_id="45")


def limited(handles: Handles, *budgets: Budget) -> Store:
    return handles.open(budgets=budgets)


def spend(store: Store, source: Source, tokens: int, **details: float) -> str:
    with store.turn(source, "think") as turn:
        turn.add_assistant("I did.", usage=Usage(tokens, **details))  # type: ignore[arg-type]
    return turn.session.id


def is_refused(store: Store, source: Source) -> bool:
    """Whether a turn is refused; if so, that it has left nothing."""
    before = store.sessions.find(limit=100).items
    try:
        with store.turn(source, "again"):
            return False
    except BudgetExceeded:
        assert store.sessions.find(limit=100).items == before
        assert tickets(store) == 0
        return True


@pytest.mark.parametrize(
    ("per", "refused"),
    [
        ("session", [ANA]),
        ("person", [ANA, ANA_ELSEWHERE]),
        ("platform", [ANA, ANA_ELSEWHERE, CARL]),
        ("everyone", [ANA, ANA_ELSEWHERE, CARL, ANA_ON_DISCORD, DORA]),
    ],
)
def test_limit_applies_to_its_subject_only(
    handles: Handles, per: Per, refused: list[Source]
) -> None:
    store = limited(handles, Budget(per=per, tokens=100))
    for source in (ANA_ELSEWHERE, CARL, ANA_ON_DISCORD, DORA):
        assert not is_refused(store, source)
    spend(store, ANA, 99)
    assert not is_refused(store, ANA)
    spend(store, ANA, 1)
    everyone = (ANA, ANA_ELSEWHERE, CARL, ANA_ON_DISCORD, DORA)
    assert [source for source in everyone if is_refused(store, source)] == refused


@pytest.mark.parametrize(
    ("period", "passes"),
    [("day", timedelta(days=1)), ("month", timedelta(days=28)), ("ever", None)],
)
@pytest.mark.parametrize("per", ["person", "platform", "everyone"])
def test_limit_resets_with_its_period(
    handles: Handles, clock: FakeClock, per: Per, period: Period, passes: timedelta | None
) -> None:
    store = limited(handles, Budget(per=per, period=period, tokens=100))
    spend(store, ANA, 100)
    assert is_refused(store, ANA)
    if period == "month":
        clock.forward(days=27)  # the clock stands on the fourth of March: it is still March
        assert is_refused(store, ANA)
        clock.forward(days=1)
    elif passes is not None:
        clock.forward(hours=11, minutes=59)  # it stands at noon: it is still the same day
        assert is_refused(store, ANA)
        clock.forward(minutes=1)
    else:
        clock.forward(days=4000)
    assert is_refused(store, ANA) == (passes is None)


def test_days_of_a_budget_follow_the_zone(handles: Handles, clock: FakeClock) -> None:
    store = handles.open(budgets=(Budget(per="person", tokens=1),), zone="Asia/Tokyo")
    spend(store, ANA, 1)
    clock.forward(hours=2, minutes=59)  # nine o'clock in the evening there when it began
    assert is_refused(store, ANA)
    clock.forward(minutes=1)
    assert not is_refused(store, ANA)


def test_limit_of_a_session_applies_to_its_whole_life(handles: Handles, clock: FakeClock) -> None:
    store = limited(handles, Budget(per="session", period="day", tokens=100))
    session_id = spend(store, ANA, 100)
    clock.forward(hours=15)
    assert is_refused(store, ANA)
    store.sessions.reset(store.sessions.require(session_id).key)
    assert not is_refused(store, ANA)


def test_a_policy_that_ends_a_session_ends_its_limit(handles: Handles, clock: FakeClock) -> None:
    store = limited(handles, Budget(per="session", tokens=100))
    spend(store, ANA, 100)
    clock.forward(days=2)
    assert not is_refused(store, ANA)


def test_a_limit_may_be_in_dollars(handles: Handles) -> None:
    store = limited(handles, Budget(per="person", usd=0.5))
    spend(store, ANA, 10, cost_usd=0.4)
    assert not is_refused(store, ANA)
    spend(store, ANA, 10, cost_usd=0.1)
    assert is_refused(store, ANA)


def test_unknown_cost_counts_as_tokens_only(handles: Handles) -> None:
    store = limited(
        handles,
        Budget(per="person", usd=0.01),
        Budget(per="person", tokens=1_000_000, period="day"),
    )
    spend(store, ANA, 999_999)
    assert not is_refused(store, ANA)
    spend(store, ANA, 1)
    assert is_refused(store, ANA)


def test_usage_after_the_answer_and_apart_from_turns_counts(handles: Handles) -> None:
    store = limited(handles, Budget(per="person", tokens=10))
    with store.turn(ANA, "think") as turn:
        turn.add_assistant("I did.")
        turn.add_usage(Usage(5))
    assert not is_refused(store, ANA)
    store.usage.add(turn.session.id, Usage(5))
    assert is_refused(store, ANA)


@pytest.mark.parametrize(
    ("per", "only", "refused"),
    [
        ("person", "telegram:42", True),
        ("person", "telegram:43", False),
        ("platform", "telegram", True),
        ("platform", "discord", False),
    ],
)
def test_limit_may_name_one_subject(handles: Handles, per: Per, only: str, refused: bool) -> None:
    store = limited(handles, Budget(per=per, tokens=1, only=only))
    spend(store, ANA, 1)
    assert is_refused(store, ANA) == refused


def test_usage_in_shared_chats_counts_for_the_person(handles: Handles) -> None:
    store = handles.open(budgets=(Budget(per="person", tokens=100),), group_sessions_per_user=False)
    group = Source("telegram", "-100", chat_type="group", user_id="42")
    spend(store, group, 100)
    assert is_refused(store, ANA)
    assert is_refused(store, group)
    assert not is_refused(store, Source("telegram", "-100", chat_type="group", user_id="43"))


def test_refusal_stores_nothing_and_gives_the_reason(handles: Handles) -> None:
    store = limited(handles, Budget(per="session", tokens=5))
    session_id = spend(store, ANA, 5)
    with pytest.raises(BudgetExceeded) as caught, store.turn(ANA, "more!", message_id="1"):
        pass
    assert (caught.value.per, caught.value.period) == ("session", "day")
    assert (caught.value.code, caught.value.retryable) == ("budget_exceeded", False)
    assert caught.value.hint
    assert contents(store, session_id) == ["think", "I did."]
    explained = store.sessions.explain(session_id)
    assert "refused: reason The budget is spent: 5 of 5 tokens (this session)" in explained
    apart = open_beside(handles)
    with apart.turn(ANA, "more!", message_id="1", wait=0) as turn:
        assert not turn.duplicate
        turn.add_assistant("Here you are.")
    apart.close()


def test_usage_is_summed_once(handles: Handles) -> None:
    """Also where every turn is refused, and so stores nothing."""
    store = limited(handles, Budget(per="everyone", period="ever", tokens=5))
    spend(store, ANA, 5)
    for _ in range(3):
        assert is_refused(store, CARL)
    assert ask(store, "select sum(tokens) from spending") == 5
    newest = ask(store, "select max(id) from usage")
    assert ask(store, "select value from installation where name = 'spending_upto'") == str(newest)


def test_turn_that_exceeds_the_budget_is_completed(handles: Handles) -> None:
    store = limited(handles, Budget(per="person", tokens=10))
    with store.turn(ANA, "think") as turn:
        turn.add_usage(Usage(50))
        turn.add_assistant("I did.", usage=Usage(50))
    assert contents(store, turn.session) == ["think", "I did."]


def test_duplicate_is_answered_even_over_budget(handles: Handles) -> None:
    store = limited(handles, Budget(per="person", tokens=10))
    with store.turn(ANA, "think", message_id="1") as turn:
        turn.add_assistant("I did.", usage=Usage(50))
    with store.turn(ANA, "think", message_id="1") as turn:
        assert (turn.duplicate, turn.answer) == (True, "I did.")


def test_interrupted_turn_is_resumed_only_within_the_budget(handles: Handles) -> None:
    store = limited(handles, Budget(per="person", tokens=10))
    turn = store.turn_control(ANA, "think", message_id="1")
    assert turn.try_enter()
    turn.add_usage(Usage(50))
    turn.leave(failed=True)
    with pytest.raises(BudgetExceeded), store.turn_control(ANA, "think", message_id="1"):
        pass
    assert contents(store, turn.session) == ["think"]


@pytest.mark.parametrize(
    "wrong", [{"per": "week", "tokens": 1}, {"per": "person"}, {"per": "person", "period": "year"}]
)
def test_invalid_budget_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        Budget(**wrong)  # type: ignore[arg-type]

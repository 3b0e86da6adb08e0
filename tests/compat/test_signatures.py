"""Every name and parameter that code written for those systems uses, with its default."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any

import pytest

from tertulia.compat.hermes import config, delivery, session
from tertulia.compat.nanobot import manager

NEEDED = inspect.Parameter.empty

VALUES: list[tuple[Any, dict[str, Any]]] = [
    (config.HomeChannel, {"platform": NEEDED, "chat_id": NEEDED, "name": NEEDED}),
    (
        config.PlatformConfig,
        {"enabled": False, "token": None, "api_key": None, "home_channel": None, "extra": {}},
    ),
    (
        config.SessionResetPolicy,
        {
            "mode": "both",
            "at_hour": 4,
            "idle_minutes": 1440,
            "notify": True,
            "notify_exclude_platforms": ("api_server", "webhook"),
        },
    ),
    (
        session.SessionSource,
        {
            "platform": NEEDED,
            "chat_id": NEEDED,
            "chat_name": None,
            "chat_type": "dm",
            "user_id": None,
            "user_name": None,
            "thread_id": None,
            "chat_topic": None,
            "user_id_alt": None,
            "chat_id_alt": None,
        },
    ),
    (
        session.SessionContext,
        {
            "source": NEEDED,
            "connected_platforms": NEEDED,
            "home_channels": NEEDED,
            "session_key": "",
            "session_id": "",
            "created_at": None,
            "updated_at": None,
        },
    ),
    (
        session.SessionEntry,
        {
            "session_key": NEEDED,
            "session_id": NEEDED,
            "created_at": NEEDED,
            "updated_at": NEEDED,
            "origin": None,
            "display_name": None,
            "platform": None,
            "chat_type": "dm",
            "input_tokens": 0,
            "output_tokens": 0,
            "cache_read_tokens": 0,
            "cache_write_tokens": 0,
            "total_tokens": 0,
            "estimated_cost_usd": 0.0,
            "cost_status": "unknown",
            "last_prompt_tokens": 0,
            "was_auto_reset": False,
            "auto_reset_reason": None,
            "reset_had_activity": False,
        },
    ),
    (
        delivery.DeliveryTarget,
        {
            "platform": NEEDED,
            "chat_id": None,
            "thread_id": None,
            "is_origin": False,
            "is_explicit": False,
        },
    ),
]

CALLS: list[tuple[Callable[..., Any], dict[str, Any]]] = [
    (session.build_session_key, {"source": NEEDED, "group_sessions_per_user": True}),
    (session.build_session_context, {"source": NEEDED, "config": NEEDED, "session_entry": None}),
    (session.build_session_context_prompt, {"context": NEEDED, "redact_pii": False}),
    (
        session.SessionStore,
        {
            "sessions_dir": NEEDED,
            "config": NEEDED,
            "has_active_processes_fn": None,
            "on_auto_reset": None,
        },
    ),
    (session.SessionStore.get_or_create_session, {"source": NEEDED, "force_new": False}),
    (
        session.SessionStore.update_session,
        {
            "session_key": NEEDED,
            "input_tokens": 0,
            "output_tokens": 0,
            "cache_read_tokens": 0,
            "cache_write_tokens": 0,
            "last_prompt_tokens": None,
            "model": None,
            "estimated_cost_usd": None,
            "cost_status": None,
            "cost_source": None,
            "provider": None,
            "base_url": None,
        },
    ),
    (session.SessionStore.reset_session, {"key": NEEDED}),
    (session.SessionStore.switch_session, {"key": NEEDED, "session_id": NEEDED}),
    (session.SessionStore.list_sessions, {"active_minutes": None}),
    (session.SessionStore.has_any_sessions, {}),
    (
        session.SessionStore.append_to_transcript,
        {"session_id": NEEDED, "message": NEEDED, "skip_db": False},
    ),
    (session.SessionStore.rewrite_transcript, {"session_id": NEEDED, "messages": NEEDED}),
    (session.SessionStore.load_transcript, {"session_id": NEEDED}),
    (session.SessionStore.get_transcript_path, {"session_id": NEEDED}),
    (delivery.DeliveryTarget.parse, {"text": NEEDED, "origin": None}),
    (config.GatewayConfig.get_home_channel, {"platform": NEEDED}),
    (config.GatewayConfig.get_reset_policy, {"platform": None, "session_type": None}),
    (manager.Session.add_message, {"role": NEEDED, "content": NEEDED, "fields": NEEDED}),
    (manager.Session.get_history, {"max_messages": 500, "include_timestamps": False}),
    (manager.Session.clear, {}),
    (manager.Session.retain_recent_legal_suffix, {"max_messages": NEEDED}),
    (manager.SessionManager, {"workspace": NEEDED}),
    (manager.SessionManager.get_or_create, {"key": NEEDED}),
    (manager.SessionManager.save, {"session": NEEDED, "fsync": False}),
    (manager.SessionManager.flush_all, {}),
    (manager.SessionManager.invalidate, {"key": NEEDED}),
    (manager.SessionManager.delete_session, {"key": NEEDED}),
    (manager.SessionManager.read_session_file, {"key": NEEDED}),
    (manager.SessionManager.list_sessions, {}),
    (manager.SessionManager.safe_key, {"key": NEEDED}),
]

KEYWORDS_ONLY = {("build_session_context_prompt", "redact_pii"), ("save", "fsync")} | {
    ("get_history", "include_timestamps")
}


@pytest.mark.parametrize(("value", "fields"), VALUES, ids=lambda one: getattr(one, "__name__", ""))
def test_value_has_the_promised_fields(value: Any, fields: dict[str, Any]) -> None:
    found = {}
    for one in dataclasses.fields(value):
        if one.default_factory is not dataclasses.MISSING:
            found[one.name] = one.default_factory()
        else:
            found[one.name] = NEEDED if one.default is dataclasses.MISSING else one.default
    assert list(found.items()) == list(fields.items())


@pytest.mark.parametrize(("call", "params"), CALLS, ids=lambda one: getattr(one, "__name__", ""))
def test_call_has_the_promised_parameters(call: Callable[..., Any], params: dict[str, Any]) -> None:
    found = [one for one in inspect.signature(call).parameters.values() if one.name != "self"]
    assert [(one.name, one.default) for one in found] == list(params.items())
    only = {(call.__name__, one.name) for one in found if one.kind is one.KEYWORD_ONLY}
    assert only == {pair for pair in KEYWORDS_ONLY if pair[0] == call.__name__}


def test_gateway_config_has_the_promised_fields() -> None:
    fields = [one.name for one in dataclasses.fields(config.GatewayConfig)]
    assert fields == [
        "platforms",
        "default_reset_policy",
        "reset_by_type",
        "reset_by_platform",
        "reset_triggers",
        "quick_commands",
        "sessions_dir",
        "always_log_local",
        "group_sessions_per_user",
    ]


def test_session_has_the_promised_fields() -> None:
    fields = [one.name for one in dataclasses.fields(manager.Session)]
    assert fields == [
        "key",
        "messages",
        "created_at",
        "updated_at",
        "metadata",
        "last_consolidated",
    ]

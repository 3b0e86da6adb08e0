from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

import tertulia
from tertulia import Page, Session, Source


@pytest.fixture
def session(tmp_path: Path) -> Session:
    with tertulia.open(tmp_path / "talk.db") as store:
        return store.sessions.open(Source("telegram", "42", user_id="7", user_id_alt="8"))


def test_to_dict_is_plain_json_under_the_field_names(session: Session) -> None:
    fields = session.to_dict()
    assert set(fields) == set(Session.__struct_fields__)
    assert json.loads(json.dumps(fields)) == fields
    assert fields["origin"] == session.origin.to_dict()
    assert fields["created_at"] == session.created_at.isoformat().replace("+00:00", "Z")


def test_session_is_frozen(session: Session) -> None:
    with pytest.raises(AttributeError):
        session.title = "new"  # type: ignore[misc]


def test_session_can_be_in_a_set(session: Session) -> None:
    changed = msgspec.structs.replace(session, metadata={"a": [1]}, version=session.version + 1)
    assert len({session, changed, msgspec.structs.replace(session)}) == 2


def test_last_page_has_no_cursor() -> None:
    assert Page((1, 2)).next is None

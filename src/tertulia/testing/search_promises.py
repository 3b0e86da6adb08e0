"""Promises of full-text search: every script, and people find only their own messages."""

from __future__ import annotations

from typing import Any

import pytest

from tertulia.core.source import Source
from tertulia.errors import ConfigError
from tertulia.records.search import Hit
from tertulia.store import Store
from tertulia.testing.fixtures import Handles, assistant_message, dm, turn, user_message

WORDS = [
    ("The quick brown fox", "QUICK", True),
    ("The quick brown fox", "quack", False),
    ("The quick brown fox", "fox brown", True),
    ("The quick brown fox", '"brown fox"', True),
    ("The quick brown fox", '"fox brown"', False),
    ("The quick brown fox", "qui*", True),
    ("The quick brown fox", "uick*", False),
    ("The quick brown fox", "qui", False),
    ("naïve café in Cádiz", "cafe", True),
    ("naive cafe in Cadiz", "Cádiz", True),
    ("STRASSE", "straße", True),
    ("ﬁne", "fine", True),
    ("我昨天去了北京大学", "北京", True),
    ("我昨天去了北京大学", "京北", False),
    ("我昨天去了北京大学", "大学", True),
    ("我昨天去了北京大学", "我", True),
    ("明日は東京タワーへ行きます", "東京", True),
    ("明日は東京タワーへ行きます", "タワー", True),
    ("明日は東京タワーへ行きます", "行きます", True),
    ("명동에서 만나요", "명동", True),
    ("ผมไปกรุงเทพ", "กรุงเทพ", True),
    ("السَّلَامُ عَلَيْكُمْ", "السلام", True),
    ("شاهدت مدينة القاهرة", "القاهرة", True),
    ("Привет, мир", "привет", True),
    ("שלום עולם", "שָׁלוֹם", True),
    ("call me at +34 600-123", "600", True),
    ("AND the cat sat", "AND cat", True),
    ("the dog sat", "AND dog", False),
    ("col:umn and {brace}", "col:umn", True),
    ("a\x00b zero", "zero", True),
    ("a\x00b zero", "a\x00b", True),
]

NONSENSE = [
    "",
    " ",
    '"',
    '""',
    '"""',
    "*",
    "**",
    "a*b",
    "AND",
    "OR",
    "NOT",
    "NOT x",
    "NEAR(",
    "NEAR(a b, 2)",
    "(",
    ")",
    "a:b",
    "text:a",
    "^a",
    "-a",
    "+",
    "{a b}: c",
    "'",
    "';--",
    "\\",
    "_",
    "hello _",
    "🙂",
    "\x00",
    "a\x00b",
    "\ud800",
    "\ud800 x",
    "%",
    "x" * 100_000,
    " ".join(["word"] * 2000),
    " ".join(f"w{n}" for n in range(2000)),
    "漢" * 2000,
    '"' * 1001,
]


def find_hits(store: Store, query: str, **filters: Any) -> list[tuple[str, int]]:
    return sorted((hit.session_id, hit.seq) for hit in store.search(query, **filters).items)


class SearchPromises:
    """Promises of `search`: it finds visible messages and nothing else."""

    @pytest.mark.parametrize(("text", "query", "matches"), WORDS)
    def test_query_finds_its_words(
        self, store: Store, text: str, query: str, matches: bool
    ) -> None:
        session = store.sessions.open(dm("anna"))
        store.transcript(session.id).append(user_message(text))
        store.settle()
        assert find_hits(store, query) == ([(session.id, 1)] if matches else [])

    @pytest.mark.parametrize("query", NONSENSE, ids=lambda query: repr(query[:12]))
    def test_no_query_fails(self, store: Store, query: str) -> None:
        session = store.sessions.open(dm("anna"))
        store.transcript(session.id).append(user_message("something else entirely"))
        store.settle()
        assert store.search(query).items == ()
        assert store.sessions.find(text=query).items == ()

    def test_a_hit_has_its_session_and_sequence_number(
        self, handles: Handles, store: Store, other: Store
    ) -> None:
        session = store.sessions.open(dm("anna"))
        transcript = store.transcript(session.id)
        filler = "lorem ipsum dolor " * 200
        transcript.extend(
            [user_message("nothing"), assistant_message(f"{filler}\nthe Lighthouse\n{filler}")]
        )
        handles.clock.forward(hours=1)
        store.settle()
        (hit,) = other.search("lighthouse").items
        expected = (session.id, 2, "assistant", handles.clock.now().replace(hour=12))
        assert (hit.session_id, hit.seq, hit.role, hit.at) == expected
        assert "the Lighthouse lorem" in hit.snippet
        assert len(hit.snippet) < 400
        assert "\n" not in hit.snippet

    def test_the_better_match_comes_first(self, store: Store) -> None:
        session = store.sessions.open(dm("anna"))
        padding = "so many other words that nobody looks for " * 20
        store.transcript(session.id).extend(
            [user_message(f"harbour {padding}"), user_message("harbour harbour")]
        )
        store.settle()
        hits = store.search("harbour").items
        assert [hit.seq for hit in hits] == [2, 1]
        assert hits[0].score > hits[1].score

    def test_parts_and_large_texts_are_found(self, store: Store) -> None:
        session = store.sessions.open(dm("anna"))
        parts = [{"type": "text", "text": "a lantern"}, {"type": "image_url", "image_url": "x"}]
        store.transcript(session.id).extend(
            [{"role": "user", "content": parts}, user_message("filler " * 50_000 + "beacon")]
        )
        store.settle()
        assert find_hits(store, "lantern") == [(session.id, 1)]
        assert find_hits(store, "beacon") == [(session.id, 2)]

    def test_a_search_finds_the_newest_message_at_once(self, store: Store, other: Store) -> None:
        session = store.sessions.open(dm("anna"))
        store.transcript(session.id).append(user_message("lighthouse"))
        assert find_hits(other, "lighthouse") == [(session.id, 1)]

    def test_a_person_finds_only_their_own_messages(self, store: Store) -> None:
        sources = {
            "anna": dm("anna"),
            "ben": dm("ben"),
            "anna elsewhere": dm("anna", "signal"),
            "anna in a group": Source("telegram", "g", chat_type="group", user_id="anna"),
            "everybody": Source("telegram", "g", chat_type="group"),
        }
        ids = {name: store.sessions.open(source).id for name, source in sources.items()}
        for session_id in ids.values():
            store.transcript(session_id).append(user_message("lighthouse"))
        store.settle()

        def owners(**filters: Any) -> set[str]:
            hits = {hit.session_id for hit in store.search("lighthouse", **filters).items}
            return {name for name, session_id in ids.items() if session_id in hits}

        assert owners() == set(ids)
        assert owners(person="telegram:anna") == {"anna", "anna in a group"}
        assert owners(person="signal:anna") == {"anna elsewhere"}
        assert owners(person="ben") == {"ben"}
        assert owners(person="anna", platform="signal") == {"anna elsewhere"}
        assert owners(person="nobody") == set()
        assert owners(person="") == set()
        assert owners(platform="signal") == {"anna elsewhere"}
        assert owners(key=store.sessions.key(sources["everybody"])) == {"everybody"}
        with pytest.raises(ConfigError):
            owners(person="anna")

    def test_results_are_paged(self, store: Store) -> None:
        session = store.sessions.open(dm("anna"))
        store.transcript(session.id).extend(user_message(f"lighthouse {n}") for n in range(130))
        store.settle()
        hits: list[Hit] = []
        cursor = None
        while True:
            page = store.search("lighthouse", limit=20, cursor=cursor)
            hits += page.items
            cursor = page.next
            if cursor is None:
                break
        assert sorted(hit.seq for hit in hits) == list(range(1, 131))
        assert store.search("lighthouse", limit=130).next is None  # no page without a hit follows
        wrong: list[dict[str, Any]] = [{"limit": 0}, {"limit": 201}, {"cursor": "x"}]
        for filters in wrong:
            with pytest.raises(ConfigError):
                store.search("lighthouse", **filters)

    def test_hidden_messages_are_not_found(self, store: Store) -> None:
        session = store.sessions.open(dm("anna"))
        transcript = store.transcript(session.id)
        transcript.extend(turn("lighthouse"))
        store.settle()
        visible = [(session.id, 1), (session.id, 2)]
        assert find_hits(store, "lighthouse") == visible
        transcript.undo()
        assert find_hits(store, "lighthouse") == []
        transcript.redo()
        assert find_hits(store, "lighthouse") == visible
        transcript.edit(1, user_message("beacon"))
        assert find_hits(store, "lighthouse") == [(session.id, 2)]
        transcript.rewrite([user_message("lighthouse again")])
        assert find_hits(store, "lighthouse") == [(session.id, 4)]
        transcript.clear()
        assert find_hits(store, "lighthouse") == []
        transcript.restore(1)
        assert find_hits(store, "lighthouse") == visible

    def test_a_fork_is_found_after_its_source_was_deleted(self, store: Store) -> None:
        session = store.sessions.open(dm("anna"))
        store.transcript(session.id).extend(turn("lighthouse"))
        fork = store.sessions.fork(session.id, at=1)
        store.settle()
        assert find_hits(store, "lighthouse") == [(session.id, 1), (session.id, 2)]
        store.transcript(session.id).clear()
        assert find_hits(store, "lighthouse", person="telegram:anna") == [(fork.id, 1)]
        store.sessions.delete(session.id)
        assert find_hits(store, "lighthouse") == [(fork.id, 1)]
        store.transcript(fork.id).undo()
        assert find_hits(store, "lighthouse") == []

    def test_the_index_can_be_rebuilt(self, store: Store, other: Store) -> None:
        session = store.sessions.open(dm("anna", chat_name="Harbour"))
        store.transcript(session.id).extend(turn("lighthouse"))
        store.sessions.rename(session.id, "Beacon")
        store.settle()
        expected = find_hits(store, "lighthouse")
        other.rebuild_search()
        assert find_hits(store, "lighthouse") == expected == [(session.id, 1), (session.id, 2)]
        for text in ("harbour", "beacon"):
            sessions = store.sessions.find(text=text).items
            assert [item.id for item in sessions] == [session.id]

    def test_an_old_title_is_not_found(self, store: Store) -> None:
        session = store.sessions.open(dm("anna"))
        store.sessions.rename(session.id, "Beacon")
        store.settle()
        store.sessions.rename(session.id, "Lantern")
        store.settle()
        assert store.sessions.find(text="beacon").items == ()
        assert [item.id for item in store.sessions.find(text="lantern").items] == [session.id]

-- name: part_matching_sessions
select place >> 32 from words where text @@ cast(:words as tsquery)
union select session from cards where text @@ cast(:words as tsquery)

-- name: sessions_current_page_by_words
select {part_session} from sessions where ref in ({part_matching_sessions}) and ended_at is null {part_filters}
{part_newest}

-- name: sessions_ended_page_by_words
select {part_session} from sessions where ref in ({part_matching_sessions}) and ended_at is not null {part_filters}
{part_newest}

-- name: unindexed_put
insert into unindexed (session) values (:session) on conflict (session) do nothing

-- name: unindexed_delete
delete from unindexed where session = :session

-- name: unindexed_put_all
insert into unindexed (session) select ref from sessions on conflict (session) do nothing

-- name: search_backlog
select ref, indexed_seq, last_seq, is_card_indexed, title, display_name
from unindexed join sessions on sessions.ref = unindexed.session
order by unindexed.session limit :limit

-- name: search_messages
select place & 4294967295, body, away from messages
where place between (cast(:session as bigint) << 32) + :first
    and (cast(:session as bigint) << 32) + :last
order by place limit :limit

-- name: search_add
insert into words (place, text) values (:place, cast(:text as tsvector))
on conflict (place) do update set text = excluded.text

-- name: search_delete
delete from words where place = :place

-- name: session_set_indexed
update sessions set indexed_seq = :seq where ref = :session

-- name: card_delete
delete from cards where session = :session

-- name: card_add
insert into cards (session, text) values (:session, cast(:text as tsvector))

-- name: session_set_card_indexed
update sessions set is_card_indexed = 1 where ref = :session

-- name: search_hits
select -ts_rank(words.text, cast(:words as tsquery), 1), sessions.id, sessions.last_seq,
    revisions.ranges, {part_message}
from words
    join sessions on sessions.ref = words.place >> 32
    join revisions on revisions.session = sessions.ref and revisions.number = sessions.revision
    join messages on messages.place = words.place
where words.text @@ cast(:words as tsquery)
    and (cast(:person as text) is null or sessions.person = :person)
    and (cast(:is_limited as bigint) = 0 or sessions.person = cast(:viewer as text) or sessions.key in (:own_key, :shared_key))
    and (cast(:platform as text) is null or sessions.platform = :platform)
    and (cast(:key as text) is null or sessions.key = :key)
order by 1, words.place desc limit :limit offset :offset

-- name: search_clear
delete from words

-- name: cards_clear
delete from cards

-- name: sessions_clear_indexed
update sessions set indexed_seq = 0, is_card_indexed = 0

-- name: session_indexed_seq
select indexed_seq from sessions where ref = :session

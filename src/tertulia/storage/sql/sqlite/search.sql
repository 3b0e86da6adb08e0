-- name: part_matching_sessions
select rowid >> 32 from words where words match :words
union select rowid from cards where cards match :words

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
insert into unindexed (session) select ref from sessions where true on conflict (session) do nothing

-- name: search_backlog
select ref, indexed_seq, last_seq, is_card_indexed, title, display_name
from unindexed join sessions on sessions.ref = unindexed.session
order by unindexed.session limit :limit

-- name: search_messages
select place & 4294967295, body, away from messages
where place between (:session << 32) + :first and (:session << 32) + :last
order by place limit :limit

-- name: search_add
insert into words (rowid, text) values (:place, :text)

-- name: search_delete
insert into words (words, rowid, text) values ('delete', :place, :text)

-- name: session_set_indexed
update sessions set indexed_seq = :seq where ref = :session

-- name: card_delete
delete from cards where rowid = :session

-- name: card_add
insert into cards (rowid, text) values (:session, :text)

-- name: session_set_card_indexed
update sessions set is_card_indexed = 1 where ref = :session

-- name: search_hits
select words.rank, sessions.id, sessions.last_seq, revisions.ranges, {part_message}
from words
    join sessions on sessions.ref = words.rowid >> 32
    join revisions on revisions.session = sessions.ref and revisions.number = sessions.revision
    join messages on messages.place = words.rowid
where words match :words
    and (:person is null or sessions.person = :person)
    and (:is_limited = 0 or sessions.person = :viewer or sessions.key in (:own_key, :shared_key))
    and (:platform is null or sessions.platform = :platform)
    and (:key is null or sessions.key = :key)
order by words.rank, words.rowid desc limit :limit offset :offset

-- name: search_clear
insert into words (words) values ('delete-all')

-- name: cards_clear
-- A damaged index cannot be emptied, only rebuilt from its texts.
insert into cards (cards) values ('rebuild');
delete from cards

-- name: sessions_clear_indexed
update sessions set indexed_seq = 0, is_card_indexed = 0

-- name: session_indexed_seq
select indexed_seq from sessions where ref = :session

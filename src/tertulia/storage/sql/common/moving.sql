-- What `tertulia store move` needs besides: the rows up to a key, and making way for them.

-- name: move_installation_range
select
    name, value
from installation
where name > :name
    and name <= :last_name and name not in ('search_rule', 'moving', 'moved_to')
order by name

-- name: move_installation_drop
delete from installation
where name > :name
    and name <= :last_name and name not in ('search_rule', 'moving', 'moved_to')

-- name: move_installation_drop_rest
delete from installation where name > :name and name not in ('search_rule', 'moving', 'moved_to')

-- name: move_people_range
select
    person, platform, account, user_id, user_id_alt, name, zone, created_at, role
from people
where person > :person
    and person <= :last_person
order by person

-- name: move_people_drop
delete from people
where person > :person
    and person <= :last_person

-- name: move_people_drop_rest
delete from people where person > :person

-- name: move_links_range
select
    key, shared_key, made_at
from links
where key > :key
    and key <= :last_key
order by key

-- name: move_links_drop
delete from links
where key > :key
    and key <= :last_key

-- name: move_links_drop_rest
delete from links where key > :key

-- name: move_codes_range
select
    hash, purpose, platform, account, subject, made_at, until
from codes
where hash > :hash
    and hash <= :last_hash
order by hash

-- name: move_codes_drop
delete from codes
where hash > :hash
    and hash <= :last_hash

-- name: move_codes_drop_rest
delete from codes where hash > :hash

-- name: move_wrong_codes_range
select
    place, at
from wrong_codes
where (place, at) > (:place, :at)
    and (place, at) <= (:last_place, :last_at)
order by place, at

-- name: move_wrong_codes_drop
delete from wrong_codes
where (place, at) > (:place, :at)
    and (place, at) <= (:last_place, :last_at)

-- name: move_wrong_codes_drop_rest
delete from wrong_codes where (place, at) > (:place, :at)

-- name: move_sessions_range
select
    ref, id, key, agent, platform, chat_type, person, owner, origin, display_name, title,
    created_at, updated_at, ended_at, end_reason, parent_id, parent_kind, input, output,
    cache_read, cache_write, reasoning, last_prompt, cost, certainty, cost_source, model,
    provider, metadata, version, last_seq, turns, revision, epoch, open_turn
from sessions
where ref > :ref
    and ref <= :last_ref
order by ref

-- name: move_sessions_drop
delete from sessions
where ref > :ref
    and ref <= :last_ref

-- name: move_sessions_drop_rest
delete from sessions where ref > :ref

-- name: move_messages_range
select
    place, turn, role, kind, author, at, body, away
from messages
where place > :place
    and place <= :last_place
order by place

-- name: move_messages_drop
delete from messages
where place > :place
    and place <= :last_place

-- name: move_messages_drop_rest
delete from messages where place > :place

-- name: move_blobs_range
select
    hash, size, data
from blobs
where hash > :hash
    and hash <= :last_hash
order by hash

-- name: move_blobs_drop
delete from blobs
where hash > :hash
    and hash <= :last_hash

-- name: move_blobs_drop_rest
delete from blobs where hash > :hash

-- name: move_message_blobs_range
select
    place, hash
from message_blobs
where (place, hash) > (:place, :hash)
    and (place, hash) <= (:last_place, :last_hash)
order by place, hash

-- name: move_message_blobs_drop
delete from message_blobs
where (place, hash) > (:place, :hash)
    and (place, hash) <= (:last_place, :last_hash)

-- name: move_message_blobs_drop_rest
delete from message_blobs where (place, hash) > (:place, :hash)

-- name: move_revisions_range
select
    session, number, ranges, made_by, made_from, start_seq, closed_seq, at, summary_seq,
    after_log, after_seq
from revisions
where (session, number) > (:session, :number)
    and (session, number) <= (:last_session, :last_number)
order by session, number

-- name: move_revisions_drop
delete from revisions
where (session, number) > (:session, :number)
    and (session, number) <= (:last_session, :last_number)

-- name: move_revisions_drop_rest
delete from revisions where (session, number) > (:session, :number)

-- name: move_borrowings_range
select
    log, session
from borrowings
where (log, session) > (:log, :session)
    and (log, session) <= (:last_log, :last_session)
order by log, session

-- name: move_borrowings_drop
delete from borrowings
where (log, session) > (:log, :session)
    and (log, session) <= (:last_log, :last_session)

-- name: move_borrowings_drop_rest
delete from borrowings where (log, session) > (:log, :session)

-- name: move_turns_range
select
    session, number, state, arrival, began_at, closed_at, first_seq, answer_seq
from turns
where (session, number) > (:session, :number)
    and (session, number) <= (:last_session, :last_number)
order by session, number

-- name: move_turns_drop
delete from turns
where (session, number) > (:session, :number)
    and (session, number) <= (:last_session, :last_number)

-- name: move_turns_drop_rest
delete from turns where (session, number) > (:session, :number)

-- name: move_events_range
select
    session, number, at, kind, detail
from events
where (session, number) > (:session, :number)
    and (session, number) <= (:last_session, :last_number)
order by session, number

-- name: move_events_drop
delete from events
where (session, number) > (:session, :number)
    and (session, number) <= (:last_session, :last_number)

-- name: move_events_drop_rest
delete from events where (session, number) > (:session, :number)

-- name: move_usage_range
select
    id, session_id, turn, at, platform, person, model, provider, base_url, input, output,
    cache_read, cache_write, reasoning, cost, certainty, cost_source
from usage
where id > :id
    and id <= :last_id
order by id

-- name: move_usage_drop
delete from usage
where id > :id
    and id <= :last_id

-- name: move_usage_drop_rest
delete from usage where id > :id

-- name: move_spending_range
select
    day, platform, person, tokens, cost
from spending
where (day, platform, person) > (:day, :platform, :person)
    and (day, platform, person) <= (:last_day, :last_platform, :last_person)
order by day, platform, person

-- name: move_spending_drop
delete from spending
where (day, platform, person) > (:day, :platform, :person)
    and (day, platform, person) <= (:last_day, :last_platform, :last_person)

-- name: move_spending_drop_rest
delete from spending where (day, platform, person) > (:day, :platform, :person)

-- name: move_inbox_range
select
    id, arrival, key, source, body, state, attempts, not_before, received_at, problem, is_next,
    gathered_into
from inbox
where id > :id
    and id <= :last_id
order by id

-- name: move_inbox_drop
delete from inbox
where id > :id
    and id <= :last_id

-- name: move_inbox_drop_rest
delete from inbox where id > :id

-- name: move_outbox_range
select
    id, delivery, session_id, target, platform, account, chat_id, thread_id, body, state,
    attempts, not_before, created_at, sent_at, problem, is_next
from outbox
where id > :id
    and id <= :last_id
order by id

-- name: move_outbox_drop
delete from outbox
where id > :id
    and id <= :last_id

-- name: move_outbox_drop_rest
delete from outbox where id > :id

-- name: move_arrivals_range
select
    name, session, taken, digest, last_seq, is_complete, at
from arrivals
where name > :name
    and name <= :last_name
order by name

-- name: move_arrivals_drop
delete from arrivals
where name > :name
    and name <= :last_name

-- name: move_arrivals_drop_rest
delete from arrivals where name > :name

-- name: move_processes_range
select
    id, key, session_id, origin, node, folder, command, cwd, is_pty, state, keeper_pid, keeper_mark,
    pid, mark, exit_code, began_at, ended_at, check_interval, told, told_at
from processes
where id > :id
    and id <= :last_id
order by id

-- name: move_processes_drop
delete from processes
where id > :id
    and id <= :last_id

-- name: move_processes_drop_rest
delete from processes where id > :id

-- name: move_flushes_range
select
    session, attempts
from flushes
where session > :session
    and session <= :last_session
order by session

-- name: move_flushes_drop
delete from flushes
where session > :session
    and session <= :last_session

-- name: move_flushes_drop_rest
delete from flushes where session > :session

-- name: move_close
-- Whoever still has the old store open finds nothing to write to, so nothing can go astray there.
alter table sessions rename to sessions_moved

-- name: move_schedules_range
select
    id, owner, key, origin, task, rule, misfire, target, session, state, next_at, created_at
from schedules
where id > :id
    and id <= :last_id
order by id

-- name: move_schedules_drop
delete from schedules
where id > :id
    and id <= :last_id

-- name: move_schedules_drop_rest
delete from schedules where id > :id

-- name: move_occurrences_range
select
    id, schedule, planned_at, since_at, is_manual, state, attempts, not_before, ended_at,
    session_id, delivery, result, problem
from occurrences
where id > :id
    and id <= :last_id
order by id

-- name: move_occurrences_drop
delete from occurrences
where id > :id
    and id <= :last_id

-- name: move_occurrences_drop_rest
delete from occurrences where id > :id

-- Read each table page by page in the order of its key, and insert such rows. Columns and keys are
-- those of `storage/tables.py`; the search index, its watermarks and leases are left out there.

-- name: copy_installation_page
select name, value
from installation
where name > :name and name not in ('search_rule', 'moving', 'moved_to')
order by name limit :limit

-- name: copy_installation_put
insert into installation (name, value)
values (?, ?)
on conflict (name) do update set value = excluded.value

-- name: copy_people_page
select person, platform, account, user_id, user_id_alt, name, zone, created_at, role
from people where person > :person order by person limit :limit

-- name: copy_people_put
insert into people (
    person, platform, account, user_id, user_id_alt, name, zone, created_at, role
)
values (?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: copy_links_page
select key, shared_key, made_at, source, shared_source, shared_person
from links where key > :key order by key limit :limit

-- name: copy_links_put
insert into links (key, shared_key, made_at, source, shared_source, shared_person)
values (?, ?, ?, ?, ?, ?)

-- name: copy_codes_page
select hash, purpose, platform, account, subject, made_at, until, source, claimed_by, claimed_key
from codes where hash > :hash order by hash limit :limit

-- name: copy_codes_put
insert into codes (
    hash, purpose, platform, account, subject, made_at, until, source, claimed_by, claimed_key
)
values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: copy_wrong_codes_page
select place, at
from wrong_codes where (place, at) > (:place, :at) order by place, at limit :limit

-- name: copy_wrong_codes_put
insert into wrong_codes (place, at)
values (?, ?)

-- name: copy_sessions_page
select
    ref, id, key, agent, platform, chat_type, person, owner, origin, display_name, title,
    created_at, updated_at, ended_at, end_reason, parent_id, parent_kind, input, output,
    cache_read, cache_write, reasoning, last_prompt, cost, certainty, cost_source, model,
    provider, metadata, version, last_seq, turns, revision, epoch, open_turn
from sessions where ref > :ref order by ref limit :limit

-- name: copy_sessions_put
insert into sessions (
    ref, id, key, agent, platform, chat_type, person, owner, origin, display_name, title,
    created_at, updated_at, ended_at, end_reason, parent_id, parent_kind, input, output,
    cache_read, cache_write, reasoning, last_prompt, cost, certainty, cost_source, model,
    provider, metadata, version, last_seq, turns, revision, epoch, open_turn
) {part_overriding_numbers}
values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: copy_messages_page
select place, turn, role, kind, author, at, body, away
from messages where place > :place order by place limit :limit

-- name: copy_messages_put
insert into messages (place, turn, role, kind, author, at, body, away)
values (?, ?, ?, ?, ?, ?, ?, ?)

-- name: copy_blobs_page
select hash, size, data, at
from blobs where hash > :hash order by hash limit :limit

-- name: copy_blobs_put
insert into blobs (hash, size, data, at)
values (?, ?, ?, ?)

-- name: copy_pending_media_page
select hash, at from pending_media where hash > :hash order by hash limit :limit

-- name: copy_pending_media_put
insert into pending_media (hash, at) values (?, ?)

-- name: copy_message_blobs_page
select place, hash
from message_blobs where (place, hash) > (:place, :hash) order by place, hash limit :limit

-- name: copy_message_blobs_put
insert into message_blobs (place, hash)
values (?, ?)

-- name: copy_revisions_page
select
    session, number, ranges, made_by, made_from, start_seq, closed_seq, at, summary_seq,
    after_log, after_seq, actor
from revisions where (session, number) > (:session, :number) order by session, number limit :limit

-- name: copy_revisions_put
insert into revisions (
    session, number, ranges, made_by, made_from, start_seq, closed_seq, at, summary_seq,
    after_log, after_seq, actor
)
values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: copy_borrowings_page
select log, session
from borrowings where (log, session) > (:log, :session) order by log, session limit :limit

-- name: copy_borrowings_put
insert into borrowings (log, session)
values (?, ?)

-- name: copy_turns_page
select session, number, state, arrival, began_at, closed_at, first_seq, answer_seq
from turns where (session, number) > (:session, :number) order by session, number limit :limit

-- name: copy_turns_put
insert into turns (session, number, state, arrival, began_at, closed_at, first_seq, answer_seq)
values (?, ?, ?, ?, ?, ?, ?, ?)

-- name: copy_events_page
select session, number, at, kind, detail
from events where (session, number) > (:session, :number) order by session, number limit :limit

-- name: copy_events_put
insert into events (session, number, at, kind, detail)
values (?, ?, ?, ?, ?)

-- name: copy_usage_page
select
    id, session_id, turn, at, platform, person, model, provider, base_url, input, output,
    cache_read, cache_write, reasoning, cost, certainty, cost_source
from usage where id > :id order by id limit :limit

-- name: copy_usage_put
insert into usage_kept (
    id, session_id, turn, at, platform, person, model, provider, base_url, input, output,
    cache_read, cache_write, reasoning, cost, certainty, cost_source
) {part_overriding_numbers}
values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: copy_spending_page
select day, platform, person, tokens, cost
from spending where (day, platform, person) > (:day, :platform, :person) order by day, platform, person limit :limit

-- name: copy_spending_put
insert into spending (day, platform, person, tokens, cost)
values (?, ?, ?, ?, ?)

-- name: copy_inbox_page
select id, arrival, key, source, body, state, attempts, not_before, received_at, problem, is_next,
    gathered_into, paused_at, person
from inbox where id > :id order by id limit :limit

-- name: copy_inbox_put
insert into inbox (
    id, arrival, key, source, body, state, attempts, not_before, received_at, problem, is_next,
    gathered_into, paused_at, person
) {part_overriding_numbers}
values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: copy_outbox_page
select
    id, delivery, session_id, target, platform, account, chat_id, thread_id, body, state,
    attempts, not_before, created_at, sent_at, problem, is_next, message_id, first_sent_at, waived,
    paused_at
from outbox where id > :id order by id limit :limit

-- name: copy_outbox_put
insert into outbox (
    id, delivery, session_id, target, platform, account, chat_id, thread_id, body, state,
    attempts, not_before, created_at, sent_at, problem, is_next, message_id, first_sent_at, waived,
    paused_at
) {part_overriding_numbers}
values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: copy_listeners_page
select platform, account, cursor
from listeners where (platform, account) > (:platform, :account)
order by platform, account limit :limit

-- name: copy_listeners_put
insert into listeners (platform, account, cursor) values (?, ?, ?)

-- name: copy_flushes_page
select session, attempts from flushes where session > :session order by session limit :limit

-- name: copy_flushes_put
insert into flushes (session, attempts) values (?, ?)

-- name: copy_count
-- About how many rows there are to copy: the small tables are not counted.
select (select count(*) from messages) + (select count(*) from usage)
    + (select count(*) from turns) + (select count(*) from events)
    + (select count(*) from sessions) + (select count(*) from revisions)
    + (select count(*) from inbox) + (select count(*) from outbox)

-- name: copy_newcomers_page
select name, session, taken, digest, last_seq, is_complete, at
from newcomers where name > :name order by name limit :limit

-- name: copy_newcomers_put
insert into newcomers (name, session, taken, digest, last_seq, is_complete, at)
values (?, ?, ?, ?, ?, ?, ?)

-- name: copy_schedules_page
select
    id, owner, key, origin, task, rule, misfire, target, session, state, next_at, created_at,
    decided_at
from schedules where id > :id order by id limit :limit

-- name: copy_schedules_put
insert into schedules (
    id, owner, key, origin, task, rule, misfire, target, session, state, next_at, created_at,
    decided_at
) {part_overriding_numbers}
values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: copy_occurrences_page
select
    id, schedule, planned_at, since_at, is_manual, state, attempts, not_before, ended_at,
    session_id, delivery, result, problem, paused_at
from occurrences where id > :id order by id limit :limit

-- name: copy_occurrences_put
insert into occurrences (
    id, schedule, planned_at, since_at, is_manual, state, attempts, not_before, ended_at,
    session_id, delivery, result, problem, paused_at
) {part_overriding_numbers}
values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: copy_processes_page
select
    id, key, session_id, origin, node, folder, command, cwd, environment, is_pty, state,
    keeper_pid, keeper_mark, pid, mark, exit_code, began_at, ended_at, check_interval, told, told_at
from processes where id > :id order by id limit :limit

-- name: copy_processes_put
insert into processes (
    id, key, session_id, origin, node, folder, command, cwd, environment, is_pty, state,
    keeper_pid, keeper_mark, pid, mark, exit_code, began_at, ended_at, check_interval, told, told_at
)
values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: copy_people_events_page
select id, person, at, kind, actor, detail
from people_events where id > :id order by id limit :limit

-- name: copy_people_events_put
insert into people_events (id, person, at, kind, actor, detail) {part_overriding_numbers}
values (?, ?, ?, ?, ?, ?)

-- name: copy_memories_page
select id, owner, agent, text, author, state, session_id, created_at, shown_from
from memories where id > :id order by id limit :limit

-- name: copy_memories_put
insert into memories (
    id, owner, agent, text, author, state, session_id, created_at, shown_from
) {part_overriding_numbers}
values (?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: copy_memories_off_page
select owner, agent
from memories_off where (owner, agent) > (:owner, :agent) order by owner, agent limit :limit

-- name: copy_memories_off_put
insert into memories_off (owner, agent) values (?, ?)

-- name: copy_agent_choices_page
select chat, agent, chosen_by, chosen_at
from agent_choices where chat > :chat order by chat limit :limit

-- name: copy_agent_choices_put
insert into agent_choices (chat, agent, chosen_by, chosen_at) values (?, ?, ?, ?)

-- name: copy_session_agents_page
select session, model, prompt
from session_agents where session > :session order by session limit :limit

-- name: copy_session_agents_put
insert into session_agents (session, model, prompt) values (?, ?, ?)

-- name: copy_prompt_texts_page
select hash, text from prompt_texts where hash > :hash order by hash limit :limit

-- name: copy_prompt_texts_put
insert into prompt_texts (hash, text) values (?, ?)

-- name: copy_deleted_messages_page
select hash, at from deleted_messages where hash > :hash order by hash limit :limit

-- name: copy_deleted_messages_put
insert into deleted_messages (hash, at) values (?, ?)

-- name: copy_approvals_page
select
    code, batch, session, turn, session_id, key, call_id, tool, arguments, digest, requester, origin,
    message_id, target, asked_in, is_once_only, state, scope, reason, answered_by, asked_at,
    expires_at, answered_at
from approvals where code > :code order by code limit :limit

-- name: copy_approvals_put
insert into approvals (
    code, batch, session, turn, session_id, key, call_id, tool, arguments, digest, requester, origin,
    message_id, target, asked_in, is_once_only, state, scope, reason, answered_by, asked_at,
    expires_at, answered_at
)
values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: copy_approval_grants_page
select id, person, session_id, tool, command, granted_at, granted_by
from approval_grants where id > :id order by id limit :limit

-- name: copy_approval_grants_put
insert into approval_grants (
    id, person, session_id, tool, command, granted_at, granted_by
) {part_overriding_numbers}
values (?, ?, ?, ?, ?, ?, ?)

-- name: copy_person_ids_page
select platform, account, user_id, known_id, at from person_ids
where (platform, account, user_id) > (:platform, :account, :user_id)
order by platform, account, user_id limit :limit

-- name: copy_person_ids_put
insert into person_ids (platform, account, user_id, known_id, at) values (?, ?, ?, ?, ?)

-- name: copy_mcp_pins_page
select server, accepted, seen, accepted_at, seen_at
from mcp_pins where server > :server order by server limit :limit

-- name: copy_mcp_pins_put
insert into mcp_pins (server, accepted, seen, accepted_at, seen_at) values (?, ?, ?, ?, ?)

-- name: copy_chat_chains_page
select digest, session, seq, at from chat_chains
where (digest, session, seq) > (:digest, :session, :seq) order by digest, session, seq limit :limit

-- name: copy_chat_chains_put
insert into chat_chains (digest, session, seq, at) values (?, ?, ?, ?)

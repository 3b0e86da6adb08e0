-- Statements that `tertulia store move` needs besides tables.sql: delete a row that has changed.

-- name: move_installation_drop
delete from installation where name = :name

-- name: move_people_drop
delete from people where person = :person

-- name: move_links_drop
delete from links where key = :key

-- name: move_codes_drop
delete from codes where hash = :hash

-- name: move_wrong_codes_drop
delete from wrong_codes where place = :place and at = :at

-- name: move_sessions_drop
delete from sessions where ref = :ref

-- name: move_messages_drop
delete from messages where place = :place

-- name: move_blobs_drop
delete from blobs where hash = :hash

-- name: move_pending_media_drop
delete from pending_media where hash = :hash

-- name: move_message_blobs_drop
delete from message_blobs where place = :place and hash = :hash

-- name: move_revisions_drop
delete from revisions where session = :session and number = :number

-- name: move_borrowings_drop
delete from borrowings where log = :log and session = :session

-- name: move_turns_drop
delete from turns where session = :session and number = :number

-- name: move_events_drop
delete from events where session = :session and number = :number

-- name: move_usage_drop
delete from usage_kept where id = :id

-- name: move_spending_drop
delete from spending where day = :day and platform = :platform and person = :person

-- name: move_inbox_drop
delete from inbox where id = :id

-- name: move_outbox_drop
delete from outbox where id = :id

-- name: move_listeners_drop
delete from listeners where platform = :platform and account = :account

-- name: move_newcomers_drop
delete from newcomers where name = :name

-- name: move_processes_drop
delete from processes where id = :id

-- name: move_approvals_drop
delete from approvals where code = :code

-- name: move_approval_grants_drop
delete from approval_grants where id = :id

-- name: move_person_ids_drop
delete from person_ids where platform = :platform and account = :account and user_id = :user_id

-- name: move_mcp_pins_drop
delete from mcp_pins where server = :server

-- name: move_flushes_drop
delete from flushes where session = :session

-- name: move_schedules_drop
delete from schedules where id = :id

-- name: move_occurrences_drop
delete from occurrences where id = :id

-- name: move_rename_sessions
-- A process that still has the old store open finds no table to write to, so no write is lost there.
alter table sessions rename to sessions_moved

-- name: move_people_events_drop
delete from people_events where id = :id

-- name: move_memories_drop
delete from memories where id = :id

-- name: move_memories_off_drop
delete from memories_off where owner = :owner and agent = :agent

-- name: move_deleted_messages_drop
delete from deleted_messages where hash = :hash

-- name: move_chat_chains_drop
delete from chat_chains where digest = :digest and session = :session and seq = :seq

-- name: move_agent_choices_drop
delete from agent_choices where chat = :chat

-- name: move_session_agents_drop
delete from session_agents where session = :session

-- name: move_prompt_texts_drop
delete from prompt_texts where hash = :hash

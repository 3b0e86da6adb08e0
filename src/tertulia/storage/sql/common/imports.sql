-- name: import_get
select sessions.id, sessions.ref, newcomers.taken, newcomers.digest, newcomers.is_complete,
    case when sessions.last_seq = newcomers.last_seq then 0 else 1 end
from newcomers join sessions on sessions.ref = newcomers.session
where newcomers.name = :name

-- name: import_of_session
-- 1 if the session got messages after its import.
select case when sessions.last_seq = newcomers.last_seq then 0 else 1 end
from newcomers join sessions on sessions.ref = newcomers.session
where newcomers.session = :session

-- name: import_insert
insert into newcomers (name, session, taken, digest, last_seq, is_complete, at)
values (:name, :session, 0, '', 0, 0, :now)

-- name: import_set_progress
update newcomers set
    taken = :taken,
    digest = :digest,
    is_complete = :is_complete,
    last_seq = (select last_seq from sessions where sessions.ref = newcomers.session)
where name = :name

-- name: imports_delete
delete from newcomers where session = :session

-- name: imported_session_insert
-- The session counts as ended until all of it is imported: nobody may resume half a conversation.
insert into sessions (
    id, key, agent, platform, chat_type, person, owner, origin, display_name,
    created_at, updated_at, ended_at, end_reason
) values (
    :id, :key, :agent, :platform, :chat_type, :person, :owner, :origin, :display_name,
    :created_at, :created_at, :created_at, 'arriving'
) returning ref

-- name: imported_session_finish
update sessions set
    title = :title,
    created_at = :created_at,
    updated_at = :updated_at,
    ended_at = :ended_at,
    end_reason = :end_reason,
    parent_id = :parent_id,
    parent_kind = :parent_kind,
    last_prompt = :last_prompt,
    model = coalesce(:model, model),
    provider = coalesce(:provider, provider),
    metadata = :metadata,
    version = version + 1
where ref = :ref

-- name: imported_session_set_updated
update sessions set updated_at = :updated_at, version = version + 1
where ref = :ref and updated_at < :updated_at

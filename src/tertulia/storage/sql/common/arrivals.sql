-- name: arrival_get
select sessions.id, sessions.ref, arrivals.taken, arrivals.digest, arrivals.is_complete,
    case when sessions.last_seq = arrivals.last_seq then 0 else 1 end
from arrivals join sessions on sessions.ref = arrivals.session
where arrivals.name = :name

-- name: arrival_of
-- Whether something was said in it since it came.
select case when sessions.last_seq = arrivals.last_seq then 0 else 1 end
from arrivals join sessions on sessions.ref = arrivals.session
where arrivals.session = :session

-- name: arrival_insert
insert into arrivals (name, session, taken, digest, last_seq, is_complete, at)
values (:name, :session, 0, '', 0, 0, :now)

-- name: arrival_advance
update arrivals set
    taken = :taken,
    digest = :digest,
    is_complete = :is_complete,
    last_seq = (select last_seq from sessions where sessions.ref = arrivals.session)
where name = :name

-- name: arrivals_delete
delete from arrivals where session = :session

-- name: arriving_insert
-- It has ended until all of it is here: nobody is led into half a conversation.
insert into sessions (
    id, key, agent, platform, chat_type, person, owner, origin, display_name,
    created_at, updated_at, ended_at, end_reason
) values (
    :id, :key, :agent, :platform, :chat_type, :person, :owner, :origin, :display_name,
    :created_at, :created_at, :created_at, 'arriving'
) returning ref

-- name: arriving_settle
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

-- name: arrived_later
update sessions set updated_at = :updated_at, version = version + 1
where ref = :ref and updated_at < :updated_at

-- name: session_append
update sessions set
    last_seq = last_seq + :count,
    turns = turns + :turns,
    updated_at = case when :is_activity and ended_at is null then :now else updated_at end,
    version = version + 1
where id = :id
returning ref, last_seq, turns, last_seq - :count > indexed_seq

-- name: part_add_usage
-- Add the usage of a model call to the totals of its session.
input = input + :input,
    output = output + :output,
    cache_read = cache_read + :cache_read,
    cache_write = cache_write + :cache_write,
    reasoning = reasoning + :reasoning,
    last_prompt = coalesce(:last_prompt, last_prompt),
    cost = case when cast(:cost as bigint) is null then cost else coalesce(cost, 0) + :cost end,
    certainty = case when certainty < :certainty then certainty else :certainty end,
    cost_source = coalesce(:cost_source, cost_source),
    model = coalesce(:model, model),
    provider = coalesce(:provider, provider)

-- name: session_append_with_usage
update sessions set
    last_seq = last_seq + :count,
    turns = turns + :turns,
    updated_at = case when :is_activity and ended_at is null then :now else updated_at end,
    version = version + 1,
    {part_add_usage}
where id = :id
returning ref, last_seq, turns, last_seq - :count > indexed_seq, platform, person

-- name: session_add_messages
update sessions set last_seq = last_seq + :count where ref = :ref
returning ref, last_seq, turns, last_seq - :count > indexed_seq

-- name: message_insert
-- Positional parameters: a turn runs this statement several times, and they bind faster.
insert into messages (place, turn, role, kind, author, at, body, away)
values (?, ?, ?, ?, ?, ?, ?, ?)

-- name: part_message
messages.place >> 32, messages.place & 4294967295, messages.turn, messages.role, messages.kind,
messages.at, messages.author, messages.body, messages.away

-- name: messages_of
select {part_message} from messages
where place between (cast(:session as bigint) << 32) + :first and (cast(:session as bigint) << 32) + :last order by place

-- name: messages_newest
-- The newest of the log of a session, whether its view shows them or not.
select {part_message} from sessions join messages
    on messages.place > (sessions.ref << 32)
        + case when sessions.last_seq > :count then sessions.last_seq - :count else 0 end
    and messages.place <= (sessions.ref << 32) + sessions.last_seq
where sessions.id = :id order by messages.place

-- name: plain_messages_of
-- The few columns of those that have nothing in the others.
select turn, role, at, body from messages
where place between (cast(:session as bigint) << 32) + :first and (cast(:session as bigint) << 32) + :last
    and kind is null and author is null and away is null
order by place

-- name: messages_at
select {part_message} from messages where {part_message_places}

-- name: bodies_of
select body, away from messages
where place between (cast(:session as bigint) << 32) + :first and (cast(:session as bigint) << 32) + :last order by place

-- name: message_turn
select turn from messages where place = (cast(:session as bigint) << 32) + :seq

-- name: messages_copy
insert into messages (place, turn, role, kind, author, at, body, away)
select (cast(:to as bigint) << 32) + (place & 4294967295), turn, role, kind, author, at, body, away
from messages
where place between (cast(:session as bigint) << 32) + :first and (cast(:session as bigint) << 32) + :last

-- name: message_blobs_copy
insert into message_blobs (place, hash)
select (cast(:to as bigint) << 32) + (place & 4294967295), hash from message_blobs
where place between (cast(:session as bigint) << 32) + :first and (cast(:session as bigint) << 32) + :last

-- name: messages_delete
delete from messages where place between (cast(:session as bigint) << 32) and (cast(:session as bigint) << 32) + 4294967295

-- name: blob_insert
insert into blobs (hash, size, data) values (:hash, :size, :data) on conflict (hash) do nothing

-- name: blob_link
insert into message_blobs (place, hash) values (:place, :hash) on conflict (place, hash) do nothing

-- name: blob_data
select data from blobs where hash = :hash

-- name: places_of_blob
select place >> 32, place & 4294967295 from message_blobs where hash = :hash order by place

-- name: blobs_delete
delete from blobs where hash in (
    select hash from message_blobs where place between (cast(:session as bigint) << 32) and (cast(:session as bigint) << 32) + 4294967295
) and not exists (
    select 1 from message_blobs other
    where other.hash = blobs.hash
    and other.place not between (cast(:session as bigint) << 32) and (cast(:session as bigint) << 32) + 4294967295
)

-- name: message_blobs_delete
delete from message_blobs where place between (cast(:session as bigint) << 32) and (cast(:session as bigint) << 32) + 4294967295

-- name: messages_turn_numbers
select place & 4294967295, turn from messages
where place between (cast(:session as bigint) << 32) + :first and (cast(:session as bigint) << 32) + :last
order by place desc limit :limit

-- name: message_of_user
select {part_message} from messages
where place between (cast(:session as bigint) << 32) + :first and (cast(:session as bigint) << 32) + :last
    and role = 'user' and (kind is null or kind not in ('command', 'internal'))
order by place desc limit 1

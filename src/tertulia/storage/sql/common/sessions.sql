-- name: part_session
sessions.ref, sessions.id, sessions.key, sessions.agent, sessions.platform, sessions.chat_type,
sessions.person, sessions.owner, sessions.origin, sessions.display_name, sessions.title,
sessions.created_at, sessions.updated_at, sessions.ended_at, sessions.end_reason,
sessions.parent_id, sessions.parent_kind, sessions.input, sessions.output, sessions.cache_read,
sessions.cache_write, sessions.reasoning, sessions.last_prompt, sessions.cost,
sessions.certainty, sessions.cost_source, sessions.model, sessions.provider, sessions.metadata,
sessions.version, sessions.last_seq, sessions.turns, sessions.revision, sessions.epoch,
sessions.lease_until, sessions.lease_length, sessions.open_turn

-- name: part_filters
    and (cast(:platform as text) is null or sessions.platform = :platform)
    and (cast(:key as text) is null or sessions.key = :key)
    and (cast(:person as text) is null or sessions.person = :person)
    and (cast(:active_since as bigint) is null or sessions.updated_at >= :active_since)
    and (sessions.updated_at, sessions.ref) < (:before_at, :before_ref)

-- name: session_current
select {part_session}, (select zone from people where people.person = sessions.person)
from sessions where key = :key and ended_at is null /* row lock */

-- name: session_is_current
-- Without a row lock: it is asked before the lane of that conversation is locked.
select 1 from sessions where key = :key and ended_at is null

-- name: session_by_id
select {part_session} from sessions where id = :id /* row lock */

-- name: sessions_of_ids
select {part_session} from sessions where {part_session_ids} order by id

-- name: session_by_ref
select {part_session} from sessions where ref = :ref /* row lock */

-- name: session_latest_ended
select {part_session} from sessions where key = :key and ended_at is not null
order by ended_at desc, ref desc limit 1

-- name: session_insert
insert into sessions (
    id, key, agent, platform, chat_type, person, owner, origin, display_name,
    created_at, updated_at, parent_id, parent_kind, last_seq, turns
) values (
    :id, :key, :agent, :platform, :chat_type, :person, :owner, :origin, :display_name,
    :now, :now, :parent_id, :parent_kind, :last_seq, :turns
) returning {part_session}

-- name: session_touch
update sessions set updated_at = :now, version = version + 1 where ref = :ref

-- name: session_end
update sessions set ended_at = :now, end_reason = :reason, version = version + 1
where ref = :ref and ended_at is null

-- name: session_resume
update sessions set ended_at = null, end_reason = null, updated_at = :now, version = version + 1
where ref = :ref

-- name: session_rename
update sessions set title = :title, is_card_indexed = 0, version = version + 1 where ref = :ref

-- name: session_title_exists
select 1 from sessions where owner = :owner and title = :title and ref <> :ref

-- name: session_set_metadata
update sessions set metadata = :metadata, version = version + 1
where ref = :ref and (cast(:version as bigint) is null or version = :version)

-- name: session_clear_parent
update sessions set parent_id = null where parent_id = :id

-- name: session_delete
delete from sessions where ref = :ref

-- name: sessions_count
select count(*) from sessions

-- name: sessions_exist
select 1 from sessions limit 1

-- name: part_newest
order by updated_at desc, ref desc limit :limit

-- name: sessions_current_page_by_key
select {part_session} from sessions where key = :key and ended_at is null {part_filters}
{part_newest}

-- name: sessions_current_page_by_person
select {part_session} from sessions where person = :person and ended_at is null {part_filters}
{part_newest}

-- name: sessions_current_page_by_platform
select {part_session} from sessions where platform = :platform and ended_at is null
    {part_by_activity} {part_filters}
{part_newest}

-- name: sessions_ended_page_by_key
select {part_session} from sessions where key = :key and ended_at is not null {part_filters}
{part_newest}

-- name: sessions_ended_page_by_person
select {part_session} from sessions where person = :person and ended_at is not null {part_filters}
{part_newest}

-- name: sessions_ended_page_by_platform
select {part_session} from sessions where platform = :platform and ended_at is not null {part_filters}
{part_newest}

-- name: part_platforms_current
-- One index lookup for each platform.
with recursive known (name) as (
    select min(platform) from sessions where ended_at is null {part_by_activity}
    union all
    select (
        select min(platform) from sessions where ended_at is null {part_by_activity}
            and platform > known.name
    ) from known where known.name is not null
)

-- name: platforms_current
{part_platforms_current}
select name from known where name is not null

-- name: part_platforms_ended
-- One index lookup for each platform.
with recursive known (name) as (
    select min(platform) from sessions where ended_at is not null
    union all
    select (
        select min(platform) from sessions where ended_at is not null and platform > known.name
    ) from known where known.name is not null
)

-- name: sessions_inactive
select {part_session}, (select zone from people where people.person = sessions.person)
from sessions
where platform = :platform and ended_at is null {part_by_activity}
    and updated_at < :quiet_since
    and (updated_at, ref) > (:after_at, :after_ref)
order by updated_at, ref limit :limit

-- name: sessions_ended_before
select id from sessions where ended_at < :before order by ended_at limit :limit

-- name: sessions_after
select {part_session} from sessions where parent_id = :id order by ref desc limit :limit

-- name: event_insert
insert into events (session, number, at, kind, detail)
values (
    :session,
    (select coalesce(max(number), 0) + 1 from events where session = :session),
    :now, :kind, :detail
)

-- name: events_of
select at, kind, detail from events where session = :session order by number

-- name: events_page
select number, at, kind, detail from events where session = :session and number < :before
order by number desc limit :limit

-- name: notice_due
-- The session ended, and no notice was given since then.
select 1 from events where session = :session and kind = 'ended' and number > coalesce(
    (select max(number) from events where session = :session and kind = 'noticed'), 0
) limit 1

-- name: events_delete
delete from events where session = :session

-- name: installation_get
select value from installation where name = :name

-- name: installation_set
insert into installation (name, value) values (:name, :value)
on conflict (name) do update set value = excluded.value

-- name: sessions_in_order
-- In the order of creation, which no later write changes: for reading all sessions.
select {part_session} from sessions
where ref > :after
    and (cast(:platform as text) is null or platform = :platform)
    and (cast(:key as text) is null or key = :key)
    and (cast(:person as text) is null or person = :person)
    and (cast(:since as bigint) is null or updated_at >= :since)
    and (cast(:state as text) = 'all' or case when ended_at is null then 'current' else 'ended' end = :state)
order by ref limit :limit

-- name: installation_delete
delete from installation where name = :name

-- name: installation_moves
select (select value from installation where name = 'moved_to'),
    (select value from installation where name = 'moving')

-- name: session_set_times
update sessions set created_at = :created_at, updated_at = :updated_at, version = version + 1
where ref = :ref

-- name: session_set_last_prompt
update sessions set last_prompt = :last_prompt, version = version + 1 where id = :id

-- name: installation_set_once
insert into installation (name, value) values (:name, :value) on conflict (name) do nothing

-- name: session_set_id
update sessions set id = :id where ref = :ref

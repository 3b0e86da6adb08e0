-- name: person_insert
insert into people (person, platform, account, user_id, user_id_alt, name, created_at)
values (:person, :platform, :account, :user_id, :user_id_alt, :name, :now)
on conflict (person) do nothing

-- name: part_person
-- With the last activity in one of their newest conversations; none for who only writes in groups.
person, platform, account, user_id, user_id_alt, name, zone, role, created_at,
(select max(newest.updated_at) from (
    select sessions.updated_at from sessions where sessions.person = people.person
    order by sessions.ref desc limit 20
) newest)

-- name: person_get
select {part_person} from people where person = :person

-- name: person_role
select role from people where person = :person

-- name: person_zone
select zone from people where person = :person

-- name: part_person_zone
(select people.zone from people where people.person = sessions.person)

-- name: people_page
select {part_person}
from people where person > :after and (cast(:role as text) is null or role = :role)
order by person limit :limit

-- name: people_of_ids
select {part_person} from people where {part_person_ids} order by person

-- name: person_set_zone
update people set zone = :zone where person = :person

-- name: person_set_role
update people set role = :role where person = :person

-- name: people_event_insert
insert into people_events (person, at, kind, actor, detail)
values (:person, :now, :kind, :actor, :detail)

-- name: people_events_page
select id, person, at, kind, actor, detail from people_events
where id < :before order by id desc limit :limit

-- name: people_events_of_person
select id, person, at, kind, actor, detail from people_events
where person = :person and id < :before order by person desc, id desc limit :limit

-- name: people_by_user_id
select person, platform from people where user_id = :user_id or user_id_alt = :user_id

-- name: code_insert
insert into codes (hash, purpose, platform, account, subject, made_at, until, source)
values (:hash, :purpose, :platform, :account, :subject, :now, :until, :source)

-- name: codes_expire
-- One that was made later than now was made before the clock was set back; its end is unknown.
delete from codes
where until <= :now or (made_at > :now + {part_clock_tolerance} and purpose <> 'refused')

-- name: part_clock_tolerance
-- A minute, in microseconds: the clocks of two nodes differ.
60000000

-- name: codes_replace_oldest
-- Replaced codes stay until they expire, so that their makers cannot ask again at once.
update codes set purpose = 'replaced' where hash in (
    select hash from codes
    where purpose = 'pair' and platform = :platform and account = :account
    order by made_at desc, hash limit 1000 offset :kept
)

-- name: codes_refuse
update codes set purpose = 'refused', until = :until
where subject = :subject and purpose in ('pair', 'replaced')

-- name: code_is_refused
select 1 from codes where subject = :subject and purpose = 'refused'

-- name: code_of_subject
select max(made_at) from codes where subject = :subject and purpose in (:purpose, 'replaced')

-- name: code_get
select hash, subject, source, claimed_key from codes where hash = :hash and purpose = :purpose

-- name: code_set_claimed
update codes set claimed_by = :source, claimed_key = :key, until = :until where hash = :hash

-- name: code_claimed_of_subject
select hash, claimed_key, claimed_by, subject, source from codes
where subject = :key and purpose = 'link' and claimed_key is not null and until > :now

-- name: codes_claimed_by
select subject, source from codes
where claimed_key = :key and purpose = 'link' and until > :now order by subject

-- name: code_delete
delete from codes where hash = :hash

-- name: codes_delete_of_subject
delete from codes where subject = :subject and purpose = :purpose

-- name: codes_delete_claimed
delete from codes where claimed_key = :key and purpose = 'link'

-- name: codes_list
select codes.subject, codes.platform, codes.made_at, codes.until, people.name
from codes left join people on people.person = codes.subject
where codes.purpose = :purpose order by codes.made_at

-- name: code_is_pending
select 1 from codes where subject = :subject and purpose = 'pair' and until > :now

-- name: wrong_code_insert
insert into wrong_codes (place, at) values (:place, :now) on conflict (place, at) do nothing

-- name: wrong_codes_count
-- Within an hour of `since`: a clock that was set back locks nobody out for longer.
select count(*) from wrong_codes
where place = :place and at > :since and at <= :since + 3600000000 + {part_clock_tolerance}

-- name: wrong_codes_expire
delete from wrong_codes where at <= :since

-- name: link_insert
insert into links (key, shared_key, made_at, source, shared_source, shared_person)
values (:key, :shared_key, :now, :source, :shared_source, :shared_person)
on conflict (key) do update set shared_key = excluded.shared_key, made_at = excluded.made_at,
    source = excluded.source, shared_source = excluded.shared_source,
    shared_person = excluded.shared_person

-- name: link_of
select shared_key, shared_source, shared_person from links where key = :key

-- name: person_role_and_links
-- The role of a person, once for each row of `links_with`, or once without any. One statement, because
-- every turn of a gateway asks for both.
select (select role from people where person = :person),
    links.key, links.shared_key, links.source, links.shared_source, links.shared_person
from (select 1) as always left join links
    on links.shared_key = coalesce((select own.shared_key from links as own where own.key = :key), :key)
order by links.key

-- name: links_with
-- The links of the conversation that a key has joined, or that others have joined; its own too.
select key, shared_key, source, shared_source, shared_person from links
where shared_key = coalesce((select own.shared_key from links as own where own.key = :key), :key)
order by key

-- name: links_of
select key, source, shared_source, shared_person from links where shared_key = :shared_key order by key

-- name: link_delete
delete from links where key = :key

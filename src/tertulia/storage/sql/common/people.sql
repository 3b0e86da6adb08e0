-- name: person_insert
insert into people (person, platform, account, user_id, user_id_alt, name, created_at)
values (:person, :platform, :account, :user_id, :user_id_alt, :name, :now)
on conflict (person) do nothing

-- name: person_get
select person, platform, account, user_id, user_id_alt, name, zone, role, created_at
from people where person = :person

-- name: person_zone
select zone from people where person = :person

-- name: people_page
select person, platform, account, user_id, user_id_alt, name, zone, role, created_at
from people where person > :after and (cast(:role as text) is null or role = :role)
order by person limit :limit

-- name: person_set_zone
update people set zone = :zone where person = :person

-- name: person_set_role
update people set role = :role where person = :person

-- name: people_by_user_id
select person, platform from people where user_id = :user_id or user_id_alt = :user_id

-- name: code_insert
insert into codes (hash, purpose, platform, account, subject, made_at, until)
values (:hash, :purpose, :platform, :account, :subject, :now, :until)

-- name: codes_expire
delete from codes where until <= :now

-- name: codes_pending
select count(*) from codes where purpose = :purpose and platform = :platform and account = :account

-- name: code_of_subject
select made_at from codes where subject = :subject and purpose = :purpose

-- name: code_claim
delete from codes where hash = :hash and purpose = :purpose returning subject, platform, account

-- name: codes_list
select subject, platform, account, made_at, until from codes where purpose = :purpose order by made_at

-- name: wrong_code_insert
insert into wrong_codes (place, at) values (:place, :now) on conflict (place, at) do nothing

-- name: wrong_codes_count
select count(*) from wrong_codes where place = :place and at > :since

-- name: wrong_codes_delete
delete from wrong_codes where place = :place or at <= :since

-- name: link_insert
insert into links (key, shared_key, made_at) values (:key, :shared_key, :now)
on conflict (key) do update set shared_key = excluded.shared_key, made_at = excluded.made_at

-- name: link_of
select shared_key from links where key = :key

-- name: links_of
select key from links where shared_key = :shared_key order by key

-- name: link_delete
delete from links where key = :key

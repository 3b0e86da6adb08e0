-- The id by which each person is known: see records/person_ids.py.

-- name: person_id_get
select known_id from person_ids
where platform = :platform and account = :account and user_id = :user_id

-- name: person_id_insert
insert into person_ids (platform, account, user_id, known_id, at)
values (:platform, :account, :user_id, :known_id, :now)
on conflict (platform, account, user_id) do nothing

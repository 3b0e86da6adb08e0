-- name: session_set_times
update sessions set created_at = :created_at, updated_at = :updated_at, version = version + 1
where ref = :ref

-- name: session_set_last_prompt
update sessions set last_prompt = :last_prompt, version = version + 1 where id = :id

-- name: installation_note
insert into installation (name, value) values (:name, :value) on conflict (name) do nothing

-- name: session_set_id
update sessions set id = :id where ref = :ref

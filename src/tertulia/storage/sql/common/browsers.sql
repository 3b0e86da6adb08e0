-- Browsers that are signed in, and the wrong codes of those that are not.

-- name: browser_insert
insert into browsers (hash, name, agent, made_at, seen_at)
values (:hash, :name, :agent, :now, :now)
returning id

-- name: browser_get
select id, name, agent, made_at, seen_at from browsers
where hash = :hash and made_at > :made_after and seen_at > :seen_after

-- name: browser_touch
update browsers set seen_at = :now where id = :id and seen_at < :now

-- name: browsers_page
select id, name, agent, made_at, seen_at from browsers
where id < :before and made_at > :made_after and seen_at > :seen_after
order by id desc limit :limit

-- name: browsers_page_of
select id, name, agent, made_at, seen_at from browsers
where name = :name and id < :before and made_at > :made_after and seen_at > :seen_after
order by id desc limit :limit

-- name: browser_delete
delete from browsers where id = :id

-- name: browser_delete_of
delete from browsers where id = :id and name = :name

-- name: browsers_delete_all
delete from browsers where id <> :except

-- name: browsers_delete_of
delete from browsers where name = :name and id <> :except

-- name: browsers_expire
delete from browsers where id in (
    select id from browsers where seen_at <= :seen_after order by seen_at limit :limit
)

-- name: browsers_forget_wrong_codes
delete from wrong_codes where place >= 'browser ' and place < 'browser!'

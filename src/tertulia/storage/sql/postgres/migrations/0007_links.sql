-- A link names both chats, and whose the conversation is that they share. A code names the chat it
-- was made in, and the chat it was typed in, which the first one confirms.

alter table links add column source text;           -- the chat that joined
alter table links add column shared_source text;    -- the chat whose conversation it joined
alter table links add column shared_person text;    -- whose conversation that is

alter table codes add column source text;
alter table codes add column claimed_by text;       -- the chat it was typed in
alter table codes add column claimed_key text;

-- A session that was begun through a link was stored as the session of the person who wrote first,
-- under the key of another. Nothing tells now whose it is, so it is seen only by its key.
update sessions set person = null where chat_type = 'dm' and key in (
    select key from sessions where chat_type = 'dm' group by key having count(distinct person) > 1
);

-- The role of a token was stored when it was used, and stayed when the token was gone. Now it comes
-- from the configuration; what is stored on web is only what an owner approved.
update people set role = 'guest' where platform in ('api', 'web');

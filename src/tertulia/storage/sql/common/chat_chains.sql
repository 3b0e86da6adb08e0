-- Conversations of clients that name none; see 0022_chat_chains.

-- name: chat_chain_put
insert into chat_chains (digest, session, seq, at)
select :digest, ref, :seq, :at from sessions where id = :id
on conflict (digest, session, seq) do nothing

-- name: chat_chain_find
-- Where the conversation can go on comes first, then the newest.
select sessions.id, sessions.key, sessions.origin, chat_chains.seq,
    case when sessions.ended_at is null and sessions.last_seq = chat_chains.seq then 1 else 0 end as is_end
from chat_chains join sessions on sessions.ref = chat_chains.session
where chat_chains.digest = :digest
order by is_end desc, chat_chains.at desc, chat_chains.session desc
limit 20

-- name: chat_chains_delete
delete from chat_chains where session = :session

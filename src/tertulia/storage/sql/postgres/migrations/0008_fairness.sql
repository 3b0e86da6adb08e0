-- Fairness: whose messages wait, and what a page has missed.

-- Who wrote it; the chat if nobody is named. Empty for messages from before this column existed.
alter table inbox add column person text not null default '';

create index inbox_waiting on inbox (person) where state = 'waiting';

-- The deliveries of a chat, in order. Not by its columns: statements that look for the head of a
-- chat would read this index instead of theirs.
create index outbox_chat on outbox (
    md5(platform || '/' || account || '/' || coalesce(chat_id, '')), id
);

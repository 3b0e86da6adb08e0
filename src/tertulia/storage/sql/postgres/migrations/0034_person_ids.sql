-- The id by which each person of an account is known, if the platform has several ids for one person
-- and may leave one of them out later. The first that was seen stays, on every machine of the store.

create table person_ids (
    platform text collate "C" not null,
    account text collate "C" not null,
    user_id text collate "C" not null,             -- the id that the platform always tells
    known_id text not null,              -- the one of the conversation: this, or a phone number
    at bigint not null,
    primary key (platform, account, user_id)
);

create index person_ids_at on person_ids (at);

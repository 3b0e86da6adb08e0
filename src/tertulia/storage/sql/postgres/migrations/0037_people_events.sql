-- Who decided what about people, and which node answers a message: for looking only.

-- Roles that were set, and strangers that were let in or refused.
create table people_events (
    id bigint generated always as identity primary key,
    person text not null,
    at bigint not null,
    kind text not null,         -- role, approved, refused
    actor text,                 -- who did it; null for the program itself
    detail text not null
);

create index people_events_person on people_events (person, id);

-- The node that has claimed the message, or had claimed it last.
alter table inbox add column worker text;

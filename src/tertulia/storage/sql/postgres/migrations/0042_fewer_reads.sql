-- Both columns are in `place`, and nothing reads them. The server read their expressions again for each
-- message that was stored: a twentieth of its time for a turn.
alter table messages drop column session, drop column seq;

-- The newest running total of each group, side by side: a sum without limits read a page of usage_running
-- for each person.
create table usage_newest (
    group_id bigint primary key references usage_groups,
    quarter bigint not null,
    calls bigint not null,
    input bigint not null,
    output bigint not null,
    cache_read bigint not null,
    cache_write bigint not null,
    reasoning bigint not null,
    cost bigint not null,
    priced bigint not null,
    unknown bigint not null,
    estimated bigint not null,
    actual bigint not null
);

insert into usage_newest
select * from usage_running where quarter = (
    select max(quarter) from usage_running newest where newest.group_id = usage_running.group_id
);

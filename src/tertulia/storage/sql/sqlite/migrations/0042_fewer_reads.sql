-- Both columns are in `place`, and nothing reads them. They were virtual, so no row is written again.
alter table messages drop column session;
alter table messages drop column seq;

-- The newest running total of each group, side by side: a sum without limits read a page of usage_running
-- for each person.
create table usage_newest (
    group_id integer primary key references usage_groups,
    quarter integer not null,
    calls integer not null,
    input integer not null,
    output integer not null,
    cache_read integer not null,
    cache_write integer not null,
    reasoning integer not null,
    cost integer not null,
    priced integer not null,
    unknown integer not null,
    estimated integer not null,
    actual integer not null
) strict;

insert into usage_newest
select * from usage_running where quarter = (
    select max(quarter) from usage_running newest where newest.group_id = usage_running.group_id
);

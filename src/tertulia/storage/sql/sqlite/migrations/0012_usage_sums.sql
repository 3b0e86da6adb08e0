-- Sums of the ledger, kept in the transaction of each call: so that no sum reads the ledger whole.

create table usage_sums (
    quarter integer not null,        -- of an hour, since 1970
    platform text not null,
    person text not null,     -- '' where nobody is named
    model text not null,      -- its first 200 characters; '' if it is unknown
    calls integer not null,
    input integer not null,
    output integer not null,
    cache_read integer not null,
    cache_write integer not null,
    reasoning integer not null,
    cost integer,                   -- of the calls with a price; null if none has one
    certainty integer not null,
    primary key (quarter, platform, person, model)
) strict, without rowid;

insert into usage_sums (
    quarter, platform, person, model, calls, input, output, cache_read, cache_write, reasoning, cost,
    certainty
)
select at / 900000000, platform, coalesce(person, ''), coalesce(substr(model, 1, 200), ''), count(*),
    sum(input), sum(output), sum(cache_read), sum(cache_write), sum(reasoning), sum(cost),
    min(certainty)
from usage group by 1, 2, 3, 4;

create index usage_at on usage (at);

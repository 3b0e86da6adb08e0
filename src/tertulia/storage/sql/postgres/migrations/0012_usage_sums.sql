-- Sums of the ledger, kept in the transaction of each call: so that no sum reads the ledger whole.

create table usage_sums (
    quarter bigint not null,        -- of an hour, since 1970
    platform text collate "C" not null,
    person text collate "C" not null,     -- '' where nobody is named
    model text collate "C" not null,      -- its first 200 characters; '' if it is unknown
    calls bigint not null,
    input bigint not null,
    output bigint not null,
    cache_read bigint not null,
    cache_write bigint not null,
    reasoning bigint not null,
    cost bigint,                   -- of the calls with a price; null if none has one
    certainty bigint not null,
    primary key (quarter, platform, person, model)
);

insert into usage_sums (
    quarter, platform, person, model, calls, input, output, cache_read, cache_write, reasoning, cost,
    certainty
)
select at / 900000000, platform, coalesce(person, ''), coalesce(substr(model, 1, 200), ''), count(*),
    sum(input), sum(output), sum(cache_read), sum(cache_write), sum(reasoning), sum(cost),
    min(certainty)
from usage group by 1, 2, 3, 4;

create index usage_at on usage (at);

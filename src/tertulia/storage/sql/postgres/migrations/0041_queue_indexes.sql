-- A statement that writes a row prepares and evaluates the conditions of all partial indexes of its
-- table, whether the row belongs into them or not. Nothing is read by the first three any more; the
-- next four become two.

drop index inbox_due;
drop index outbox_paused_for;
drop index outbox_paused_for_account;

drop index outbox_dead_platform;
drop index outbox_dead_problem;
drop index outbox_unknown_platform;
drop index outbox_unknown_problem;
create index outbox_failed on outbox (state, platform, id) where state in ('dead', 'unknown');
create index outbox_failed_problem on outbox (
    state, platform, coalesce(substr(problem, 1, 200), ''), id
) where state in ('dead', 'unknown');

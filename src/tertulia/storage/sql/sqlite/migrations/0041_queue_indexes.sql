-- Nothing is read by these any more.
drop index inbox_due;
drop index outbox_paused_for;
drop index outbox_paused_for_account;

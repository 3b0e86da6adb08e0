-- A number that whoever enters a turn draws. A caller whose connection broke before the answer of the
-- server came recognises its own turn by it.
alter table turns add column token integer;

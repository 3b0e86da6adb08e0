-- What the console shows: who made a revision, queues newest first and by problem.

alter table revisions add column actor text;    -- who made it; null for the program itself

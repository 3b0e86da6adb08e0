-- Choices of agents and models, and prompts of sessions; see 0030_agents.

-- name: agent_choice_get
select agent from agent_choices where chat = :chat

-- name: agent_choice_put
insert into agent_choices (chat, agent, chosen_by, chosen_at)
values (:chat, :agent, :chosen_by, :now)
on conflict (chat) do update
set agent = excluded.agent, chosen_by = excluded.chosen_by, chosen_at = excluded.chosen_at

-- name: session_agent_get
select session_agents.model, prompt_texts.text
from sessions
join session_agents on session_agents.session = sessions.ref
left join prompt_texts on prompt_texts.hash = session_agents.prompt
where sessions.id = :id

-- name: session_model_put
insert into session_agents (session, model) values (:session, :model)
on conflict (session) do update set model = excluded.model

-- name: session_prompt_put
-- The first text stays: a session shows one prompt from its beginning to its end.
insert into session_agents (session, prompt) values (:session, :prompt)
on conflict (session) do update set prompt = coalesce(session_agents.prompt, excluded.prompt)

-- name: session_agent_copy
insert into session_agents (session, model, prompt)
select cast(:to as bigint), model, prompt from session_agents where session = :session

-- name: prompt_text_put
insert into prompt_texts (hash, text) values (:hash, :text) on conflict (hash) do nothing

-- name: session_agents_delete
delete from session_agents where session = :session returning prompt

-- name: prompt_text_delete_unused
delete from prompt_texts
where hash = :hash and not exists (select 1 from session_agents where prompt = :hash)

-- Several agents: what was chosen with /agent and /model, and the prompt a session began with.

create table agent_choices (
    chat text primary key,               -- platform, account and chat, as `chat_key` writes them
    agent text not null,
    chosen_by text not null,
    chosen_at integer not null
) strict, without rowid;

create table session_agents (
    session integer primary key,
    model text,                          -- chosen with /model; null: the model of the agent
    prompt text                          -- the hash of the texts in prompt_files; null: none
) strict, without rowid;

create index session_agents_prompt on session_agents (prompt) where prompt is not null;

create table prompt_texts (
    hash text primary key,
    text text not null
) strict, without rowid;

"""Agent SDKs that keep their conversations in a Tertulia store. Each module needs its SDK package.

openai_agents     OpenAI Agents SDK: `TertuliaSession`
pydantic_ai       Pydantic AI: `TertuliaConversationStore`, `message_history`, `add_run`
agent_framework   Microsoft Agent Framework: `TertuliaHistoryProvider`
claude            Claude Agent SDK: `TertuliaSessionStore`
"""

"""Agent SDKs whose conversations a store keeps. Each module needs its package.

openai_agents     OpenAI Agents SDK: `TertuliaSession`
pydantic_ai       Pydantic AI: `TertuliaConversationStore`, `message_history`, `add_run`
agent_framework   Microsoft Agent Framework: `TertuliaHistoryProvider`
claude            Claude Agent SDK: `TertuliaSessionStore`
"""

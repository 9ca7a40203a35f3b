"""Agent Framework discovery: AgentMetadata."""

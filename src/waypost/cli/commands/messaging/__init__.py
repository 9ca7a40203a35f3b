"""Commands to talk to agents and give them tasks."""

"""Commands for agents: register, find, list, change, watch."""

"""The service as an A2A agent."""

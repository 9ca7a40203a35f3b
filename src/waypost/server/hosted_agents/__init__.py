"""Agents that the service hosts under their own domains, and the service as an agent."""

"""The discovery profile's Agent Metadata."""

"""DNS-AID over HTTP: resolution of domains, and the records of an agent."""

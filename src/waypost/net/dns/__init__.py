"""DNS client: messages, upstream resolvers, DNSSEC validation, zone updates."""

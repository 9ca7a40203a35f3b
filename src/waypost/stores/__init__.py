"""Where registrations live: memory, sqlite. One contract suite for all."""

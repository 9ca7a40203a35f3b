"""Work that goes on beside requests: indexing, health checks, periodic jobs."""

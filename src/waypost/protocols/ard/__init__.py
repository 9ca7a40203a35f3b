"""ARD and AI Catalog: entries, catalogs, queries."""

"""The ARD registry: search, facets and a list of catalog entries on `/ard`."""

"""Search, facets and filters over the catalog and the search index."""

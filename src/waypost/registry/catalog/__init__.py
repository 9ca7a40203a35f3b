"""The catalog: a compact entry of every agent in memory, with the indexes for lists and filters."""

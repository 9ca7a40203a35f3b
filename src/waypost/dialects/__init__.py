"""Document <-> record. One module per dialect; every dialect maps to the record and from it, never to another."""

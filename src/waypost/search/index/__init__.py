"""The index: documents, segments, near-duplicate hashes and tag bitmaps."""

"""Text analysis, indices, ranking and evidence. It knows no store and no protocol."""

"""Text analysis: tokens, languages, taxonomy, spam."""

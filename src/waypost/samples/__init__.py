"""Believable sample agents in mixed dialects, for `waypost demo` and the tutorial."""

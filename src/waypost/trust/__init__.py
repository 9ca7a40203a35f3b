"""Keys, signatures, tokens and access rules. Pure: no clock, no network, no files."""

"""Commands for keys, tokens, allow-list, audit trail and verification."""

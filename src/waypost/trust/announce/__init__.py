"""Trust in announcements: signatures, key pins, allow-list, admission."""

"""Keys, tokens, sealed cursors and policy. Pure: time and randomness are arguments."""

"""AGP: signed messages, the hello handshake and the session."""

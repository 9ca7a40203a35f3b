"""The domain: frozen values and pure rules. It knows no socket, clock, store or protocol."""

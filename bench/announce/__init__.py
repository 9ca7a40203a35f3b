"""How announcing performs: on a LAN, over WebSockets, over a bus, and under a flood."""

"""Performance of the announce protocol: on a LAN, over WebSockets, over a bus, and under a flood."""

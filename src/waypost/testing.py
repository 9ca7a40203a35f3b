"""For tests of your own: a network in memory for announcements, and a clock that stands still until it is advanced.

clock = ManualClock()
network = MemoryNetwork(clock, seed=7, loss=0.1)
alice, bob = network.transport("alice"), network.transport("bob")
"""

from __future__ import annotations

from waypost.net.clock import ManualClock
from waypost.transports.memory import MemoryNetwork, MemoryTransport

__all__ = ["ManualClock", "MemoryNetwork", "MemoryTransport"]

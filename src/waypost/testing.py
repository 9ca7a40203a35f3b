"""What a test of your own may need: a network in memory that agents announce themselves on, and a clock that you move.

clock = ManualClock()
network = MemoryNetwork(clock, seed=7, loss=0.1)
alice, bob = network.transport("alice"), network.transport("bob")
"""

from __future__ import annotations

from waypost.net.clock import ManualClock
from waypost.transports.memory import MemoryNetwork, MemoryTransport

__all__ = ["ManualClock", "MemoryNetwork", "MemoryTransport"]

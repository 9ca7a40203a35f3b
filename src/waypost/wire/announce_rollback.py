"""The way back to the registry when the LAN does not carry, and from it (announce.md §6.7, ANN-39, P-30).

A pure state machine: what became of each announcement on the LAN goes in, the state that an agent is in comes out. It sends
nothing and knows no time; whoever calls it announces at once on each transition.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

State = Literal["LOCAL", "BOTH", "REGISTRY"]
Suppress = Literal["keepalive", "strict"]
Outcome = Literal["looped", "silent", "failed"]  # it came back; it was sent and did not; it could not be sent

LOST_IN_A_ROW: Final = 3  # P-30: own announcements that did not come back
GOOD_IN_A_ROW: Final = 3  # P-30: and that did, before the LAN is trusted again


class Rollback(msgspec.Struct, frozen=True):
    """Where an agent that has both a LAN and a registry announces itself.

    LOCAL: on the LAN alone (`strict`). BOTH: on the LAN, its entry in the registry is kept alive (`keepalive`). REGISTRY: the
    LAN does not carry; it is only tried.
    """

    suppress: Suppress = "keepalive"
    state: State = "BOTH"
    lost: int = 0
    good: int = 0

    @property
    def uses_registry(self) -> bool:
        return self.state != "LOCAL"

    @property
    def is_doubtful(self) -> bool:
        """Whether something was lost, and it is not yet clear that the LAN does not carry."""
        return self.lost > 0 and self.state != "REGISTRY"

    def after(self, outcome: Outcome) -> Rollback:
        """The state after one announcement on the LAN."""
        if outcome == "looped":
            return self._carried()
        lost = LOST_IN_A_ROW if outcome == "failed" else self.lost + 1
        if lost >= LOST_IN_A_ROW:
            return Rollback(self.suppress, "REGISTRY", LOST_IN_A_ROW, 0)
        return Rollback(self.suppress, self.state, lost, 0)

    def _carried(self) -> Rollback:
        if self.state != "REGISTRY":
            return Rollback(self.suppress, self.state, 0, 0)
        good = self.good + 1
        if good < GOOD_IN_A_ROW:
            return Rollback(self.suppress, "REGISTRY", 0, good)
        return begin(self.suppress)


def begin(suppress: Suppress = "keepalive") -> Rollback:
    """The state of an agent whose LAN is taken to work until it shows otherwise."""
    return Rollback(suppress, "LOCAL" if suppress == "strict" else "BOTH")

"""Where ids and nonces come from, outside of tests."""

from __future__ import annotations

import os
import secrets

_AT_ONCE = 64  # ids for which the system is asked together: a question takes longer than its answer
_ids: list[str] = []  # drawn, and not yet given: only popped, so that nobody gets the same one
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_ids.clear)


class SystemDraws:
    def message_id(self) -> str:
        """A UUID of chance (RFC 9562, version 4)."""
        try:
            return _ids.pop()
        except IndexError:
            drawn = os.urandom(16 * _AT_ONCE).hex()
            first, *others = (_uuid(drawn[at : at + 32]) for at in range(0, len(drawn), 32))
            _ids.extend(others)
            return first

    def nonce(self) -> bytes:
        return secrets.token_bytes(24)


def _uuid(drawn: str) -> str:
    variant = "89ab"[int(drawn[16], 16) & 3]
    return f"{drawn[:8]}-{drawn[8:12]}-4{drawn[13:16]}-{variant}{drawn[17:20]}-{drawn[20:]}"

"""Where ids and nonces come from, outside of tests."""

from __future__ import annotations

import os
import secrets


class SystemDraws:
    def message_id(self) -> str:
        """A UUID of chance (RFC 9562, version 4)."""
        drawn = os.urandom(16).hex()
        variant = "89ab"[int(drawn[16], 16) & 3]
        return f"{drawn[:8]}-{drawn[8:12]}-4{drawn[13:16]}-{variant}{drawn[17:20]}-{drawn[20:]}"

    def nonce(self) -> bytes:
        return secrets.token_bytes(24)

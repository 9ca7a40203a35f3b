"""Where ids and nonces come from, outside of tests."""

from __future__ import annotations

import secrets
import uuid


class SystemDraws:
    def message_id(self) -> str:
        return str(uuid.uuid4())

    def nonce(self) -> bytes:
        return secrets.token_bytes(24)

"""Capability documents as they were, by their digest: a zone names the bytes that it was written for, and is read long after.

Without them every change of an agent would have it refused (AID-14) until its zone is written anew and the old answer of the
DNS has run out. They are files, so that all processes of a service and the next start have them; the last few are enough.
"""

from __future__ import annotations

import hashlib
import logging
import re
import secrets
from pathlib import Path

from waypost import limits
from waypost.errors import InvalidParameter
from waypost.model.names import parse_domain
from waypost.trust.encodings import encode_base64url

log = logging.getLogger("waypost.server")

FOLDER = "capabilities"
DIGEST = re.compile(r"[A-Za-z0-9_-]{43}\Z")


class CapabilityVersions:
    def __init__(self, data: Path) -> None:
        self._data = data

    def keep(self, domain: str, digest: str, body: bytes) -> None:
        """One that cannot be kept is served all the same, while it is the current one."""
        try:
            folder = self._folder(domain)
            path = folder / f"{digest}.json"
            if path.exists():
                return
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            fresh = folder / f".{secrets.token_hex(8)}"
            fresh.write_bytes(body)
            fresh.replace(path)
            self._forget(folder)
        except InvalidParameter:
            return  # the service is no domain: nothing leads to it by DNS
        except OSError as error:
            log.warning("a capability document of %s cannot be kept: %s", domain, error)

    def find(self, domain: str, digest: str) -> bytes | None:
        if not DIGEST.match(digest):
            return None
        try:
            body = (self._folder(domain) / f"{digest}.json").read_bytes()
        except (InvalidParameter, OSError):
            return None
        return body if encode_base64url(hashlib.sha256(body).digest()) == digest else None

    def _folder(self, domain: str) -> Path:
        return self._data / FOLDER / parse_domain(domain, "domain")

    def _forget(self, folder: Path) -> None:
        kept = sorted(folder.glob("*.json"), key=lambda path: path.stat().st_mtime_ns)
        for old in kept[: -limits.CAPABILITY_VERSIONS]:
            old.unlink(missing_ok=True)

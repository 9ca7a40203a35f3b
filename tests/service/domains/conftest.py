from __future__ import annotations

from support.resolving import authority, bench, certificate_files, server_context

__all__ = ["authority", "bench", "certificate_files", "server_context"]

from __future__ import annotations

from support.resolve_fixtures import authority, bench, certificate_files, server_context

__all__ = ["authority", "bench", "certificate_files", "server_context"]

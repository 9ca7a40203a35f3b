"""Running the service from a command: the ready line first, whatever else later."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable

from waypost.app import serve
from waypost.settings import Settings


def run_service(settings: Settings, tell: Callable[[str], str] | None = None) -> None:
    """Serve until stopped. `tell` makes the text that follows the ready line."""

    def ready(url: str) -> None:
        sys.stdout.write(f"waypost ready {url}\n")
        if tell is not None:
            sys.stdout.write(tell(url) + "\n")
        sys.stdout.flush()

    asyncio.run(serve(settings, ready=ready))

"""Running the service from a command: the ready line first, whatever else later; logs on stderr."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable

from waypost import limits
from waypost.app import run, sign_in_link
from waypost.cli.log_lines import make_handler
from waypost.settings import Settings


def run_service(settings: Settings, tell: Callable[[str], str] | None = None) -> None:
    """Serve until stopped. `tell` makes the text that follows the ready line."""
    logging.basicConfig(level=settings.log_level.upper(), handlers=[make_handler(settings.log_format)])

    def ready(url: str) -> None:
        sys.stdout.write(f"waypost ready {url}\n")
        link = sign_in_link(settings, url)
        if link is not None:
            sys.stdout.write(f"sign in (once, within {limits.SIGN_IN_CODE_SECONDS // 60} minutes): {link}\n")
        if tell is not None:
            sys.stdout.write(tell(url) + "\n")
        sys.stdout.flush()

    run(settings, ready=ready)

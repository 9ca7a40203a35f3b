"""Durations on the command line: `90`, `90s`, `15m`, `1h`, `1d`."""

from __future__ import annotations

import click

from waypost.errors import InvalidParameter
from waypost.trust.tokens import parse_duration


def duration(text: str) -> int:
    """The type of an option that takes a duration: whole seconds."""
    try:
        return parse_duration(text)
    except InvalidParameter as error:
        raise click.BadParameter(str(error)) from None

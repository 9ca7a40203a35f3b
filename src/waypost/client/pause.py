"""Waiting, for the async client and for its sync twin. Both names are needed: one becomes the other when it is generated."""

from __future__ import annotations

from asyncio import sleep as async_pause
from time import sleep as pause

__all__ = ["async_pause", "pause"]

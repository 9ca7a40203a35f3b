"""Settings: the only reader of the environment and of the settings file.

Flags win over `WAYPOST_*` variables, those over `waypost.toml`, that over the defaults of one table, SETTINGS (`rows/`, by
subject). Whatever is unknown or of the wrong type is refused with its origin; nothing is ignored. Nothing here starts, opens
or writes anything.
"""

from __future__ import annotations

from waypost.settings.connection import Connection, find_admin_token
from waypost.settings.loading import CONFIG_FILE, load_connection, load_settings
from waypost.settings.places import ADMIN_TOKEN_FILE, TOKEN_KEY_FILE, data_folder, is_loopback
from waypost.settings.row import PREFIX, Kind, Setting
from waypost.settings.rows import CLIENT_SETTINGS, SERVICE_SETTINGS, SETTINGS
from waypost.settings.service import Settings

__all__ = [
    "SETTINGS",
    "SERVICE_SETTINGS",
    "CLIENT_SETTINGS",
    "Setting",
    "Kind",
    "Settings",
    "load_settings",
    "Connection",
    "load_connection",
    "find_admin_token",
    "data_folder",
    "is_loopback",
    "PREFIX",
    "CONFIG_FILE",
    "ADMIN_TOKEN_FILE",
    "TOKEN_KEY_FILE",
]

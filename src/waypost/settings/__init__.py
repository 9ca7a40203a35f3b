"""Settings: the only reader of the environment and of the settings file.

Flags win over `WAYPOST_*` variables, those over `waypost.toml`, that over the defaults of one table, SETTINGS (`rows/`, by
subject). Whatever is unknown or of the wrong type is refused with its origin; nothing is ignored. Nothing here starts, opens
or writes anything.
"""

from __future__ import annotations

from waypost.settings.loader import CONFIG_FILE, load_connection_settings, load_settings
from waypost.settings.locations import ADMIN_TOKEN_FILE, TOKEN_KEY_FILE, data_folder, is_loopback
from waypost.settings.service import ConnectionSettings, Settings, find_admin_token
from waypost.settings.setting import PREFIX, Kind, Setting
from waypost.settings.table import CLIENT_SETTINGS, SERVICE_SETTINGS, SETTINGS

__all__ = [
    "SETTINGS",
    "SERVICE_SETTINGS",
    "CLIENT_SETTINGS",
    "Setting",
    "Kind",
    "Settings",
    "load_settings",
    "ConnectionSettings",
    "load_connection_settings",
    "find_admin_token",
    "data_folder",
    "is_loopback",
    "PREFIX",
    "CONFIG_FILE",
    "ADMIN_TOKEN_FILE",
    "TOKEN_KEY_FILE",
]

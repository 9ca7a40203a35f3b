"""Settings: the only reader of the environment and of the settings file.

Precedence: flags, `WAYPOST_*` variables, `waypost.toml`, defaults. The fields of `Settings` (service) and `ClientSettings`
(commands, SDK) are the table: each has its type, default, bounds and documentation in one row. An unknown name or a value of
the wrong type is an error that names its origin. Loading settings starts, opens and writes nothing.
"""

from __future__ import annotations

from waypost.settings.client import CLIENT_SETTINGS, ConnectionSettings, find_admin_token
from waypost.settings.loader import CONFIG_FILE, RENAMED_SETTINGS, SETTINGS, load_connection_settings, load_settings
from waypost.settings.locations import (
    ADMIN_TOKEN_FILE,
    DATA_ENTRIES,
    DATABASES,
    DERIVED_FILES,
    INDEX_FOLDER,
    REPLICA_FOLDER,
    SMALL_FILES,
    TOKEN_KEY_FILE,
    data_folder,
    is_loopback,
)
from waypost.settings.service import SERVICE_SETTINGS, Settings
from waypost.settings.setting import PREFIX, Kind, Setting

__all__ = [
    "SETTINGS",
    "SERVICE_SETTINGS",
    "CLIENT_SETTINGS",
    "RENAMED_SETTINGS",
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
    "DATABASES",
    "INDEX_FOLDER",
    "REPLICA_FOLDER",
    "SMALL_FILES",
    "DERIVED_FILES",
    "DATA_ENTRIES",
]

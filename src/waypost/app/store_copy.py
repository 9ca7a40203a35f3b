"""`waypost store copy`: all records and the keys of the service, from SQLite to PostgreSQL or back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from waypost.app.cluster import make_shared_keys
from waypost.errors import ConfigurationError
from waypost.settings import Settings
from waypost.settings.service import find_store

if TYPE_CHECKING:
    from waypost.stores.postgresql.copy import StoreSummary

_SQLITE = "sqlite"
CLUSTER_KEY_FILE = "cluster.key"


async def copy_store(
    settings: Settings, source: str, target: str, progress: Callable[[str, int], None]
) -> StoreSummary:
    """Copy between a data folder (`sqlite:DIR`, or the folder alone) and a database (`postgresql://…`)."""
    if _is_database(source) == _is_database(target):
        raise ConfigurationError(
            "One of both must be a data folder, the other one a database.",
            path="TO",
            hint="For example: waypost store copy /srv/waypost postgresql://waypost@db.example.net/waypost",
        )
    if _is_database(target):
        return await _copy_to_database(settings, _folder_of(source, settings), target, progress)
    return await _copy_to_folder(settings, source, _folder_of(target, settings), progress)


async def _copy_to_database(
    settings: Settings, folder: Path, url: str, progress: Callable[[str, int], None]
) -> StoreSummary:
    from waypost.stores.postgresql.cluster import ClusterCipher  # asyncpg is an extra
    from waypost.stores.postgresql.copy import copy_to_postgresql

    if not (folder / "waypost.sqlite3").is_file():
        raise ConfigurationError(f"{folder} has no records.", path="FROM", hint="Name the data folder of a service.")
    cipher = ClusterCipher(settings.cluster_key_file or folder / CLUSTER_KEY_FILE)
    summary = await copy_to_postgresql(folder, url, cipher, progress)
    await _share_keys(settings, folder, url)
    return summary


async def _copy_to_folder(
    settings: Settings, url: str, folder: Path, progress: Callable[[str, int], None]
) -> StoreSummary:
    key_file = settings.cluster_key_file or settings.data / CLUSTER_KEY_FILE
    if not key_file.is_file():
        raise ConfigurationError(
            f"The cluster key {key_file} is missing.",
            path="cluster_key_file",
            hint="Name it with WAYPOST_CLUSTER_KEY_FILE, or name the data folder of a node with --data.",
        )
    settings = msgspec.structs.replace(settings, cluster_key_file=key_file)
    from waypost.stores.postgresql.cluster import ClusterCipher  # asyncpg is an extra
    from waypost.stores.postgresql.copy import copy_to_sqlite

    summary = await copy_to_sqlite(url, ClusterCipher(key_file), folder, progress)
    await _share_keys(settings, folder, url)
    return summary


async def _share_keys(settings: Settings, folder: Path, url: str) -> None:
    """The keys of the folder become those of the cluster, if it has none; otherwise the folder gets them."""
    keys = make_shared_keys(msgspec.structs.replace(settings, data=folder, store=url))
    try:
        await keys.join()
    finally:
        await keys.close()


def _is_database(place: str) -> bool:
    return (find_store(place) or "").endswith("://")


def _folder_of(place: str, settings: Settings) -> Path:
    if place == _SQLITE:
        return settings.data
    return Path(place.removeprefix(f"{_SQLITE}:")).expanduser()

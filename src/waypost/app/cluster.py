"""What a node shares with the other nodes of its cluster besides the records: the admin token, the keys of the service and
those of the domains that it hosts.

They are files of the data folder, as for a single service, so that worker processes and local commands find them. Their
common state is one sealed secret in the database. A node that starts takes the files of the cluster; the first one puts its
own there. Later, the node on which a key was rotated writes them, and the others follow.
"""

from __future__ import annotations

import hashlib
import logging
from pathlib import Path
from typing import Final, cast

import msgspec

from waypost.app.service_keys import SERVICE_KEY_NAMES, read_admin_token, service_keys_of
from waypost.errors import StoreUnavailable
from waypost.files import make_folder, write_atomic
from waypost.registry.jobs.periodic import Job
from waypost.server.hosted_agents.keys import HOSTED_KEYS_FOLDER
from waypost.settings import ADMIN_TOKEN_FILE, Settings
from waypost.stores import ClusterBackend, SharedValue, get_backend

log = logging.getLogger("waypost.cluster")

_SECRET: Final = "service keys"
_KEYS, _RETIRED = Path("keys"), Path("keys/retired")
_SYNC_SECONDS: Final = 0.5
_TRIES: Final = 5

_encode = msgspec.msgpack.Encoder(order="sorted").encode
_decoder = msgspec.msgpack.Decoder(dict[str, bytes])


class SharedKeyFiles:
    """The files of one node, and their common state. A file that is new here is added to those of the cluster."""

    def __init__(self, settings: Settings, secret: SharedValue) -> None:
        self._settings = settings
        self._data = settings.data
        self._secret = secret
        self._version = 0
        self._synced: dict[str, bytes] = {}  # digests of the files of the cluster at the last comparison

    async def join(self) -> None:
        """Before the keys are used: take those of the cluster, or found it with those of this node."""
        await self._secret.prepare()
        make_folder(self._data)
        for _ in range(_TRIES):
            found = await self._secret.read()
            if found is not None:
                self._take(*found)
                return
            keys = service_keys_of(self._settings)
            keys.identity.current()
            keys.token.current()
            read_admin_token(self._data)
            if await self._put(0):
                return
        raise StoreUnavailable("Other nodes kept changing the keys of the cluster.", retry_after=1)

    async def sync(self) -> None:
        """Follow a rotation here or elsewhere."""
        try:
            found = await self._secret.read()
        except StoreUnavailable:  # the store says so in the log, once
            return
        if found is None:
            return
        if found[0] != self._version:
            self._take(*found)
        if _digests(self._read_files()) != self._synced:
            await self._put(self._version)

    @property
    def job(self) -> Job:
        return Job("share service keys", _SYNC_SECONDS, self.sync)

    async def close(self) -> None:
        await self._secret.close()

    async def _put(self, version: int) -> bool:
        files = self._read_files()
        if not await self._secret.write(_encode(files), version):
            return False
        self._version, self._synced = version + 1, _digests(files)
        return True

    def _take(self, version: int, value: bytes) -> None:
        files = _decoder.decode(value)
        present = self._read_files()
        # Retired keys first: at no moment a key is missing that something valid was made with.
        for name in sorted(files, key=lambda name: Path(name).parent != _RETIRED):
            if present.get(name) != files[name]:
                if name in present:
                    log.warning("%s was replaced by that of the cluster", name)
                write_atomic(self._data / name, files[name])
        for name in present.keys() - files.keys():
            if (
                Path(name).parent == _RETIRED
            ):  # keys of hosted domains stay: a node of an earlier release leaves them out
                (self._data / name).unlink(missing_ok=True)
        self._version, self._synced = version, _digests(files)

    def _read_files(self) -> dict[str, bytes]:
        patterns = [ADMIN_TOKEN_FILE]
        patterns += (f"{folder}/{name}.*" for folder in (_KEYS, _RETIRED) for name in SERVICE_KEY_NAMES)
        patterns.append(f"{HOSTED_KEYS_FOLDER}/*.pem")
        found = sorted(path for pattern in patterns for path in self._data.glob(pattern) if path.is_file())
        return {str(path.relative_to(self._data)): path.read_bytes() for path in found}


def _digests(files: dict[str, bytes]) -> dict[str, bytes]:
    return {name: hashlib.sha256(content).digest() for name, content in files.items()}


def make_shared_keys(settings: Settings) -> SharedKeyFiles:
    backend = cast(ClusterBackend, get_backend(settings.store, settings.cluster_key_file))
    return SharedKeyFiles(settings, backend.make_shared_secret(settings.data, _SECRET))


async def join_cluster(settings: Settings) -> SharedKeyFiles | None:
    """Join the cluster of the settings, if they name one. Raises ConfigurationError if this node does not fit."""
    if not settings.is_cluster:
        return None
    shared = make_shared_keys(settings)
    await shared.join()
    return shared

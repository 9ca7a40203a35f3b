"""What was published where, and what was there before: one file for each update, in the data folder."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec

from waypost import limits
from waypost.domains.zone_changes import Key, SetChange
from waypost.errors import ConfigurationError, NotFound
from waypost.private_files import write_whole

FOLDER = "dns/published"
_UNDONE = ".undone"


class Published(msgspec.Struct, frozen=True, kw_only=True):
    """One update. `changes` hold the sets before and after it."""

    agent: str
    zone: str
    nameserver: str
    at: str
    changes: tuple[SetChange, ...]


class ZoneJournal:
    def __init__(self, data: Path, agent: str) -> None:
        self._folder = data / FOLDER / agent

    def keep(self, published: Published) -> Path:
        """Written before the update is sent, so that whatever happens can be undone."""
        path = self._folder / f"{time.time_ns():020d}.json"
        write_whole(path, msgspec.json.format(msgspec.json.encode(published), indent=2))
        for old in self._files()[: -limits.ZONE_JOURNAL]:
            old.unlink(missing_ok=True)
        return path

    def last(self) -> tuple[Path, Published]:
        files = self._files()
        if not files:
            raise NotFound(
                "Nothing was published for this agent from here.",
                path="data",
                hint="Is --data the folder it was done with?",
            )
        try:
            return files[-1], msgspec.json.decode(files[-1].read_bytes(), type=Published)
        except (OSError, msgspec.DecodeError) as error:
            raise ConfigurationError(f"{files[-1]} cannot be read: {error}.", path="data") from None

    def undo(self, path: Path) -> None:
        """The update of this file counts no longer."""
        path.rename(path.with_suffix(_UNDONE))

    def forget(self, path: Path) -> None:
        """The update of this file was not made."""
        path.unlink(missing_ok=True)

    def stale(self, wanted: set[Key]) -> list[SetChange]:
        """What an earlier update left in the zone and is not wanted any more."""
        left: dict[Key, SetChange] = {}
        for path in self._files():
            try:
                published = msgspec.json.decode(path.read_bytes(), type=Published)
            except (OSError, msgspec.DecodeError):
                continue
            for change in published.changes:
                left[change.name, change.type] = change
        return [change for key, change in left.items() if key not in wanted and change.after is not None]

    def _files(self) -> list[Path]:
        return sorted(self._folder.glob("*.json"))

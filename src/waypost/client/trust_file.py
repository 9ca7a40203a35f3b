"""The trust store of a client: which key is bound to which agent, in one file of its owner. Bound on first use, kept."""

from __future__ import annotations

from pathlib import Path

import msgspec

from waypost import limits
from waypost.errors import ConfigurationError
from waypost.private_files import write_whole
from waypost.trust.pins import Pin


class TrustFile:
    """Without a path it lives as long as the process."""

    def __init__(self, path: Path | None = None, *, most: int = limits.TRUST_FILE_PINS) -> None:
        self._path = path
        self._most = most
        self._pins: dict[str, Pin] = {} if path is None else _read(path)
        self._is_changed = False

    def pin_of(self, agent_id: str) -> Pin | None:
        return self._pins.get(agent_id)

    def keys_of(self, agent_id: str) -> Pin | None:
        """The pin without how far its announcements have come: on another carrier they may be behind."""
        pin = self._pins.get(agent_id)
        if pin is None:
            return None
        keys = tuple(msgspec.structs.replace(key, seq=None, digest=None) for key in pin.keys)
        return msgspec.structs.replace(pin, keys=keys, digest=None, digests=())

    def take(self, pin: Pin) -> None:
        """A listener bound a key. It is written with the next `keep`: in a crowd each one alone would be too much."""
        self.bind(pin)

    def bind(self, pin: Pin) -> bool:
        """Whether the keys of an agent changed; what else a pin remembers waits for `keep`."""
        before = self._pins.pop(pin.agent_id, None)
        self._pins[pin.agent_id] = pin
        is_changed = before is None or _keys(before) != _keys(pin)
        self._is_changed |= is_changed
        if before is None and len(self._pins) > self._most:
            self._forget_oldest()
        return is_changed

    def _forget_oldest(self) -> None:
        """Of those that were bound by first use alone, the one that was bound longest ago."""
        for agent_id, pin in self._pins.items():
            if not pin.provisioned:
                del self._pins[agent_id]
                return

    def keep(self) -> None:
        """Write what changed."""
        if self._path is not None and self._is_changed:
            self._is_changed = False
            write_whole(self._path, msgspec.json.encode(list(self._pins.values())))


def _keys(pin: Pin) -> list[tuple[str, str]]:
    return [(key.key_id, key.state) for key in pin.keys]


def _read(path: Path) -> dict[str, Pin]:
    if not path.exists():
        return {}
    try:
        pins = msgspec.json.decode(path.read_bytes(), type=list[Pin])
    except (OSError, msgspec.DecodeError) as error:
        raise ConfigurationError(
            f"The trust store {path} cannot be read: {error}.",
            path="trust",
            hint="Name the file that a Finder wrote, or one that is not there yet.",
        ) from None
    return {pin.agent_id: pin for pin in pins}

"""The trust store of a client: which key is bound to which agent, in one file of its owner. Bound on first use, kept."""

from __future__ import annotations

from pathlib import Path

import msgspec

from waypost.client.identity import write_whole
from waypost.errors import ConfigurationError
from waypost.trust.pins import Pin


class TrustFile:
    """Without a path it lives as long as the process."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._pins: dict[str, Pin] = {} if path is None else _read(path)

    def pin_of(self, agent_id: str) -> Pin | None:
        return self._pins.get(agent_id)

    def bind(self, pin: Pin) -> bool:
        """Whether the keys of an agent changed; what else a pin remembers waits for `keep`."""
        before = self._pins.get(pin.agent_id)
        self._pins[pin.agent_id] = pin
        return before is None or _keys(before) != _keys(pin)

    def keep(self) -> None:
        if self._path is not None:
            pins = sorted(self._pins.values(), key=lambda pin: pin.agent_id)
            write_whole(self._path, msgspec.json.encode(pins))


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

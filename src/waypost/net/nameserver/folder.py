"""The nameserver's folder: its zones as text, the keys that sign them, the key for updates, and the anchors to trust."""

from __future__ import annotations

from pathlib import Path

import dns.tsig

from waypost.model.names import parse_domain
from waypost.net.nameserver.key_files import signing_key, unusable, update_key
from waypost.net.nameserver.zone import SignedZone, add_lines, read_zone
from waypost.private_files import write_whole

FOLDER = "dns"


class ZoneFolder:
    def __init__(self, data: Path) -> None:
        self.path = data / FOLDER

    @property
    def anchors(self) -> Path:
        """What `trust_anchors` takes, and unbound's `trust-anchor-file`."""
        return self.path / "trust-anchors"

    @property
    def update_key(self) -> Path:
        return self.path / "update.key"

    def tsig(self) -> dns.tsig.Key:
        return update_key(self.update_key)

    def open(self, name: str, algorithm: str, now: float, *, text: str | None = None, more: str = "") -> SignedZone:
        """A zone as it was left, or as `text` has it; with `more` records in any case."""
        name = parse_domain(name, "zone")
        plain = read_zone(name, self._kept(name) if text is None else text, f"{name}.zone")
        add_lines(plain, more)
        key = None if algorithm == "none" else signing_key(self.path / f"{name}.{algorithm}.pem", algorithm)
        zone = SignedZone(plain, key, now)
        self.keep(zone)
        return zone

    def keep(self, zone: SignedZone) -> None:
        write_whole(self.path / f"{zone.name.rstrip('.')}.zone", zone.text().encode())

    def keep_anchors(self, zones: list[SignedZone]) -> None:
        lines = [line for zone in zones if (line := zone.anchor()) is not None]
        write_whole(self.anchors, "".join(f"{line}\n" for line in lines).encode())

    def _kept(self, name: str) -> str:
        path = self.path / f"{name}.zone"
        try:
            return path.read_text("utf-8")
        except FileNotFoundError:
            return ""
        except OSError as error:
            raise unusable(path, error) from None

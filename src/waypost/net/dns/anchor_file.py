"""The file of trust anchors that the settings name."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from waypost import limits
from waypost.errors import ConfigurationError
from waypost.trust.dnssec.anchors import TrustAnchors, parse_anchors, parse_domains


def read_anchors(path: Path | None, unsigned: Iterable[str] = ()) -> TrustAnchors:
    """Those of the file, with the root's own where it names none, and without the domains that are not signed."""
    records = [] if path is None else parse_anchors(_text(path))
    return TrustAnchors(records, unsigned=parse_domains(unsigned, "insecure_domains"))


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(limits.DNSSEC_ANCHORS_BYTES + 1)
        if len(data) <= limits.DNSSEC_ANCHORS_BYTES:
            return data.decode("utf-8")
        told = "it is too large"
    except OSError as error:
        told = error.strerror or "it cannot be opened"
    except UnicodeDecodeError:
        told = "it is not text"
    raise ConfigurationError(
        f"The trust anchors in {path} cannot be read: {told}.",
        path="trust_anchors",
        hint="Name a file with DS or DNSKEY records.",
    )

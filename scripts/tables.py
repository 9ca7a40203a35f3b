#!/usr/bin/env python3
"""Write the tables of public facts that the product needs at run time. The sources are in the shared folder.

scripts/tables.py             writes both tables; a test fails where they differ from their sources

| table | source |
|---|---|
| src/waypost/net/special_networks.txt | IANA IPv4 and IPv6 Special-Purpose Address Registries (RFC 6890) |
| src/waypost/search/text/data/confusables.txt | Unicode UTS #39, confusables that look like one ASCII character |
"""

from __future__ import annotations

import csv
import datetime
import ipaddress
import json
import re
import sys
from collections import defaultdict
from pathlib import Path

_ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(_ROOT / "tests"))

from support.shared import shared_path  # noqa: E402 - needs the path above

SPECIAL_NETWORKS = _ROOT / "src/waypost/net/special_networks.txt"
CONFUSABLES = _ROOT / "src/waypost/search/text/data/confusables.txt"

_NETWORKS_HEADER = """\
# Special-purpose IP networks, one per line; a network inside another one is left out.
# Facts from the IANA IPv4 and IPv6 Special-Purpose Address Registries (RFC 6890; IANA registries are CC0 1.0),
# iana.org/assignments/iana-ipv4-special-registry and iana.org/assignments/iana-ipv6-special-registry.
# Written by scripts/tables.py on {date}; do not edit.
"""
_CONFUSABLES_HEADER = """\
# Characters that look like one ASCII character: the character, then the code points (hexadecimal, A-B is a range).
# Facts from Unicode UTS #39 (Security Mechanisms), {version}; see LICENSE-unicode.txt.
# Written by scripts/tables.py on {date}; do not edit.
"""


def special_networks() -> list[str]:
    """IPv4 before IPv6, in ascending order."""
    lines: list[str] = []
    for version in (4, 6):
        text = shared_path(f"vectors/iana/iana-ipv{version}-special-registry-1.csv").read_text("utf-8")
        cells = ",".join(row["Address Block"] for row in csv.DictReader(text.splitlines()))
        blocks = [block.split("[")[0].strip() for block in cells.split(",")]  # "[1]" refers to a footnote
        networks = [ipaddress.ip_network(block) for block in blocks if "/" in block]
        lines += map(str, ipaddress.collapse_addresses(networks))
    return lines


def confusables() -> list[str]:
    points: dict[str, list[int]] = defaultdict(list)
    for point, letter in json.loads(_confusables_source())["map"].items():
        points[letter].append(int(point, 16))
    return [f"{letter} {' '.join(_ranges(sorted(found)))}" for letter, found in sorted(points.items())]


def _confusables_source() -> str:
    return shared_path("vectors/unicode/confusables_ascii.json").read_text("utf-8")


def _ranges(points: list[int]) -> list[str]:
    ranges: list[tuple[int, int]] = []
    for point in points:
        if ranges and point == ranges[-1][1] + 1:
            ranges[-1] = (ranges[-1][0], point)
        else:
            ranges.append((point, point))
    return [f"{first:X}" if first == last else f"{first:X}-{last:X}" for first, last in ranges]


def main() -> None:
    today = datetime.datetime.now(datetime.UTC).date()
    SPECIAL_NETWORKS.write_text(_NETWORKS_HEADER.format(date=today) + "\n".join(special_networks()) + "\n")
    version = re.findall(r"Version: ([0-9.]+[0-9])", _confusables_source())[0]
    header = _CONFUSABLES_HEADER.format(date=today, version=f"version {version}")
    CONFUSABLES.write_text(header + "\n".join(confusables()) + "\n")


if __name__ == "__main__":
    main()

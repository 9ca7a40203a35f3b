#!/usr/bin/env python3
"""Write THIRD-PARTY-NOTICES: the packages that an installation brings along, what Waypost contains of others, and the
licence texts. The packages come from the lock files, their licences from their metadata and requirements/licenses.toml.

    scripts/notices.py            write the file
    scripts/notices.py --check    exit with 1 if it is out of date, or if a licence is unknown or not accepted
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Iterator

from lockfile import ROOT, Pin, find_license, license_ids, read_licenses, read_pins, read_shipped_pins

NOTICES = ROOT / "THIRD-PARTY-NOTICES"
_LICENSE_FILE = re.compile(r"licen[sc]e|notice|copying|authors", re.IGNORECASE)
_RULE = "=" * 80


def write_notices(pins: Iterable[Pin]) -> str:
    parts = ["Third-party notices\n", "Written by scripts/notices.py; do not edit.\n", "\nContained in Waypost\n"]
    for work in read_licenses()["included"]:
        parts.append(f"\n  {work['name']}: {work['license']}\n    {', '.join(work['files'])}\n    {work['notice']}\n")
    parts.append("\nInstalled beside Waypost, with all extras; not part of its files\n\n")
    texts: dict[str, list[str]] = {}  # a licence text -> the packages that contain it
    for pin in pins:
        parts.append(
            f"  {pin.name} {pin.version}: {find_license(pin)}{f' (where {pin.marker})' if pin.marker else ''}\n"
        )
        for text in _license_texts(pin):
            texts.setdefault(text, []).append(pin.name)
    for text, names in texts.items():
        parts.append(f"\n{_RULE}\n{', '.join(names)}\n{_RULE}\n\n{text}\n")
    return "".join(parts)


def _license_texts(pin: Pin) -> Iterator[str]:
    installed = pin.find_distribution()
    files = (installed.files or []) if installed else []
    for file in sorted(files):
        if ".dist-info" in file.parts[0] and _LICENSE_FILE.search(file.name):
            yield "\n".join(line.rstrip() for line in file.read_text(encoding="utf-8").strip("\f\n ").splitlines())


def find_problems() -> list[str]:
    """Return one sentence for each package whose licence is unknown or not accepted."""
    accepted = read_licenses()["accepted"]
    shipped, tools = set(accepted["shipped"]), set(accepted["shipped"]) | set(accepted["tools"])
    problems = [_problem(pin, shipped) for pin in read_shipped_pins()]
    problems += [_problem(pin, tools) for name in ("build", "test") for pin in read_pins(name)]
    for work in read_licenses()["included"]:
        if not license_ids(work["license"]) <= shipped:
            problems.append(f"{work['name']}: {work['license']} is not accepted.")
    return sorted({problem for problem in problems if problem})


def _problem(pin: Pin, accepted: set[str]) -> str | None:
    found = find_license(pin)
    if found is None:
        return f"{pin.name} {pin.version}: unknown licence. Find it out and state it in requirements/licenses.toml."
    if refused := license_ids(found) - accepted:
        return f"{pin.name} {pin.version}: {', '.join(sorted(refused))} is not accepted (requirements/licenses.toml)."
    return None


def main() -> int:
    parser = argparse.ArgumentParser(description="Write THIRD-PARTY-NOTICES.")
    parser.add_argument("--check", action="store_true", help="change nothing; exit with 1 if something is wrong")
    arguments = parser.parse_args()
    problems, text = find_problems(), write_notices(read_shipped_pins())
    if arguments.check:
        if not NOTICES.exists() or NOTICES.read_text(encoding="utf-8") != text:
            problems.append(f"{NOTICES.name} is out of date: run scripts/notices.py.")
    else:
        NOTICES.write_text(text, encoding="utf-8")
    for problem in problems:
        print(problem, file=sys.stderr)
    return int(bool(problems))


if __name__ == "__main__":
    raise SystemExit(main())

#!/usr/bin/env python3
"""Look for known vulnerabilities in the locked requirements. For releases and operators; run it often.

    scripts/audit_dependencies.py              the floors of requirements/floors.toml, then pip-audit
    scripts/audit_dependencies.py --offline    the floors only, which need no network

pip-audit asks an advisory database for every pinned version. It runs through `uv tool run` or from PATH; it is not a
locked requirement, because its findings are useful only with today's data. The exit code is 1 for a finding and 2 if
not every package could be looked up.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path

from packaging.version import Version

from lockfile import REQUIREMENTS, read_floors, read_pins

SETS = ("build", "runtime", "test")
NO_DATA = 2


def find_pins_below_floor() -> list[str]:
    """Return one sentence for each pinned version that is below its floor."""
    floors = read_floors()
    pins = sorted({(pin.name, pin.version) for name in SETS for pin in read_pins(name) if pin.name in floors})
    return [
        f"{name} {version} is below {floors[name]['version']}: {floors[name]['reason']}"
        f" ({', '.join(floors[name]['advisories']) or 'no advisory'})"
        for name, version in pins
        if Version(version) < Version(floors[name]["version"])
    ]


def pip_audit_command() -> list[str] | None:
    if found := shutil.which("pip-audit"):
        return [found]
    beside_python = Path(sys.executable).with_name("uv")
    uv = shutil.which("uv") or (str(beside_python) if beside_python.exists() else None)
    return [uv, "tool", "run", "pip-audit"] if uv else None


def run_pip_audit(command: list[str]) -> int:
    """Print the findings. Return 0 (none), 1 (some) or NO_DATA (a package could not be looked up)."""
    found, skipped = [], []
    for name in SETS:
        arguments = ["--requirement", str(REQUIREMENTS / f"{name}.txt"), "--disable-pip", "--require-hashes"]
        result = subprocess.run(
            [*command, *arguments, "--format", "json"], capture_output=True, text=True, check=False, timeout=600
        )
        try:
            packages = json.loads(result.stdout)["dependencies"]
        except ValueError:
            sys.stderr.write(result.stderr[-2000:])
            return NO_DATA
        found += [
            f"{package['name']} {package['version']}: {flaw['id']}"
            for package in packages
            for flaw in package.get("vulns", ())
        ]
        # pip-audit ends with 0 for packages that its database did not know at all.
        skipped += [package["name"] for package in packages if "skip_reason" in package]
    for line in sorted(set(found)):
        print(line, file=sys.stderr)
    if skipped:
        print(f"{len(set(skipped))} packages were not looked up, among them {skipped[0]}.", file=sys.stderr)
    return 1 if found else NO_DATA if skipped else 0


def main() -> int:
    parser = argparse.ArgumentParser(description="Look for known vulnerabilities in the locked requirements.")
    parser.add_argument("--offline", action="store_true", help="compare with requirements/floors.toml only")
    offline = parser.parse_args().offline
    if below := find_pins_below_floor():
        print("\n".join(below), file=sys.stderr)
        return 1
    print(f"No pinned version is below one of the {len(read_floors())} floors.")
    if offline:
        return 0
    command = pip_audit_command()
    code = run_pip_audit(command) if command else NO_DATA
    if code == NO_DATA:
        print("Not audited: pip-audit or its advisory data is not available here.", file=sys.stderr)
    elif code == 0:
        print("pip-audit knows no vulnerability of a pinned version.")
    return code


if __name__ == "__main__":
    raise SystemExit(main())

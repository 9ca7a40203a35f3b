#!/usr/bin/env python3
"""Run the judges of tests/interop, and write docs/reference/interop.md from their results.

scripts/interop.py                 run every judge, also the long ones; takes minutes
scripts/interop.py --from FILE     only write the page, from the results of a run (INTEROP_RESULTS of tests/interop)
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "reference" / "interop.md"
INTRODUCTION = """# Interoperability

Software of others that was run against Waypost, in the version that is named. `scripts/interop.py` writes the table from the results of `tests/interop`; each line is one test there or several, and a line that is not complete names a fault.

"""  # noqa: E501
SYSTEM_COLUMNS = ("system", "version", "tried")


def run_judges(results: Path) -> None:
    """Run the tests. A test that fails is a line of the table, so the exit code does not matter here."""
    command = [sys.executable, "-m", "pytest", "tests/interop", "-m", "judge", "-n", "0", "-q", "--long"]
    environment = {**os.environ, "INTEROP_RESULTS": str(results)}
    subprocess.run(command, cwd=ROOT, env=environment, check=False)


def make_page(outcomes: list[dict[str, Any]]) -> str:
    rows: dict[tuple[str, ...], list[int]] = {}
    for outcome in outcomes:
        counts = rows.setdefault(tuple(str(outcome[name]) for name in SYSTEM_COLUMNS), [0, 0])
        if not outcome["skipped"]:
            counts[0] += outcome["passed"]
            counts[1] += outcome["total"]
    lines = ["| system | version | what was tried | passed |", "|---|---|---|---|"]
    for (system, version, tried), (passed, total) in sorted(rows.items(), key=lambda row: (row[0][0].lower(), row[0])):
        lines.append(f"| {system} | {version} | {tried} | {f'{passed} of {total}' if total else 'not run'} |")
    return INTRODUCTION + "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--from", dest="results", type=Path)
    results = parser.parse_args().results
    if results is None:
        results = Path(tempfile.mkdtemp()) / "results.json"
        run_judges(results)
    PAGE.write_text(make_page(json.loads(results.read_text(encoding="utf-8"))), encoding="utf-8")
    print(f"wrote {PAGE.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

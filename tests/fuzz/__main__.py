"""The command of scripts/fuzz: runs fuzz targets for a while, one after the other, or renews a kept corpus.

A target is a module in tests/fuzz/targets with a function `fuzz(data: bytes)`, which raises if the code under test is wrong.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from types import FrameType
from typing import Any

from fuzz.inventory import CORPUS, ROOT, TARGETS

KEPT_BYTES = 2048  # larger inputs are not kept
KEPT_INPUTS = 72
_PACKAGE = str(ROOT / "src" / "waypost")


def fuzz_target(name: str, seconds: int, folder: Path) -> bool:
    """Return whether nothing was found. The input that breaks the target is in `folder`, as broken-…"""
    options = [f"-max_total_time={seconds}", "-max_len=4096", "-timeout=20"]
    result = subprocess.run([sys.executable, "-m", "fuzz.run", name, str(folder), *options], check=False)
    return result.returncode == 0


def minimise(name: str, folder: Path) -> int:
    """Keep the smallest inputs that together reach every line that any of them reaches. Returns how many."""
    fuzz = importlib.import_module(f"fuzz.targets.{name}").fuzz
    found = {path.read_bytes() for each in (CORPUS / name, folder) if each.exists() for path in each.iterdir()}
    kept: list[bytes] = []
    reached: set[tuple[str, int]] = set()
    for data in sorted((data for data in found if len(data) <= KEPT_BYTES), key=lambda data: (len(data), data)):
        lines = _trace(fuzz, data)
        if lines - reached and len(kept) < KEPT_INPUTS:
            kept.append(data)
            reached |= lines
    _write(CORPUS / name, kept)
    return len(kept)


def _trace(fuzz: Any, data: bytes) -> set[tuple[str, int]]:
    """Return the lines of the package that the input reaches."""
    lines: set[tuple[str, int]] = set()

    def on_line(frame: FrameType, event: str, _: Any) -> Any:
        lines.add((frame.f_code.co_filename, frame.f_lineno))
        return on_line

    def on_call(frame: FrameType, event: str, _: Any) -> Any:
        return on_line if frame.f_code.co_filename.startswith(_PACKAGE) else None

    sys.settrace(on_call)
    try:
        fuzz(data)
    finally:
        sys.settrace(None)
    return lines


def _write(folder: Path, inputs: Iterable[bytes]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    files = {hashlib.sha256(data).hexdigest()[:16]: data for data in inputs}
    for path in folder.iterdir():
        if path.name not in files:
            path.unlink()
    for name, data in files.items():
        (folder / name).write_bytes(data)


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/fuzz", description="Fuzz the parsers of strangers' bytes.")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"default: all of {', '.join(TARGETS)}")
    parser.add_argument("--seconds", type=int, default=60, help="per target; default: 60")
    parser.add_argument(
        "--folder", type=Path, default=ROOT / "build" / "fuzz", help="for new inputs; default: build/fuzz"
    )
    parser.add_argument("--keep", action="store_true", help="renew the kept corpus from the folder; no fuzzing")
    arguments = parser.parse_args()
    if unknown := set(arguments.targets) - set(TARGETS):
        parser.error(f"unknown target: {', '.join(sorted(unknown))}")
    broken = []
    for name in arguments.targets or TARGETS:
        folder = arguments.folder / name
        if arguments.keep:
            print(f"{name}: {minimise(name, folder)} inputs kept", flush=True)
        elif not fuzz_target(name, arguments.seconds, folder):
            broken.append(name)
            print(f"{name}: BROKEN by {', '.join(sorted(map(str, folder.glob('broken-*'))))}", flush=True)
        else:
            print(f"{name}: nothing found in {arguments.seconds} s", flush=True)
    return int(bool(broken))


if __name__ == "__main__":
    raise SystemExit(main())

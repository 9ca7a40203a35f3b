"""Benchmarks. They use the support code of the tests (`tests/support`), which is not a package of its own."""

import sys
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(_ROOT / "tests"), str(_ROOT / "scripts")]

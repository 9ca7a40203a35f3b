"""Benchmarks. They use the support code of the tests (`tests/support`), which is not a package of its own."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

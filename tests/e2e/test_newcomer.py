"""The first hour has bars: a page, a search result, and an agent of one's own, each within its time."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("newcomer.py")
BARS = {"first page": 60, "first find": 75, "own agent found, with typing": 120}  # seconds


@pytest.mark.long
def test_a_newcomer_gets_from_the_first_line_of_the_readme_to_a_called_agent() -> None:
    done = subprocess.run([sys.executable, SCRIPT, "--json"], capture_output=True, text=True, timeout=1500, check=False)
    assert done.returncode == 0, done.stderr
    reached = json.loads(done.stdout)
    assert {name: reached[name] for name, bar in BARS.items() if reached[name] > bar} == {}
    assert list(reached)[-1] == "called"

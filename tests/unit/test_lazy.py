"""What is loaded when it is first needed: once, and as if it had been there."""

from __future__ import annotations

import subprocess
import sys

import pytest

from waypost.errors import NotFound
from waypost.lazy import lazy_module, lazy_object


class _Part:
    made = 0

    def __init__(self) -> None:
        type(self).made += 1
        self.number = 7

    def twice(self) -> int:
        return 2 * self.number


def test_a_lazy_object_is_created_once_on_first_use() -> None:
    part = lazy_object(_Part)
    assert _Part.made == 0
    assert (part.twice(), part.number, part.twice()) == (14, 7, 14)
    assert _Part.made == 1


def test_a_module_stands_in_for_itself() -> None:
    late = lazy_module("waypost.errors")
    with pytest.raises(late.WaypostError):
        raise late.NotFound("Nobody.")
    assert late.NotFound is NotFound


def test_a_start_does_not_load_what_few_services_need() -> None:
    program = (
        "import sys, waypost.app\n"
        "unwanted = {'websockets', 'cryptography.x509', 'numpy', 'httpx2', 'httpcore2', 'truststore'}\n"
        "unwanted |= {'dns', 'zeroconf', 'nats', 'rich'}\n"
        "unwanted |= {'waypost.domains.resolver', 'waypost.domains.importer', 'waypost.search.ranker'}\n"
        "assert not unwanted & set(sys.modules), sorted(unwanted & set(sys.modules))\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)

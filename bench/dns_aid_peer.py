"""The dns-aid package from PyPI resolves the names given by bench/domains.py, in an interpreter without our code.

    python bench/dns_aid_peer.py '{"port": 5300, "names": ["a.example.test"], "rung": "discover"}'

It uses the system resolver on port 53; here it is redirected to the server of the run. It fetches nothing from loopback, so
only DNS is measured.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import resource
import sys
import threading
import time
from typing import Any

import dns.asyncresolver
import structlog

structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))

ASKED = json.loads(sys.argv[1])
_usual = dns.asyncresolver.Resolver.__init__


def _pointed(self: Any, *given: Any, **named: Any) -> None:
    _usual(self, *given, **named)
    self.nameservers, self.port = ["127.0.0.1"], ASKED["port"]


dns.asyncresolver.Resolver.__init__ = _pointed  # type: ignore[method-assign]

import dns_aid  # noqa: E402


async def one(name: str) -> bool:
    agent, _, domain = name.partition(".")
    if ASKED["rung"] == "verify":
        return bool((await dns_aid.verify(name)).svcb_valid)
    return bool((await dns_aid.discover(domain, protocol="a2a", name=agent, enrich_endpoints=False)).agents)


async def main() -> dict[str, Any]:
    files = [0]
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.01):
            files[0] = max(files[0], len(os.listdir("/proc/self/fd")))

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    threading.Thread(target=watch, daemon=True).start()
    begin = time.perf_counter()
    found = await asyncio.gather(*map(one, ASKED["names"]), return_exceptions=True)
    took = time.perf_counter() - begin
    over.set()
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    good = sum(each is True for each in found)
    return {"took_s": took, "found": good, "mib": after / 1024, "grown_mib": (after - before) / 1024, "files": files[0]}


print(json.dumps(asyncio.run(main())))

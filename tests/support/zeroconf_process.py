"""The ServiceBrowser of python-zeroconf, printing `+ NAME` for an instance that came and `- NAME` for one that went.

zeroconf_process.py ADDRESS _agentsc._tcp.local.
"""

from __future__ import annotations

import sys
from typing import Any

from zeroconf import IPVersion, ServiceBrowser, ServiceStateChange, Zeroconf

SIGNS = {ServiceStateChange.Added: "+", ServiceStateChange.Removed: "-"}


def show(name: str, state_change: ServiceStateChange, **_: Any) -> None:
    if state_change in SIGNS:
        print(SIGNS[state_change], name, flush=True)


if __name__ == "__main__":
    with Zeroconf(interfaces=[sys.argv[1]], ip_version=IPVersion.V4Only) as link:
        ServiceBrowser(link, sys.argv[2], handlers=[show])
        print("ready", flush=True)
        sys.stdin.read()  # until the test closes it

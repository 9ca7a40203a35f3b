"""The command `dns-aid` of the package dns-aid, with its resolver pointed at a name server of the test on loopback. The hosts of
the zone are on this machine, too.

    dns_aid_process.py PORT discover example.test -p mcp --json
"""

from __future__ import annotations

import socket
import sys
from typing import Any

import dns.asyncresolver
import dns.resolver

PORT = int(sys.argv.pop(1))


def point(kind: Any) -> None:
    usual = kind.__init__

    def start(self: Any, *given: Any, **named: Any) -> None:
        usual(self, *given, **named)
        self.nameservers, self.port = ["127.0.0.1"], PORT

    kind.__init__ = start


usual_lookup = socket.getaddrinfo


def look_up(host: Any, *given: Any, **named: Any) -> Any:
    is_ours = (host.decode() if isinstance(host, bytes) else str(host)).endswith(".example.test")
    return usual_lookup("127.0.0.1" if is_ours else host, *given, **named)


socket.getaddrinfo = look_up
point(dns.resolver.Resolver)
point(dns.asyncresolver.Resolver)

from dns_aid.cli.main import app  # noqa: E402

app()

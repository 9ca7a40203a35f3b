"""Real name servers and resolvers on loopback: nsd, knot and bind serve zones, unbound validates them."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import dns.exception
import dns.flags
import dns.message
import dns.name
import dns.query
import dns.rcode

from support.ports import HOST, free_port

READY_SECONDS = 60.0
STOP_SECONDS = 60.0
ASK_SECONDS = 60.0
_TRIES = 5


@dataclass(frozen=True)
class NameServer:
    port: int
    folder: Path

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    def ask(self, name: str, kind: str, *, checking: bool = False) -> dns.message.Message:
        query = dns.message.make_query(name, kind, want_dnssec=True, payload=1232)
        if checking:
            query.flags |= dns.flags.CD
        answer, _ = dns.query.udp_with_fallback(query, HOST, ASK_SECONDS, self.port)
        return answer

    def verdict(self, name: str, kind: str) -> str:
        """The verdict of a validating resolver, by its flags and response code."""
        answer = self.ask(name, kind)
        if answer.rcode() == dns.rcode.SERVFAIL:
            return "bogus"
        return "secure" if answer.flags & dns.flags.AD else "insecure"


def program(name: str) -> str:
    found = shutil.which(name, path="/usr/sbin:/usr/bin:/sbin:/bin")
    assert found is not None, f"{name} is not installed"
    return found


@contextmanager
def nsd(folder: Path, zones: Mapping[str, str]) -> Iterator[NameServer]:
    """nsd serves zones unchanged, signed or not, valid or not."""
    _write_zones(folder, zones)
    sections = "".join(f"zone:\n  name: {name}\n  zonefile: {_file(name)}\n" for name in zones)

    def command(port: int) -> list[str]:
        config = folder / "nsd.conf"
        config.write_text(
            f'server:\n  ip-address: {HOST}@{port}\n  port: {port}\n  username: ""\n  zonesdir: "{folder}"\n'
            f'  database: ""\n  pidfile: "{folder}/nsd.pid"\n  xfrdfile: "{folder}/xfrd.state"\n  xfrdir: "{folder}"\n'
            f'  zonelistfile: "{folder}/zone.list"\n  logfile: "{folder}/nsd.log"\n  server-count: 1\n'
            f"  minimal-responses: yes\n  round-robin: no\nremote-control:\n  control-enable: no\n{sections}"
        )
        return [program("nsd"), "-d", "-c", str(config)]

    with _running(folder, command, next(iter(zones))) as server:
        yield server


@contextmanager
def knot(
    folder: Path, zones: Mapping[str, str], *, policy: Mapping[str, str] | None = None, update_secret: str | None = None
) -> Iterator[NameServer]:
    """Serves zones; with a policy it signs them; with a secret, the TSIG key `update` may change them."""
    _write_zones(folder, zones)
    signing = "    dnssec-signing: on\n    dnssec-policy: own\n" if policy is not None else ""
    rules = "".join(f"    {name}: {value}\n" for name, value in (policy or {}).items())
    allowed = "    acl: update\n" if update_secret is not None else ""
    sections = "".join(f"  - domain: {name}\n    file: {_file(name)}\n{signing}{allowed}" for name in zones)
    updating = (
        f"key:\n  - id: update\n    algorithm: hmac-sha256\n    secret: {update_secret}\n"
        "acl:\n  - id: update\n    key: update\n    action: update\n"
    )

    def command(port: int) -> list[str]:
        config = folder / "knot.conf"
        config.write_text(
            f"server:\n    listen: {HOST}@{port}\n    rundir: {runs_in}\n    udp-workers: 1\n    tcp-workers: 1\n"
            f"    background-workers: 1\ndatabase:\n    storage: {folder}\n"
            "log:\n  - target: stderr\n    any: warning\n"
            + (f"policy:\n  - id: own\n{rules}" if policy is not None else "")
            + (updating if update_secret is not None else "")
            + f"template:\n  - id: default\n    storage: {folder}\n    semantic-checks: off\n"
            f"zone:\n{sections}"
        )
        return [program("knotd"), "-c", str(config)]

    with (
        tempfile.TemporaryDirectory(
            prefix="knot-", dir="/tmp"
        ) as runs_in,  # its socket has a name of at most 107 bytes
        _running(folder, command, next(iter(zones))) as server,
    ):
        yield server


@contextmanager
def bind(folder: Path, zones: Mapping[str, str]) -> Iterator[NameServer]:
    _write_zones(folder, zones)
    sections = "".join(f'zone "{name}" {{ type primary; file "{_file(name)}"; }};\n' for name in zones)

    def command(port: int) -> list[str]:
        config = folder / "named.conf"
        config.write_text(
            f'options {{ directory "{folder}"; listen-on port {port} {{ {HOST}; }}; listen-on-v6 {{ none; }}; '
            f'recursion no; pid-file "{folder}/named.pid"; session-keyfile "{folder}/session.key"; '
            f'managed-keys-directory "{folder}"; dnssec-validation no; notify no; }};\ncontrols {{ }};\n{sections}'
        )
        return [program("named"), "-g", "-n", "1", "-c", str(config)]

    with _running(folder, command, next(iter(zones))) as server:
        yield server


@contextmanager
def unbound(
    folder: Path, servers: Mapping[str, NameServer], anchors: Sequence[str], *, date: str = "", more: str = ""
) -> Iterator[NameServer]:
    """unbound, an independent validator: it queries only the given servers for the given zones. `date` sets its clock."""
    (folder / "anchors").write_text("".join(f"{line}\n" for line in anchors))
    stubs = "".join(
        f"stub-zone:\n  name: '{name}'\n  stub-addr: {HOST}@{server.port}\n" for name, server in servers.items()
    )
    local = "".join(f"  local-zone: '{name}' nodefault\n" for name in ("test.", "invalid.", "onion."))
    clock = f"  val-override-date: '{date}'\n" if date else ""

    def command(port: int) -> list[str]:
        config = folder / "unbound.conf"
        config.write_text(
            f"server:\n  interface: {HOST}@{port}\n  username: ''\n  chroot: ''\n  directory: '{folder}'\n"
            "  pidfile: ''\n  use-syslog: no\n  logfile: ''\n  verbosity: 1\n  do-daemonize: no\n"
            f"  do-not-query-localhost: no\n  access-control: 127.0.0.0/8 allow\n  trust-anchor-file: '{folder}/anchors'\n"
            "  module-config: 'validator iterator'\n  target-fetch-policy: '0 0 0 0 0'\n  qname-minimisation: no\n"
            "  trust-anchor-signaling: no\n  val-sig-skew-min: 0\n  val-sig-skew-max: 0\n  aggressive-nsec: no\n"
            "  harden-algo-downgrade: yes\n"
            f"  harden-below-nxdomain: no\n  do-ip6: no\n{clock}{local}{more}"
            f"remote-control:\n  control-enable: no\n{stubs}"
        )
        return [program("unbound"), "-d", "-c", str(config)]

    with _running(folder, command, next(iter(servers))) as server:
        yield server


@contextmanager
def _running(folder: Path, command: object, zone: str) -> Iterator[NameServer]:
    """The process, once it answers. Retries, because the port may be taken in between."""
    assert callable(command)
    for _ in range(_TRIES):
        port = free_port()
        with (folder / "output").open("wb") as output:
            process = subprocess.Popen(command(port), stdout=output, stderr=output, cwd=folder)
        try:
            if _is_ready(process, port, zone):
                yield NameServer(port, folder)
                return
        finally:
            process.terminate()
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(STOP_SECONDS)
    raise AssertionError((folder / "output").read_text("utf-8", "replace")[-2000:])


def _is_ready(process: subprocess.Popen[bytes], port: int, zone: str) -> bool:
    query = dns.message.make_query(zone, "SOA")
    end = time.monotonic() + READY_SECONDS
    while time.monotonic() < end and process.poll() is None:
        try:
            dns.query.udp(query, HOST, 0.3, port)
            return True
        except (dns.exception.DNSException, OSError):
            try:
                process.wait(0.02)
            except subprocess.TimeoutExpired:
                continue
    return False


def _write_zones(folder: Path, zones: Mapping[str, str]) -> None:
    for name, text in zones.items():
        (folder / _file(name)).write_text(text)


def _file(name: str) -> str:
    return (name.rstrip(".") or "root") + ".zone"

"""The cost of resolving a domain to its agent, by trust level, beside dns-aid from PyPI on the same zone in the same run.

    python -m bench.domains --peer VENV/bin/python [--sizes 10,100,1000] [--keep]

A service of ours hosts the agents, over TLS and at a hundred addresses; a nameserver of ours serves their zone, signed, and
counts the questions. Each measurement is a process of its own that has asked nothing before. Round trips are told apart by a
server that waits 100 ms before each answer: what comes before the first answer is one wave, what comes after it the next.
`dns-aid` is a package with dependencies of its own, so
it is run by the interpreter that `--peer` names (`uv venv x; uv pip install -p x/bin/python dns-aid`).

The two do not do the same: `dns-aid` takes the word of its resolver for DNSSEC, and here it has none that validates. Ours
validates from the anchor on, in every row.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.saved_results import DOCS, HERE, with_block, write
from waypost import SyncClient
from waypost.domains.resolver import DomainResolver, ResolveOptions
from waypost.net.clock import SystemClock
from waypost.net.nameserver.responder import ZoneSet
from waypost.net.nameserver.server import Nameserver
from waypost.net.nameserver.signed_zone import ZoneFolder
from waypost.net.outbound import OutboundClient, OutboundOptions

ZONE = "example.test"
DELAY_SECONDS = 0.1
ADDRESSES = 100  # no server is asked more often than is polite; a thousand agents of one server would show that alone
SIZES = (10, 100, 1000)
TIMES = 5  # of one domain alone; the quickest counts
RESULTS = HERE / "results" / "domains.json"
DOCUMENT = DOCS / "domains.md"
_OPENSSL = (
    *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "7"),
    *("-subj", f"/CN={ZONE}", "-addext", f"subjectAltName=DNS:*.{ZONE},IP:127.0.0.1"),
)
OURS = ("dns", "document", "key")
THEIRS = ("discover", "verify")


# --- The nameserver, in a process of its own ------------------------------------------------------


class Counting(Nameserver):
    """Records the time of each query."""

    asked_at: list[float]

    def reply(self, data: bytes, most: int | None) -> bytes | None:
        self.asked_at.append(time.perf_counter())
        return super().reply(data, most)

    def told(self) -> dict[str, int]:
        """The queries since the last call, and their number of round trips: a new one begins when a response may have arrived."""
        waves, begun = 0, -1.0
        for at in self.asked_at:
            if begun < 0 or at >= begun + self.delay_seconds:
                waves, begun = waves + 1, at
        found = {"queries": len(self.asked_at), "waves": waves}
        self.asked_at = []
        return found


async def serve(data: Path, delay: float) -> None:
    folder = ZoneFolder(data)
    zone = folder.open(ZONE, "ed25519", time.time(), text=(data / "zone").read_text())
    folder.save_anchors([zone])
    server = Counting(ZoneSet([zone]), None, time.time)
    server.asked_at = []
    server.delay_seconds = delay
    await server.start("127.0.0.1", 0)
    print(server.port, flush=True)
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while await reader.readline():
        print(json.dumps(server.told()), flush=True)


class Names:
    """The nameserver's process."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.port = int(self._line())

    def told(self) -> dict[str, int]:
        """The queries since the last call."""
        assert self._process.stdin is not None
        self._process.stdin.write("count\n")
        self._process.stdin.flush()
        found: dict[str, int] = json.loads(self._line())
        return found

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()


@contextmanager
def names(data: Path, delay: float) -> Iterator[Names]:
    command = [sys.executable, "-m", "bench.domains", "--serve", str(data), "--delay", str(delay)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Names(process)
        finally:
            process.kill()


# --- The service ----------------------------------------------------------------------------------


@contextmanager
def service(folder: Path) -> Iterator[str]:
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    subprocess.run([*_OPENSSL, "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        str(Path(sys.executable).parent / "waypost"),
        "serve",
        "--port",
        str(port),
        "--data",
        str(folder / "data"),
    ]
    command += ["--host", "0.0.0.0", "--base-url", f"https://127.0.0.1:{port}"]
    command += ["--embedder", "none", "--store", "memory", "--tls-cert", str(certificate), "--tls-key", str(key)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("WAYPOST_")}
    environment["WAYPOST_HEALTH_CHECKS"] = "false"  # no traffic to the endpoints of test data
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().split()[2]
        finally:
            process.terminate()


def host_agents(url: str, folder: Path, count: int) -> list[str]:
    """Agents with a domain each, and their zone as a file."""
    domains = [f"agent{number:04d}.{ZONE}" for number in range(count)]
    lines = []
    with SyncClient(url, data=folder / "data", ca=folder / "certificate.pem") as client:
        for number, domain in enumerate(domains):
            client.register(document(domain))
            client.host(f"urn:agent:{domain}", domain)
            lines.append(client.zone(domain, addresses=[f"127.0.0.{number % ADDRESSES + 1}"]).text)
    (folder / "zone").write_text("".join(lines))
    return domains


def document(domain: str) -> dict[str, Any]:
    return {
        "id": f"urn:agent:{domain}",
        "name": domain,
        "description": "Answers for the benchmark.",
        "tags": ["bench"],
        "bindings": [{"protocol": "https", "endpoint": f"https://{domain}/invoke"}],
    }


# --- Asking ---------------------------------------------------------------------------------------


async def ask(asked: dict[str, Any]) -> dict[str, Any]:
    """Resolve all names concurrently, in a separate process."""
    files, over = [0], threading.Event()

    def watch() -> None:
        while not over.wait(0.01):
            files[0] = max(files[0], len(os.listdir("/proc/self/fd")))

    options = OutboundOptions(
        allow_cidrs=("127.0.0.0/8",),
        resolver=f"127.0.0.1:{asked['port']}",
        ca_file=Path(asked["ca"]),
        trust_anchors=Path(asked["anchors"]),
    )
    outgoing = OutboundClient(options)
    resolver = DomainResolver(outgoing.dns, outgoing, SystemClock(), ResolveOptions())
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    threading.Thread(target=watch, daemon=True).start()
    begin = time.perf_counter()
    found = await asyncio.gather(*(resolver.resolve(name, asked["rung"]) for name in asked["names"]))
    took = time.perf_counter() - begin
    over.set()
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    good = sum(each.is_resolved for each in found)
    return {
        "took_s": took,
        "found": good,
        "mib": after / 1024,
        "grown_mib": (after - before) / 1024,
        "files": files[0],
        "round_trips": max(each.cost.round_trips for each in found),
        "fetches": sum(each.cost.fetches for each in found),
    }


class Asker:
    """Runs measurements against one nameserver."""

    def __init__(self, folder: Path, peer: str | None, server: Names) -> None:
        self._folder = folder
        self._peer = peer
        self.server = server

    def run(self, rung: str, domains: list[str]) -> dict[str, Any]:
        asked = {"port": self.server.port, "names": domains, "rung": rung}
        if rung in THEIRS:
            command = [str(self._peer), str(HERE / "dns_aid_peer.py"), json.dumps(asked)]
        else:
            asked |= {
                "ca": str(self._folder / "certificate.pem"),
                "anchors": str(self._folder / "dns" / "trust-anchors"),
            }
            command = [sys.executable, "-m", "bench.domains", "--ask", json.dumps(asked)]
        self.server.told()
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        found: dict[str, Any] = json.loads(done.stdout)
        return found | self.server.told()

    def alone(self, rung: str, domain: str) -> dict[str, Any]:
        """Resolve one domain several times; the fastest run was disturbed least."""
        runs = [self.run(rung, [domain]) for _ in range(TIMES)]
        assert all(each["found"] == 1 for each in runs), (rung, runs)
        return min(runs, key=lambda each: float(each["took_s"])) | {"waves": min(each["waves"] for each in runs)}


def measure(folder: Path, domains: list[str], sizes: list[int], peer: str | None) -> dict[str, Any]:
    rungs = (*OURS, *(THEIRS if peer else ()))
    results: dict[str, Any] = {"rungs": {}, "together": {}}
    with names(folder, 0.0) as near, names(folder, DELAY_SECONDS) as far:
        here, there = Asker(folder, peer, near), Asker(folder, peer, far)
        for rung in rungs:
            quick, slow = here.alone(rung, domains[0]), there.alone(rung, domains[0])
            results["rungs"][rung] = {
                "queries": quick["queries"],
                "round_trips": slow["waves"],
                "near_ms": round(quick["took_s"] * 1000, 1),
                "far_ms": round(slow["took_s"] * 1000, 1),
                "fetches": quick.get("fetches", 0),
            }
            print(rung, results["rungs"][rung], flush=True)
        for size in sizes:
            row: dict[str, Any] = {}
            for rung in ("dns", "key", *(("discover",) if peer else ())):
                found = here.run(rung, domains[:size])
                row[rung] = {
                    "found": found["found"],
                    "took_s": round(found["took_s"], 2),
                    "queries": found["queries"],
                    "grown_mib": round(found["grown_mib"], 1),
                    "files": found["files"],
                }
            results["together"][str(size)] = row
            print(size, row, flush=True)
    return results


# --- Telling --------------------------------------------------------------------------------------

_WHAT = {
    "dns": "Waypost, `--until dns`",
    "document": "Waypost, `--until document`",
    "key": "Waypost, `--until key`",
    "discover": "`dns-aid`, `discover`",
    "verify": "`dns-aid`, `verify`",
}


def rung_table(results: dict[str, Any]) -> str:
    rungs = results["rungs"]
    base = rungs.get("discover")
    lines = [
        "| asked | queries | DNS round trips | fetches | far away (100 ms) | ratio to `discover` | on loopback |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, row in rungs.items():
        ratio = f"{row['far_ms'] / base['far_ms']:.2f}" if base else "–"
        lines.append(
            f"| {_WHAT[name]} | {row['queries']} | {row['round_trips']:g} | {row['fetches']} | "
            f"{row['far_ms']:.0f} ms | {ratio} | {row['near_ms']:.0f} ms |"
        )
    return "\n".join(lines)


def together_table(results: dict[str, Any]) -> str:
    lines = [
        "| domains at once | asked | found | took | queries | memory | open files |",
        "|---|---|---|---|---|---|---|",
    ]
    for size, row in results["together"].items():
        for name, found in row.items():
            lines.append(
                f"| {int(size):,} | {_WHAT[name]} | {found['found']:,} | {found['took_s']:.2f} s | {found['queries']:,} | "
                f"+{found['grown_mib']:.0f} MiB | {found['files']} |"
            )
    return "\n".join(lines)


def documented(text: str, results: dict[str, Any]) -> str:
    """The document with the tables of these results."""
    text = with_block(text, "domains rungs", rung_table(results))
    return with_block(text, "domains together", together_table(results))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", help="an interpreter that has dns-aid")
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)))
    parser.add_argument("--keep", action="store_true", help="write bench/results/domains.json and the documentation")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    parser.add_argument("--delay", type=float, default=0.0, help=argparse.SUPPRESS)
    parser.add_argument("--ask", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        asyncio.run(serve(Path(given.serve), given.delay))
        return
    if given.ask:
        print(json.dumps(asyncio.run(ask(json.loads(given.ask)))))
        return
    sizes = [int(text) for text in given.sizes.split(",")]
    with tempfile.TemporaryDirectory(prefix="waypost-bench-") as place:
        folder = Path(place)
        with service(folder) as url:
            results = measure(folder, host_agents(url, folder, max(sizes)), sizes, given.peer)
    print(rung_table(results))
    print(together_table(results))
    if given.keep:
        write(RESULTS, results)
        DOCUMENT.write_text(documented(DOCUMENT.read_text(encoding="utf-8"), results), encoding="utf-8")


if __name__ == "__main__":
    main()

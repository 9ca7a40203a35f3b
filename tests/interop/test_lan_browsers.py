"""Browsers of DNS-SD on the same LAN see an agent come, and see it go when it is withdrawn: a goodbye (TTL 0), not an expiry."""

from __future__ import annotations

import importlib.metadata
import json
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.announce import agent
from support.avahi import avahi_browser
from support.netns import INTERFACE, Lan, lan
from support.server import clean_environment

ZEROCONF = importlib.metadata.version("zeroconf")
BROWSE = Path(__file__).parents[1] / "support" / "zeroconf_process.py"
TRIED = "sees an agent come, and go within two seconds of its withdrawal"
SERVICE = "_agentsc._tcp"
OURS, THEIRS = 0, 1  # hosts
PATIENCE_SECONDS = 60.0
STOP_SECONDS = 20
GONE_SECONDS = 2.0  # far less than the TTL
TTL_SECONDS = 30

Seen = Callable[[], list[tuple[str, str]]]


@pytest.fixture
def net() -> Iterator[Lan]:
    with lan(2) as made:
        yield made


@contextmanager
def announced(net: Lan, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """`waypost announce` on a host of the LAN."""
    (folder / "agent.json").write_text(json.dumps(agent()))
    words = ("-m", "waypost", "announce", str(folder / "agent.json"), "--mdns", "--interface", INTERFACE)
    options = ("--ttl", f"{TTL_SECONDS}s", "--data", str(folder / "data"), "-o", "jsonl")
    with (folder / "announce.log").open("wb") as log:
        command = net.python(OURS, *words, *options)
        process = subprocess.Popen(command, env=clean_environment(), stdout=log, stderr=log)
    try:
        yield process
    finally:
        process.kill()
        process.wait(STOP_SECONDS)


@contextmanager
def zeroconf_browser(net: Lan, folder: Path) -> Iterator[Seen]:
    output = folder / "zeroconf.log"
    command = net.python(THEIRS, str(BROWSE), net.address(THEIRS), f"{SERVICE}.local.")
    with output.open("wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log)
    try:
        yield lambda: [(line[0], line[2:]) for line in output.read_text().splitlines() if line[:2] in ("+ ", "- ")]
    finally:
        process.communicate(timeout=STOP_SECONDS)


def wait_for(holds: Callable[[], bool], seconds: float, seen: Seen, log: Path) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"{seen()}\n{log.read_text()}"
        time.sleep(0.02)


def check_that_it_comes_and_goes(net: Lan, folder: Path, seen: Seen) -> None:
    log = folder / "announce.log"
    with announced(net, folder) as process:
        wait_for(lambda: len(seen()) > 0, PATIENCE_SECONDS, seen, log)
        (came,) = seen()
        assert came[0] == "+"
        assert came[1].startswith("data-processor-")
        process.send_signal(signal.SIGTERM)
        assert process.wait(STOP_SECONDS) == 0, log.read_text()
        wait_for(lambda: seen() == [came, ("-", came[1])], GONE_SECONDS, seen, log)


@pytest.mark.judge("avahi", "Debian", TRIED)
def test_avahi_sees_an_agent_come_and_go(net: Lan, tmp_path: Path) -> None:
    with avahi_browser(net, THEIRS, tmp_path, SERVICE) as browser:
        check_that_it_comes_and_goes(net, tmp_path, browser.seen)


@pytest.mark.judge("python-zeroconf", ZEROCONF, TRIED)
def test_zeroconf_sees_an_agent_come_and_go(net: Lan, tmp_path: Path) -> None:
    with zeroconf_browser(net, tmp_path) as seen:
        check_that_it_comes_and_goes(net, tmp_path, seen)

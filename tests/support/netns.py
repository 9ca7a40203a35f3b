"""A LAN of network namespaces, created for one test and removed after it. Skips the test without root.

Sockets belong to the namespace in which they were created, so one event loop can drive ends in several namespaces:

    with lan(2) as net:
        with net.entered(0):
            await transport.open()     # interfaces=["eth0"]
"""

from __future__ import annotations

import atexit
import ctypes
import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

import pytest

INTERFACE, BACKBONE = "eth0", "eth1"
_CLONE_NEWNET = 0x40000000
_RUN = Path("/run/netns")


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, timeout=60, check=False)
    if done.returncode:
        raise OSError(f"ip {' '.join(words)}: {done.stderr.strip()}")


class Lan:
    """Hosts with `eth0` on one bridge, 10.77.0.1, 10.77.0.2, … and IPv6 link-local addresses. With a `backbone` they also
    have `eth1`, 10.78.0.1, …, which works while `eth0` is disconnected."""

    def __init__(self, hosts: int, *, backbone: bool = False) -> None:
        self._has_backbone = backbone
        mark = secrets.token_hex(3)
        self.hub = f"wp{mark}h"
        self.hosts = tuple(f"wp{mark}{index}" for index in range(hosts))

    def address(self, host: int) -> str:
        return f"10.77.0.{host + 1}"

    def far_address(self, host: int) -> str:
        """The address on the backbone."""
        return f"10.78.0.{host + 1}"

    def build(self) -> None:
        _ip("netns", "add", self.hub)
        self._bridge("br0")
        if self._has_backbone:
            self._bridge("br1")
        for index in range(len(self.hosts)):
            self._join(index)
            if self._has_backbone:
                self._join_backbone(index)

    def _bridge(self, name: str) -> None:
        _ip("-n", self.hub, "link", "add", name, "type", "bridge", "mcast_snooping", "0")
        _ip("-n", self.hub, "link", "set", name, "up")

    def _join_backbone(self, index: int) -> None:
        name = self.hosts[index]
        _ip("-n", self.hub, "link", "add", f"w{index}", "type", "veth", "peer", "name", BACKBONE, "netns", name)
        _ip("-n", self.hub, "link", "set", f"w{index}", "master", "br1", "up")
        _ip("-n", name, "address", "add", f"{self.far_address(index)}/24", "dev", BACKBONE)
        _ip("-n", name, "link", "set", BACKBONE, "up")

    def remove(self) -> None:
        for name in (*self.hosts, self.hub):
            with suppress(OSError):
                _ip("netns", "delete", name)

    def cut(self, host: int) -> None:
        """Disconnect the host from the bridge."""
        _ip("-n", self.hub, "link", "set", f"v{host}", "down")

    def heal(self, host: int) -> None:
        _ip("-n", self.hub, "link", "set", f"v{host}", "up")

    def take_down(self, host: int) -> None:
        """Set the interface of the host down."""
        _ip("-n", self.hosts[host], "link", "set", INTERFACE, "down")

    def bring_up(self, host: int) -> None:
        _ip("-n", self.hosts[host], "link", "set", INTERFACE, "up")

    def command(self, host: int, *words: str) -> list[str]:
        """A command line that runs on a host."""
        return ["ip", "netns", "exec", self.hosts[host], *words]

    def python(self, host: int, *words: str) -> list[str]:
        return self.command(host, sys.executable, *words)

    @contextmanager
    def entered(self, host: int) -> Iterator[None]:
        """Create sockets of this thread in the namespace of the host."""
        with _entered(self.hosts[host]):
            yield

    def _join(self, index: int) -> None:
        name = self.hosts[index]
        _ip("netns", "add", name)
        _ip("-n", self.hub, "link", "add", f"v{index}", "type", "veth", "peer", "name", INTERFACE, "netns", name)
        _ip("-n", self.hub, "link", "set", f"v{index}", "master", "br0", "up")
        _ip("-n", name, "link", "set", "lo", "up")
        _ip("-n", name, "address", "add", f"{self.address(index)}/24", "broadcast", "+", "dev", INTERFACE)
        _ip("-n", name, "link", "set", INTERFACE, "addrgenmode", "none")
        _ip("-n", name, "link", "set", INTERFACE, "up")
        with suppress(OSError):  # a machine without IPv6; `nodad`: good at once, not tentative for a second
            _ip("-n", name, "-6", "address", "add", f"fe80::{index + 1:x}/64", "dev", INTERFACE, "nodad")
        _ip("-n", name, "route", "add", "default", "dev", INTERFACE)


@contextmanager
def _entered(name: str) -> Iterator[None]:
    with _namespace(Path("/proc/thread-self/ns/net")) as back, _namespace(_RUN / name) as there:
        _enter(there)
        try:
            yield
        finally:
            _enter(back)


@contextmanager
def _namespace(path: Path) -> Iterator[int]:
    opened = os.open(path, os.O_RDONLY)
    try:
        yield opened
    finally:
        os.close(opened)


def _enter(opened: int) -> None:
    if ctypes.CDLL(None, use_errno=True).setns(opened, _CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns")


@cache
def is_available() -> bool:
    if sys.platform != "linux" or os.geteuid() != 0 or shutil.which("ip") is None:
        return False
    tried = Lan(1)
    try:
        tried.build()
    except (OSError, subprocess.SubprocessError):
        return False
    finally:
        tried.remove()
    return True


@contextmanager
def lan(hosts: int, *, backbone: bool = False) -> Iterator[Lan]:
    if not is_available():
        if "CI" in os.environ:
            pytest.fail("network namespaces cannot be created here, so these tests would be skipped")
        pytest.skip("network namespaces cannot be made here")
    made = Lan(hosts, backbone=backbone)
    try:
        made.build()
        yield made
    finally:
        made.remove()


class Loopback:
    """A private loopback interface: other test processes would receive multicast on the shared one."""

    def __init__(self) -> None:
        self.name = f"wp{secrets.token_hex(4)}"
        _ip("netns", "add", self.name)
        atexit.register(self.remove)
        _ip("-n", self.name, "link", "set", "lo", "up")
        _ip("-n", self.name, "route", "add", "default", "dev", "lo")

    def remove(self) -> None:
        with suppress(OSError):
            _ip("netns", "delete", self.name)

    def command(self, *words: str) -> list[str]:
        return ["ip", "netns", "exec", self.name, *words]


@cache
def _loopback() -> Loopback:
    return Loopback()


@contextmanager
def own_loopback() -> Iterator[Loopback | None]:
    """Create sockets of this thread on it; on the shared one if namespaces are not available."""
    if not is_available():
        yield None
        return
    with _entered(_loopback().name):
        yield _loopback()


def left_over(names: Sequence[str]) -> list[str]:
    """Namespaces that were not removed."""
    return [name for name in names if (_RUN / name).exists()]

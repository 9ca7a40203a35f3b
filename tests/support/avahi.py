"""avahi-daemon on a host of a test LAN, with a message bus of its own. It runs with a private `/run`, so that neither the daemon
of the machine nor another test is in its way."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.netns import INTERFACE, Lan

PROGRAMS = ("dbus-daemon", "avahi-daemon", "avahi-browse")
STOP_SECONDS = 20
START_SECONDS = 30.0
_BUS = """<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-BUS Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <listen>unix:path={socket}</listen>
  <auth>EXTERNAL</auth>
  <policy context="default"><allow own="*"/><allow send_destination="*"/><allow receive_sender="*"/></policy>
</busconfig>
"""
_DAEMON = f"""[server]
host-name=judge
allow-interfaces={INTERFACE}
use-ipv4=yes
use-ipv6=no
enable-dbus=yes
[publish]
disable-publishing=yes
"""
_OWN_RUN = 'mount -t tmpfs tmpfs /run && exec "$@"'


class AvahiBrowser:
    """What `avahi-browse` of the daemon prints: `+` for an instance that came, `-` for one that went."""

    def __init__(self, output: Path) -> None:
        self._output = output

    def seen(self) -> list[tuple[str, str]]:
        """Sign and name of every line."""
        fields = [line.split(";") for line in self._output.read_text().splitlines() if line.count(";") >= 5]
        return [(each[0], each[3]) for each in fields]


@contextmanager
def avahi_browser(net: Lan, host: int, folder: Path, service: str) -> Iterator[AvahiBrowser]:
    """A browser of a service type, e.g. `_agentsc._tcp`."""
    _require_programs()
    address = f"unix:path={folder / 'bus'}"
    (folder / "bus.conf").write_text(_BUS.format(socket=folder / "bus"))
    (folder / "avahi.conf").write_text(_DAEMON)
    environment = {**os.environ, "DBUS_SYSTEM_BUS_ADDRESS": address}
    bus = ["dbus-daemon", f"--config-file={folder / 'bus.conf'}", "--nofork", "--nopidfile"]
    switches = ("--no-drop-root", "--no-chroot", "--no-rlimits", "--no-proc-title")
    daemon = net.command(host, "sh", "-c", _OWN_RUN, "sh", "avahi-daemon", "-f", str(folder / "avahi.conf"), *switches)
    browse = ["avahi-browse", "--parsable", "--no-db-lookup", service]
    with _running(bus, environment, folder / "bus.log"):
        _wait_until((folder / "bus").exists, folder / "bus.log")
        with _running(daemon, environment, folder / "avahi.log"):
            _wait_until(lambda: "startup complete" in (folder / "avahi.log").read_text(), folder / "avahi.log")
            with _running(browse, environment, folder / "browse.log"):
                yield AvahiBrowser(folder / "browse.log")


def _require_programs() -> None:
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing and "CI" in os.environ:
        pytest.fail(f"not installed: {', '.join(missing)}")
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")


@contextmanager
def _running(command: list[str], environment: dict[str, str], log: Path) -> Iterator[None]:
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
        )
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(STOP_SECONDS)


def _wait_until(holds: Callable[[], bool], log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not holds():
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.05)

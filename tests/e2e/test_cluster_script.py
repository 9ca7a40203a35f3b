"""`scripts/cluster.py` as a newcomer uses it: register on one node, find on another, kill one, stop the database, read on."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import httpx2
import psutil
import pytest

from support.server import clean_environment
from support.service import profile

ROOT = Path(__file__).parents[2]
WAIT_SECONDS = 60.0


def wait_for(condition: Callable[[], bool]) -> None:
    ends_at = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < ends_at, "this took too long"
        time.sleep(0.05)


def waypost(*arguments: str, data: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "waypost", *arguments]
    environment = clean_environment({"WAYPOST_DATA": data})
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)


def test_the_printed_steps_do_what_they_say(tmp_path: Path) -> None:
    agent = tmp_path / "agent.json"
    agent.write_text(json.dumps(profile("urn:agent:lighthouse", description="Knows all lighthouses of the coast.")))
    script = subprocess.Popen(
        [sys.executable, str(ROOT / "scripts" / "cluster.py")],
        stdout=subprocess.PIPE,
        text=True,
        env=clean_environment(),
    )
    try:
        text = read_introduction(script)
        nodes = re.findall(r"node \d: (\S+)  \(process (\d+)\)", text)
        assert len(nodes) == 3
        (data,) = re.findall(r"export WAYPOST_DATA=(\S+)", text)
        stop, start = (
            next(line.strip() for line in text.splitlines() if line.endswith(action) or f" {action}" in line)
            for action in ("stop", "start")
        )
        first, last = nodes[0][0], nodes[2][0]
        registered = waypost("register", str(agent), "--server", first, data=data)
        assert registered.returncode == 0, registered.stderr
        found = waypost("find", "lighthouses", "--server", last, "-o", "json", data=data)
        assert "urn:agent:lighthouse" in found.stdout, found.stderr
        os.kill(int(nodes[0][1]), signal.SIGKILL)
        again = waypost("find", "lighthouses", "--server", last, "-o", "json", data=data)
        assert "urn:agent:lighthouse" in again.stdout, again.stderr
        subprocess.run(shlex.split(stop), check=True, timeout=60, stdout=subprocess.DEVNULL)
        path = f"{last}/.well-known/agentframework/v1/agents"
        wait_for(lambda: "waypost-stale" in httpx2.get(path, timeout=30).headers)
        assert httpx2.get(path, timeout=30).status_code == 200
        refused = waypost("register", str(agent), "--server", last, "--timeout", "2", data=data)
        assert refused.returncode in (69, 75), refused.stderr
        subprocess.run(shlex.split(start), check=True, timeout=60, stdout=subprocess.DEVNULL)
        wait_for(lambda: waypost("register", str(agent), "--server", last, data=data).returncode == 0)
        wait_for(lambda: "waypost-stale" not in httpx2.get(path, timeout=30).headers)
    finally:
        script.send_signal(signal.SIGINT)
        script.wait(WAIT_SECONDS)
        assert script.stdout is not None
        script.stdout.close()


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGHUP])
def test_a_script_that_is_ended_leaves_nothing_behind(ending: signal.Signals) -> None:
    command = [sys.executable, str(ROOT / "scripts" / "cluster.py"), "--nodes", "1"]
    script = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=clean_environment())
    started: list[psutil.Process] = []
    try:
        text = read_introduction(script)
        (folder,) = {Path(data).parent for data in re.findall(r"export WAYPOST_DATA=(\S+)", text)}
        started += psutil.Process(script.pid).children(recursive=True)
        started.append(psutil.Process(int((folder / "postgresql" / "data" / "postmaster.pid").read_text().split()[0])))
        assert len(started) > 1
        script.send_signal(ending)
        assert script.wait(WAIT_SECONDS) == 0
        assert not folder.exists()
        wait_for(lambda: not any(process.is_running() for process in started))
    finally:
        assert script.stdout is not None
        script.stdout.close()
        for process in started:
            with suppress(psutil.NoSuchProcess):
                process.kill()


def read_introduction(script: subprocess.Popen[str]) -> str:
    assert script.stdout is not None
    lines = []
    for line in script.stdout:
        lines.append(line)
        if line.startswith("Ctrl-C"):
            return "".join(lines)
    raise AssertionError("the script ended")

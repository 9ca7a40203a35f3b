"""Two terminals: `waypost announce` in one, `waypost browse` and `waypost find` in the other; on loopback."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from support.announce import AGENT_ID, agent
from support.server import clean_environment, running_server
from support.shell import Shell
from support.transports import free_udp_port

TTL_SECONDS = 10
PATIENCE_SECONDS = 30.0


class Lines:
    """The lines that a process prints, each waited for."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._rest = b""
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)

    def next(self, seconds: float = PATIENCE_SECONDS) -> Any:
        """The next line as JSON, or None where the time is over."""
        assert self._process.stdout is not None
        deadline = time.monotonic() + seconds
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._rest:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    return None
                data = os.read(self._process.stdout.fileno(), 65536)
                if not data:
                    return None
                self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        return msgspec.json.decode(line)


@contextmanager
def running(folder: Path, *arguments: str, **environment: str) -> Iterator[tuple[subprocess.Popen[bytes], Lines]]:
    with (folder / f"{arguments[0]}.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "waypost", *arguments, "-o", "jsonl"],
            stdout=subprocess.PIPE,
            stderr=log,
            cwd=folder,
            env=clean_environment({"WAYPOST_DATA": str(folder / "agent"), **environment}),
        )
    try:
        yield process, Lines(process)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        process.wait(PATIENCE_SECONDS)
        assert process.stdout is not None
        process.stdout.close()


def wait_for_none(ask: Any, seconds: float) -> float:
    """How long it took until the answer was empty."""
    started = time.monotonic()
    while ask():
        assert time.monotonic() - started < seconds, "it is still there"
        time.sleep(0.1)
    return time.monotonic() - started


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "agent.json").write_bytes(msgspec.json.encode(agent(metadata={"description": "Collects metrics."})))
    return tmp_path


@pytest.mark.req("ANN-32", "ANN-41")
def test_an_agent_is_seen_within_two_seconds_and_gone_within_its_ttl_after_a_kill(folder: Path) -> None:
    where = ("--udp", "--interface", "lo", "--udp-port", str(free_udp_port()))
    with running(folder, "browse", *where) as (_, seen):
        with running(folder, "announce", "agent.json", *where) as (announcing, told):
            state = told.next()
            announced = time.monotonic()
            assert (state["transport"], state["state"]) == ("udp", "announced")
            first = seen.next()
            assert time.monotonic() - announced < 2
            assert (first["type"], first["agent_id"], first["trust"]) == ("added", AGENT_ID, "self_asserted")
            announcing.kill()
            killed = time.monotonic()
        assert seen.next(TTL_SECONDS + 3)["type"] == "expired"
        assert time.monotonic() - killed < TTL_SECONDS + 2


def test_an_agent_that_is_stopped_says_goodbye(folder: Path) -> None:
    where = ("--udp", "--interface", "lo", "--udp-port", str(free_udp_port()))
    with running(folder, "browse", *where) as (_, seen):
        with running(folder, "announce", "agent.json", *where):
            assert seen.next()["type"] == "added"
        assert seen.next()["type"] == "removed"


def test_a_file_that_changes_is_announced_anew(folder: Path) -> None:
    where = ("--udp", "--interface", "lo", "--udp-port", str(free_udp_port()))
    with running(folder, "browse", *where) as (_, seen), running(folder, "announce", "agent.json", *where):
        assert seen.next()["type"] == "added"
        (folder / "agent.json").write_bytes(msgspec.json.encode(agent(capabilities={"logs": "1.0"})))
        change = seen.next()
        assert (change["type"], change["agent"]["capabilities"]) == ("updated", {"logs": "1.0"})


@pytest.mark.req("ANN-41")
def test_an_agent_on_the_lan_is_found_in_the_registry_and_gone_within_its_ttl(folder: Path) -> None:
    port = str(free_udp_port())
    lan = ("--udp", "--udp-port", port)
    with (
        running_server(*lan, "--udp-interface", "lo", "--trust-mode", "tofu") as server,
        running(folder, "announce", "agent.json", *lan, "--interface", "lo") as (announcing, told),
    ):
        assert told.next()["state"] == "announced"
        shell = Shell(folder, server.environment())

        def found() -> Any:
            return httpx.get(f"{server.url}/agents?capability=metrics", headers=server.headers).json()["agents"]

        deadline = time.monotonic() + PATIENCE_SECONDS
        while not found():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert AGENT_ID in shell("find", "metrics", "-o", "jsonl").out
        announcing.kill()
        assert wait_for_none(found, TTL_SECONDS + 2) <= TTL_SECONDS + 1


def test_an_agent_is_announced_to_a_registry_alone_and_withdrawn_at_the_end(folder: Path) -> None:
    with running_server() as server:
        token = server.admin_token
        with running(folder, "announce", "agent.json", "--registry", server.url, WAYPOST_TOKEN=token) as (_, told):
            state = told.next()
            assert (state["transport"], state["state"]) == ("http", "announced")
            answer = httpx.get(f"{server.url}/agents/{AGENT_ID}", headers=server.headers)
            assert answer.json()["agent"]["metadata"]["description"] == "Collects metrics."
        assert httpx.get(f"{server.url}/agents/{AGENT_ID}", headers=server.headers).status_code == 404


def test_browsing_ends_by_itself(folder: Path) -> None:
    shell = Shell(folder, clean_environment({"WAYPOST_DATA": str(folder / "data")}))
    ran = shell("browse", "--udp", "--interface", "lo", "--udp-port", str(free_udp_port()), "--timeout", "0.5")
    assert (ran.code, ran.out) == (0, "")


def test_what_cannot_be_announced_is_told(folder: Path) -> None:
    shell = Shell(folder, clean_environment({"WAYPOST_DATA": str(folder / "data")}))
    assert shell("announce", "missing.json", "--udp", "--interface", "lo").code != 0
    shell.write("broken.json", {"agent_id": "not-a-uuid", "capabilities": {}, "transport": {}})
    ran = shell("announce", "broken.json", "--udp", "--interface", "lo")
    assert ran.code != 0
    assert "not-a-uuid" in ran.err
    assert "no-such" in shell("browse", "--udp", "--interface", "no-such", "--timeout", "1").err

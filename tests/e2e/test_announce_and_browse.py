"""Two terminals: `waypost announce` in one, `waypost browse` and `waypost find` in the other; on loopback."""

from __future__ import annotations

import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest

from support.announce import agent
from support.bus import nats_server
from support.host_places import LanHosts, place
from support.json_lines_process import Reading, reading
from support.ports import free_port
from support.server import RunningServer, clean_environment, running_server
from support.shell import Shell
from waypost.client.identity import read_key

TTL_SECONDS = 10
PATIENCE_SECONDS = 60.0


@contextmanager
def running(
    folder: Path, *arguments: str, before: Sequence[str] = (), **environment: str
) -> Iterator[tuple[subprocess.Popen[bytes], Reading]]:
    """`before`: words that start it elsewhere."""
    words = [*before, sys.executable, "-m", "waypost", *arguments, "-o", "jsonl"]
    with reading(words, folder, clean_environment({"WAYPOST_DATA": str(folder / "agent"), **environment})) as read:
        yield read.process, read


def wait_until(holds: Callable[[], Any]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.1)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "agent.json").write_bytes(msgspec.json.encode(agent(metadata={"description": "Collects metrics."})))
    return tmp_path


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with running_server() as running:
        yield running


@pytest.mark.req("ANN-30", "ANN-32", "ANN-41")
def test_an_agent_is_seen_by_its_first_words_and_gone_everywhere_when_its_ttl_ends_after_a_kill(folder: Path) -> None:
    with place(1) as where:  # mDNS on loopback has one port for the whole machine, and others may be there
        seen_and_gone(folder, where)


def seen_and_gone(folder: Path, host: LanHosts) -> None:
    agent_id, before = str(uuid.uuid4()), host.command(0)
    (folder / "agent.json").write_bytes(msgspec.json.encode(agent(agent_id)))
    port = ("--udp-port", str(free_port()))
    where = ("--mdns", "--udp", "--interface", "lo", *port)
    with (
        running_server("--udp", "--udp-interface", "lo", *port, "--trust-mode", "tofu", before=before) as server,
        running(folder, "browse", *where, before=before) as (_, read),
    ):
        seen = (event for event in iter(read.next, None) if event["agent_id"] == agent_id)
        with running(folder, "announce", "agent.json", *where, before=before) as (announcing, told):
            assert {(state["transport"], state["state"]) for state in (told.next(), told.next())} == {
                ("mdns", "announced"),
                ("udp", "announced"),
            }
            first = {event["via"]: event for event in (next(seen), next(seen))}
            assert {(event["type"], event["trust"]) for event in first.values()} == {("added", "self_asserted")}
            assert all(event["ttl"] <= TTL_SECONDS for event in first.values())
            assert set(first) == {"mdns", "udp"}

            def found() -> Any:
                url = f"{server.url}/agents?capability=metrics"
                with host.entered(0):
                    return httpx2.get(url, headers=server.headers, timeout=60).json()["agents"]

            wait_until(found)
            find = [*before, sys.executable, "-m", "waypost", "find", "metrics", "-o", "jsonl"]
            ran = subprocess.run(
                find, cwd=folder, env=server.environment(), capture_output=True, text=True, timeout=120, check=True
            )
            assert agent_id in ran.stdout
            announcing.kill()
        assert {(event["type"], event["via"]) for event in (next(seen), next(seen))} == {
            ("expired", "mdns"),
            ("expired", "udp"),
        }
        wait_until(lambda: not found())


def test_a_stopped_agent_sends_a_goodbye(folder: Path) -> None:
    where = ("--udp", "--interface", "lo", "--udp-port", str(free_port()))
    with running(folder, "browse", *where) as (_, seen):
        with running(folder, "announce", "agent.json", *where):
            assert seen.next()["type"] == "added"
        assert seen.next()["type"] == "removed"


def test_a_changed_file_is_announced_again(folder: Path) -> None:
    where = ("--udp", "--interface", "lo", "--udp-port", str(free_port()))
    with running(folder, "browse", *where) as (_, seen), running(folder, "announce", "agent.json", *where):
        assert seen.next()["type"] == "added"
        (folder / "agent.json").write_bytes(msgspec.json.encode(agent(capabilities={"logs": "1.0"})))
        change = seen.next()
        assert (change["type"], change["agent"]["capabilities"]) == ("updated", {"logs": "1.0"})


@pytest.mark.parametrize("scheme", ["http", "ws"])
def test_an_agent_is_announced_to_a_registry_alone_and_withdrawn_at_the_end(
    folder: Path, server: RunningServer, scheme: str
) -> None:
    agent_id = str(uuid.uuid4())
    (folder / "agent.json").write_bytes(msgspec.json.encode(agent(agent_id, metadata={"description": "Collects."})))
    url, token = server.url.replace("http", scheme, 1), server.admin_token
    with running(folder, "browse", "--registry", url, WAYPOST_TOKEN=token) as (_, seen):
        with running(folder, "announce", "agent.json", "--registry", url, WAYPOST_TOKEN=token) as (_, told):
            state = told.next()
            assert (state["transport"], state["state"]) == (scheme, "announced")
            first = seen.next()
            assert (first["type"], first["via"], first["agent_id"]) == ("added", scheme, agent_id)
            answer = httpx2.get(f"{server.url}/agents/{agent_id}", headers=server.headers, timeout=60)
            assert answer.json()["agent"]["metadata"]["description"] == "Collects."
        assert httpx2.get(f"{server.url}/agents/{agent_id}", headers=server.headers, timeout=60).status_code == 404
        assert seen.next()["type"] == "removed"


def test_a_bus_has_a_topic_and_a_bare_agent_is_given_an_id_that_stays(folder: Path) -> None:
    told = {name: value for name, value in agent().items() if name != "agent_id"}
    (folder / "bare.json").write_bytes(msgspec.json.encode(told))
    with nats_server() as bus:
        here, there = (("--bus", bus.url, "--bus-topic", f"/topic/{name}") for name in ("here", "there"))
        with running(folder, "browse", *here) as (_, seen), running(folder, "browse", *there) as (_, elsewhere):
            with running(folder, "announce", "bare.json", *here) as (_, said):
                agent_id = said.next()["agent_id"]
                assert seen.next()["agent_id"] == agent_id
            assert seen.next()["type"] == "removed"
            with running(folder, "announce", "bare.json", *there) as (_, said):
                assert said.next()["agent_id"] == agent_id, "drawn once, and kept"
                assert elsewhere.next()["agent_id"] == agent_id
            assert seen.new() == []


def test_a_key_that_browse_saw_is_the_only_one_that_counts_the_next_time(folder: Path) -> None:
    where = ("--udp", "--interface", "lo", "--udp-port", str(free_port()))
    honest, forged = (folder / name for name in ("honest.pem", "forged.pem"))
    shell = Shell(folder, clean_environment({"WAYPOST_DATA": str(folder / "data")}))
    for path in (honest, forged):
        assert shell("keys", "new", "--out", str(path)).code == 0
    first = ("announce", "agent.json", *where, "--key", str(honest))
    with running(folder, "browse", *where) as (_, seen), running(folder, *first):
        assert seen.next()["type"] == "added"
    assert (folder / "agent" / "announced" / "trust.json").stat().st_mode & 0o777 == 0o600
    other = str(uuid.uuid4())
    (folder / "other.json").write_bytes(msgspec.json.encode(agent(other)))
    with running(folder, "browse", *where) as (_, seen):
        with running(folder, "announce", "other.json", *where, "--key", str(honest)):
            assert seen.next()["agent_id"] == other, "it listens"
            with running(folder, "announce", "agent.json", *where, "--key", str(forged)) as (_, told):
                assert told.next()["state"] == "announced"
        assert seen.next()["type"] == "removed"
        with running(folder, *first):
            again = seen.next()
            assert (again["type"], again["agent"]["public_key"]) == ("added", public_pem(honest))


def public_pem(path: Path) -> str:
    return read_key(path).public.pem()


def test_browsing_ends_by_itself(folder: Path) -> None:
    shell = Shell(folder, clean_environment({"WAYPOST_DATA": str(folder / "data")}))
    ran = shell("browse", "--udp", "--interface", "lo", "--udp-port", str(free_port()), "--timeout", "0.5")
    assert (ran.code, ran.out) == (0, "")


def test_a_document_that_cannot_be_announced_is_reported(folder: Path) -> None:
    shell = Shell(folder, clean_environment({"WAYPOST_DATA": str(folder / "data")}))
    assert shell("announce", "missing.json", "--udp", "--interface", "lo").code != 0
    shell.write("broken.json", {"agent_id": "not-a-uuid", "capabilities": {}, "transport": {}})
    ran = shell("announce", "broken.json", "--udp", "--interface", "lo")
    assert ran.code != 0
    assert "not-a-uuid" in ran.err
    assert "no-such" in shell("browse", "--udp", "--interface", "no-such", "--timeout", "1").err

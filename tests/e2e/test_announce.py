"""The acceptance criteria of the announce protocol over HTTP and with the command (announce.md §11).

`test_announce_criteria.py` checks them on every transport.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from support.announce import agent, announcement, key
from support.server import RunningServer, running_server, start_server, stop_server
from support.shell import Shell
from support.worker_processes import both, wait_for
from waypost.trust.announce.signed_announcement import parse_signed_announcement, sign_announcement
from waypost.trust.document_signatures import canonicalize
from waypost.trust.keys.private_key import new_private_key

ONE, TWO, OTHER = key("one"), key("two"), key("other")


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with running_server() as running:
        yield running


def shell(server: RunningServer, folder: Path) -> Shell:
    return Shell(folder, server.environment())


def subject(server: RunningServer, name: str) -> httpx2.Client:
    asked = {"sub": name, "scopes": ["discover:read", "discover:write"]}
    token = httpx2.post(f"{server.url}/api/v1/tokens", json=asked, headers=server.headers, timeout=60).json()["token"]
    return httpx2.Client(base_url=server.url, headers={"Authorization": f"Bearer {token}"}, timeout=60)


def fresh_id(number: int) -> str:
    return f"{number:08x}-1fc2-4f7b-8d8c-5e3e6f5c9c1d"


def make_announcement(agent_id: str, signer: Any = ONE, **more: Any) -> dict[str, Any]:
    now = time.time()
    return announcement(signer, seq=more.pop("seq", int(now * 1000)), at=now, agent_id=agent_id, **more)


def error(answer: httpx2.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


@pytest.mark.req("ANN-3", "ANN-33")
def test_criterion_1_an_announcement_is_taken_as_it_was_signed_and_not_otherwise(
    server: RunningServer, tmp_path: Path
) -> None:
    agent_id = fresh_id(1)
    assert shell(server, tmp_path)("allow", "add", agent_id).code == 0
    with subject(server, "alice") as alice:
        compact = sign_announcement(
            {"agent_id": agent_id, "capabilities": {"m": "1"}, "transport": {"type": "tcp", "endpoint": "10.0.0.1:1"}},
            ONE,
        )
        assert len(canonicalize(compact)) <= 512
        assert (
            parse_signed_announcement(compact).find_canonical_form(
                ONE.public, parse_signed_announcement(compact).signature or b""
            )
            == "jcs"
        )
        for change in (
            {"agent": {**compact["agent"], "agent_id": agent_id[:-1] + "e"}},
            {"agent": {**compact["agent"], "public_key": OTHER.public.pem()}},
            {"agent": {**compact["agent"], "more": True}},
            {"signature": compact["signature"][::-1].lstrip("=") + "=="},
        ):
            refused = alice.post("/agents", json={**compact, **change})
            assert refused.status_code in (400, 401, 403), change
        assert alice.get(f"/agents/{agent_id}").status_code == 404
        assert alice.post("/agents", json=compact).status_code == 200
        assert alice.get(f"/agents/{agent_id}").json()["signature"] == compact["signature"]


@pytest.mark.req("ANN-12")
@pytest.mark.parametrize("kind", ["p-256", "rsa"])
def test_criterion_1_keys_of_the_other_kinds_announce_over_http(
    server: RunningServer, tmp_path: Path, kind: str
) -> None:
    agent_id = fresh_id(2 if kind == "rsa" else 3)
    shell(server, tmp_path)("allow", "add", agent_id)
    signer = new_private_key(kind, bytes(range(48)) if kind == "p-256" else b"")
    with subject(server, "alice") as alice:
        sent = make_announcement(agent_id, signer)
        assert alice.post("/agents", json=sent).status_code == 200
        assert alice.get(f"/agents/{agent_id}").json()["agent"] == sent["agent"]


@pytest.mark.req("ANN-6", "ANN-7")
def test_criterion_2_a_query_finds_exactly_the_holders(server: RunningServer, tmp_path: Path) -> None:
    holder, other = fresh_id(4), fresh_id(5)
    run = shell(server, tmp_path)
    with subject(server, "alice") as alice, subject(server, "carol") as carol:
        messages = [
            make_announcement(holder, ONE, capabilities={"spectra": "2.0"}),
            make_announcement(other, TWO, capabilities={"optics": "1.0"}),
        ]
        for sent in messages:
            assert run("allow", "add", sent["agent"]["agent_id"]).code == 0
            assert alice.post("/agents", json=sent).status_code == 200
        asked = {"protocol_version": "v1.0", "query": {"capability": "spectra"}}
        found = carol.post("/agents", json=asked).json()["agents"]
        assert [canonicalize(item["agent"]) for item in found] == [canonicalize(messages[0]["agent"])]
        asked["query"] = {"capability": "nobody-has-this"}
        assert carol.post("/agents", json=asked).json()["agents"] == []


@pytest.mark.req("ANN-20", "ANN-22", "ANN-23")
def test_criterion_4_keys_are_bound_replaced_with_proof_and_revoked_for_good(tmp_path: Path) -> None:
    agent_id = fresh_id(6)
    server = start_server(folder=tmp_path)
    try:
        run = shell(server, tmp_path)
        assert run("allow", "add", "*").code == 0
        with subject(server, "alice") as alice:
            first = make_announcement(agent_id)
            assert alice.post("/agents", json=first).status_code == 200
            assert error(alice.post("/agents", json=make_announcement(agent_id, OTHER))) == (409, "ErrDuplicateID")
            assert error(alice.post("/agents", json=make_announcement(agent_id, TWO, previous=OTHER))) == (
                409,
                "ErrDuplicateID",
            )
            rotation = make_announcement(agent_id, TWO, previous=ONE)
            assert alice.post("/agents", json=rotation).status_code == 200
            assert alice.post("/agents", json=make_announcement(agent_id, ONE)).status_code == 200, "within its grace"
            assert error(alice.post("/agents", json=first)) == (401, "ErrAuth")
            with subject(server, "mallory") as mallory:
                assert mallory.post("/agents", json={**rotation, "action": "shutdown"}).status_code == 403
            assert alice.get(f"/agents/{agent_id}").status_code == 200
            revoked = run("keys", "revoke", TWO.public.key_id, "--reason", "lost", "-o", "json")
            assert (revoked.json["outcome"], revoked.code) == ("revoked", 0)
            assert run("keys", "revoke", ONE.public.key_id).code == 0
            assert alice.get(f"/agents/{agent_id}").status_code == 404
            assert error(alice.post("/agents", json=make_announcement(agent_id, TWO))) == (403, "ErrForbidden")
    finally:
        stop_server(server)
    server = start_server(folder=tmp_path)
    try:
        with subject(server, "alice") as alice:
            for signer in (ONE, TWO, OTHER):
                assert error(alice.post("/agents", json=make_announcement(agent_id, signer))) == (403, "ErrForbidden")
            states = {row["state"] for row in shell(server, tmp_path)("keys", "list", "-o", "json").json["keys"]}
            assert states == {"revoked"}
    finally:
        stop_server(server)


@pytest.mark.req("ANN-50", "ANN-51")
def test_criterion_5_a_minor_is_read_with_one_warning_and_a_major_is_not_read(
    server: RunningServer, tmp_path: Path
) -> None:
    agent_id = fresh_id(7)
    shell(server, tmp_path)("allow", "add", agent_id)
    with subject(server, "versioned") as peer:
        for _ in range(3):
            answer = peer.post("/agents", json={**make_announcement(agent_id), "protocol_version": "v1.1"})
            assert (answer.status_code, answer.json()["protocol_version"]) == (200, "v1.1")
        assert server.log.read_text().count("versioned uses protocol version v1.1") == 1
        refused = peer.post("/agents", json={**make_announcement(agent_id), "protocol_version": "v2.0"})
        assert (error(refused), refused.json()["supported"]) == ((400, "ErrUnsupportedVersion"), ["v1.1", "v1.0"])
        for version in ("v0.9", "1.0", "v1"):
            answer = peer.post("/agents", json={**make_announcement(agent_id), "protocol_version": version})
            assert error(answer) == (400, "ErrMalformedPayload")


@pytest.mark.req("ANN-21")
def test_criterion_6_a_rule_counts_without_a_restart(server: RunningServer, tmp_path: Path) -> None:
    agent_id = fresh_id(8)
    run = shell(server, tmp_path)
    with subject(server, "alice") as alice:
        refused = alice.post("/agents", json=make_announcement(agent_id))
        assert (error(refused), refused.headers["retry-after"]) == ((403, "ErrForbidden"), "300")
        added = run("allow", "add", agent_id, "-o", "json")
        assert (added.code, added.json["outcome"]) == (0, "added")
        assert alice.post("/agents", json=make_announcement(agent_id)).status_code == 200
        assert agent_id in [row["rule"] for row in run("allow", "list", "-o", "json").json]
        assert run("allow", "remove", agent_id).code == 0
        assert error(alice.post("/agents", json=make_announcement(agent_id))) == (403, "ErrForbidden")
        assert run("allow", "remove", agent_id).code == 1
        assert run("allow", "add", "not a rule").code == 64


def test_with_several_processes_rules_and_announcements_go_through_any_of_them(tmp_path: Path) -> None:
    with running_server("--workers", "2") as server, both(server) as (writer, follower):
        for number, (through, asked) in enumerate(((writer, follower), (follower, writer)), 20):
            agent_id = fresh_id(number)
            assert through.post("/api/v1/allow", json={"rule": agent_id}).status_code == 201
            assert agent_id in [row["rule"] for row in asked.get("/api/v1/allow").json()["rules"]]
            sent = make_announcement(agent_id)
            assert through.post("/agents", json=sent).status_code == 200
            assert asked.get(f"/agents/{agent_id}").json()["signature"] == sent["signature"]
            query = {"protocol_version": "v1.0", "query": {"capability": "*", "agent_id": agent_id}}
            assert len(asked.post("/agents", json=query).json()["agents"]) == 1
            assert [row["agent_id"] for row in asked.get("/api/v1/keys").json()["keys"]].count(agent_id) == 1
        done = follower.post("/api/v1/keys:revoke", json={"key_id": ONE.public.key_id})
        assert sorted(done.json()["withdrawn"]) == [f"urn:uuid:{fresh_id(number)}" for number in (20, 21)]
        for asked in (writer, follower):
            assert asked.get("/agents").json()["agents"] == []
            assert [row["key_id"] for row in asked.get("/agents/revocations").json()["revoked"]] == [ONE.public.key_id]
            assert error(asked.post("/agents", json=make_announcement(fresh_id(20))))[0] == 403
        assert follower.delete("/api/v1/allow/" + fresh_id(20)).status_code == 204
        wait_for(lambda: len(follower.get("/api/v1/allow").json()["rules"]) == 1)


def test_keys_are_made_trusted_and_rotated_by_the_command(server: RunningServer, tmp_path: Path) -> None:
    agent_id = fresh_id(30)
    run = shell(server, tmp_path)
    made = run("keys", "new", "--out", "agent.pem", "-o", "json")
    assert (made.code, (tmp_path / "agent.pem").stat().st_mode & 0o777) == (0, 0o600)
    assert run("keys", "new", "--out", "agent.pem").code == 78, "a key is never written over"
    run.write("agent.json", agent(agent_id))
    run.write("agent.pub.pem", made.json["public_key"].encode())
    leaking = run("keys", "trust", agent_id, "agent.pem")
    assert (leaking.code, "private key" in leaking.err) == (1, True)
    trusted = run("keys", "trust", agent_id, "agent.pub.pem", "-o", "json")
    assert (trusted.json["key_id"], trusted.json["outcome"]) == (made.json["key_id"], "trusted")
    rotated = run("keys", "rotate", "--key", "agent.pem", "--agent", "agent.json")
    assert rotated.code == 0
    message = rotated.json
    with subject(server, "alice") as alice:
        assert alice.post("/agents", json=message).status_code == 200
    listed = run("keys", "list", "--agent", agent_id, "-o", "json").json["keys"]
    assert [row["state"] for row in listed] == ["active", "retiring"]
    assert listed[1]["key_id"] == made.json["key_id"]
    assert len(list(tmp_path.glob("agent.*.pem"))) == 2, "the old key is kept, and so is the public file"
    assert run("keys", "revoke", agent_id, "--reason", "gone").out.splitlines() == [
        f"revoked    {agent_id}",
        f"withdrawn  urn:uuid:{agent_id}",
    ]
    assert agent_id in run("keys", "list", "--revoked").out

"""Rotation of the service's own keys (E17): the old key is accepted for the overlap, in every process, without a restart."""

from __future__ import annotations

import threading
from pathlib import Path

import httpx2
import pytest
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from support.kill_clients import PLAIN
from support.server import running_server
from support.service import Bench, profile, service
from waypost import limits
from waypost.app import mint_locally
from waypost.app.service_keys import ServiceKeys
from waypost.cli.main import main
from waypost.settings import Settings
from waypost.trust.document_signatures import key_rotation_payload
from waypost.trust.encodings import decode_base64
from waypost.trust.transparency_log import parse_verifier_key, verify_checkpoint

KEYS = "/api/v1/service-keys"


async def _status(bench: Bench, token: str) -> int:
    return (await bench.client(token).get("/api/v1/agents")).status_code


async def _rotate(bench: Bench, name: str, **params: int) -> dict[str, object]:
    answer = await bench.admin().post(f"{KEYS}/{name}:rotate", params=params)
    assert answer.status_code == 200, answer.text
    found: dict[str, object] = answer.json()
    return found


async def test_tokens_of_the_old_key_end_with_its_overlap_and_not_before(tmp_path: Path) -> None:
    async with service(tmp_path, store="sqlite") as bench:
        before = bench.token("alice", ttl_seconds=limits.TOKEN_TTL_MAX_SECONDS)
        rotated = await _rotate(bench, "token")
        after = bench.token("alice", ttl_seconds=limits.TOKEN_TTL_MAX_SECONDS)
        assert rotated["accepted_keys"] == 2
        assert [await _status(bench, token) for token in (before, after)] == [200, 200]
        bench.clock.advance(limits.TOKEN_TTL_MAX_SECONDS - 1)
        assert await _status(bench, before) == 200
        bench.clock.advance(2)
        assert await _status(bench, before) == 401
        later = bench.token("alice")
        assert await _status(bench, later) == 200
        assert (await bench.admin().get(KEYS)).json()["keys"][0]["accepted_keys"] == 1


async def test_without_an_overlap_the_old_key_ends_at_once(tmp_path: Path) -> None:
    """For a key that was stolen: also tokens that were verified before, and keys of earlier rotations."""
    async with service(tmp_path, store="sqlite") as bench:
        first = bench.token("alice")
        await _rotate(bench, "token")
        second = bench.token("alice")
        assert [await _status(bench, token) for token in (first, second)] == [200, 200]
        await _rotate(bench, "token", overlap_seconds=0)
        assert [await _status(bench, token) for token in (first, second)] == [401, 401]
        assert await _status(bench, bench.token("alice")) == 200


async def test_an_overlap_in_a_body_is_refused_and_not_ignored(tmp_path: Path) -> None:
    """Whoever sends it there would take a stolen key for ended."""
    async with service(tmp_path, store="sqlite") as bench:
        token = bench.token("alice")
        answer = await bench.admin().post(f"{KEYS}/token:rotate", json={"overlap_seconds": 0})
        assert (answer.status_code, answer.json()["path"]) == (400, "$")
        assert "query" in answer.json()["hint"]
        assert (await bench.admin().get(KEYS)).json()["keys"][0]["accepted_keys"] == 1
        assert await _status(bench, token) == 200


async def test_a_verified_token_ends_with_the_overlap_of_its_key(tmp_path: Path) -> None:
    """An overlap shorter than the time for which a verified token is not verified again."""
    async with service(tmp_path, store="sqlite") as bench:
        token = bench.token("alice")
        await _rotate(bench, "token", overlap_seconds=5)
        assert await _status(bench, token) == 200
        bench.clock.advance(6)
        assert await _status(bench, token) == 401


async def test_rotations_within_one_second_keep_every_key(tmp_path: Path) -> None:
    """The clock of the bench stands still."""
    async with service(tmp_path, store="sqlite") as bench:
        tokens = [bench.token("alice")]
        for number in range(1, 4):
            assert (await _rotate(bench, "token"))["accepted_keys"] == 1 + number
            tokens.append(bench.token("alice"))
        assert [await _status(bench, token) for token in tokens] == [200] * len(tokens)


async def test_cursors_of_the_old_key_stay_valid(tmp_path: Path) -> None:
    async with service(tmp_path, store="sqlite") as bench:
        admin = bench.admin()
        for number in range(5):
            await admin.post("/api/v1/agents", json=profile(f"urn:agent:{number}"))
        page = (await admin.get("/profile/v1/agents", params={"limit": 2})).json()
        await _rotate(bench, "cursor")
        rest = await admin.get("/profile/v1/agents", params={"limit": 2, "cursor": page["next_cursor"]})
        assert rest.status_code == 200, rest.text
        assert {each["id"] for each in rest.json()["agents"]}.isdisjoint(each["id"] for each in page["agents"])
    async with service(tmp_path, store="sqlite", clock=bench.clock) as bench:  # and after a restart
        rest = await bench.admin().get("/profile/v1/agents", params={"limit": 2, "cursor": page["next_cursor"]})
        assert rest.status_code == 200, rest.text
        await _rotate(bench, "cursor", overlap_seconds=0)
        rest = await bench.admin().get("/profile/v1/agents", params={"limit": 2, "cursor": page["next_cursor"]})
        assert rest.status_code == 400


async def test_the_new_identity_is_confirmed_by_the_old_one(tmp_path: Path) -> None:
    async with service(tmp_path, store="sqlite") as bench:
        open_ = bench.anonymous()
        old = (await open_.get("/.well-known/agent.json")).json()["identity"]["publicKey"]
        known = (await bench.admin().get("/api/v1/audit/checkpoint", headers={"Accept": "application/json"})).json()
        await _rotate(bench, "identity")
        document = (await open_.get("/.well-known/agent.json")).json()
        new, (previous,) = document["identity"]["publicKey"], document["org.waypost.previousKeys"]
        assert new["fingerprint"] != old["fingerprint"]
        assert previous["fingerprint"] == old["fingerprint"]
        domain = document["identity"]["domain"]
        key = load_pem_public_key(old["full"].encode())
        signature = decode_base64(previous["successor"].removeprefix("signature:"))
        key.verify(signature, key_rotation_payload(domain, old["fingerprint"], new["fingerprint"]))  # type: ignore[union-attr,call-arg]
        entries = (await open_.get("/.well-known/ai-catalog.json")).json()["entries"]
        assert entries[0]["metadata"]["org.agentdiscovery.key"] == new["fingerprint"]
        now = (await bench.admin().get("/api/v1/audit/checkpoint", headers={"Accept": "application/json"})).json()
        assert now["origin"] == known["origin"]
        for verifier in (known["key"], now["key"]):
            assert verify_checkpoint(now["note"], parse_verifier_key(verifier)).size == now["size"]
        bench.clock.advance(limits.IDENTITY_OVERLAP_SECONDS + 1)
        assert "org.waypost.previousKeys" not in (await open_.get("/.well-known/agent.json")).json()


async def test_the_record_of_the_service_follows_its_identity(tmp_path: Path) -> None:
    """In every format that carries the key, with a new entity tag."""
    paths = ("/.well-known/agent.json", "/.well-known/agent-card.json", "/.well-known/agent-card")
    async with service(tmp_path, store="sqlite", anonymous_read=True) as bench:
        open_ = bench.anonymous()
        before = {path: await open_.get(path) for path in paths}
        old = before[paths[0]].json()["identity"]["publicKey"]["fingerprint"]
        await _rotate(bench, "identity")
        new = (await open_.get(paths[0])).json()["identity"]["publicKey"]["fingerprint"]
        carried = 0
        for path, answer in before.items():
            assert answer.status_code == 200, path
            again = await open_.get(path)
            assert again.headers["etag"] != answer.headers["etag"], path
            known = again.json()
            known.pop("org.waypost.previousKeys", None)
            assert old not in str(known), path
            carried += new in str(known)
        assert carried > 1


async def test_a_rotation_needs_admin_and_is_audited(tmp_path: Path) -> None:
    async with service(tmp_path, store="sqlite") as bench:
        for client, status in ((bench.anonymous(), 401), (bench.as_("alice"), 403)):
            assert (await client.post(f"{KEYS}/token:rotate")).status_code == status
            assert (await client.get(KEYS)).status_code == status
        assert (await bench.admin().post(f"{KEYS}/nothing:rotate")).status_code == 404
        assert (await bench.admin().post(f"{KEYS}/token:rotate", params={"overlap_seconds": -1})).status_code == 400
        await _rotate(bench, "token")
        entries = (await bench.admin().get("/api/v1/audit", params={"action": "rotate"})).json()["entries"]
        assert [(entry["object"], entry["subject"]) for entry in entries] == [("service-key:token", "admin")]


async def _rotations(bench: Bench) -> list[tuple[str, str, str]]:
    entries = (await bench.admin().get("/api/v1/audit", params={"action": "rotate"})).json()["entries"]
    return sorted((entry["object"], entry["subject"], entry["detail"]) for entry in entries)


@pytest.mark.parametrize("name", ["token", "identity", "cursor"])
async def test_a_rotation_without_the_api_is_audited_once(tmp_path: Path, name: str) -> None:
    """While the service runs, before a rotation through the API, and while it does not run."""
    keys = ServiceKeys(tmp_path)
    async with service(tmp_path, store="sqlite") as bench:
        assert await _rotations(bench) == []
        ids = [keys.key_ids()[name]]

        def rotate_in_the_folder() -> None:
            assert main(["keys", "rotate", "--service", name, "--data", str(tmp_path), "-o", "json"]) == 0
            ids.append(keys.key_ids()[name])

        rotate_in_the_folder()
        for _ in range(2):
            await bench.application.rotations.record()
        assert await _rotations(bench) == [(f"service-key:{name}", "", f"{ids[1]} replaces {ids[0]}")]
        rotate_in_the_folder()
        await _rotate(bench, name)
        await bench.application.rotations.record()
        found = await _rotations(bench)
        assert [subject for _, subject, _ in found] == ["", "", "admin"]
        assert (f"service-key:{name}", "", f"{ids[2]} replaces {ids[1]}") in found
        last = keys.key_ids()[name]
    rotate_in_the_folder()
    async with service(tmp_path, store="sqlite", clock=bench.clock) as bench:
        found = await _rotations(bench)
        assert len(found) == 4
        assert (f"service-key:{name}", "", f"{ids[3]} replaces {last}") in found


def test_a_damaged_key_file_does_not_replace_the_one_in_use(tmp_path: Path) -> None:
    keys = ServiceKeys(tmp_path)
    current = keys.token.current()
    (tmp_path / "keys" / "token.pem").write_text("damaged")
    assert keys.token.current() is current


@pytest.mark.parametrize("name", ["token", "identity", "cursor"])
def test_retired_keys_are_removed_when_they_have_ended(tmp_path: Path, name: str) -> None:
    keys = ServiceKeys(tmp_path)
    for now in (1000.0, 2000.0, 1e9):
        keys.rotate(name, now, 100)
    (left,) = (tmp_path / "keys" / "retired").iterdir()
    assert left.name.startswith(f"{name}.1000000100.")
    assert left.stat().st_mode & 0o777 == 0o600


def test_no_process_refuses_a_valid_token_during_rotations(tmp_path: Path) -> None:
    """Two processes, tokens of every key so far, and a rotation by the command after each round."""
    refused: list[int] = []
    stop = threading.Event()

    def ask(url: str, tokens: list[str]) -> None:
        with httpx2.Client(base_url=url, timeout=60, verify=PLAIN) as http:
            while not stop.is_set():
                for token in list(tokens):
                    answer = http.get("/profile/v1/agents?limit=1", headers={"Authorization": f"Bearer {token}"})
                    if answer.status_code != 200:
                        refused.append(answer.status_code)
            # one connection each: they are spread over the processes

    with running_server("--workers", "2") as server:
        tokens = [_mint(server.data)]
        threads = [threading.Thread(target=ask, args=(server.url, tokens), daemon=True) for _ in range(6)]
        for thread in threads:
            thread.start()
        for name in ("token", "cursor", "identity", "token", "token", "token"):
            assert main(["keys", "rotate", "--service", name, "--data", str(server.data), "-o", "json"]) == 0
            tokens.append(_mint(server.data))
            threading.Event().wait(0.2)
        stop.set()
        for thread in threads:
            thread.join(60)
        with httpx2.Client(base_url=server.url, headers=server.headers, timeout=60, verify=PLAIN) as http:
            assert http.get(KEYS).json()["keys"][0]["accepted_keys"] >= 2
    assert refused == []


def _mint(data: Path) -> str:
    return mint_locally(Settings(data=data), "alice", ("discover:read",), 3600)[0]


def test_every_process_refuses_the_old_key_at_once_without_an_overlap(tmp_path: Path) -> None:
    """The answer to the rotation is the promise: no later request with the old key succeeds, whichever process gets it."""
    with running_server("--workers", "2") as server:
        for _ in range(3):
            token = _mint(server.data)
            with httpx2.Client(base_url=server.url, headers=server.headers, timeout=60, verify=PLAIN) as admin:
                assert _statuses(server.url, token) == {200}
                rotated = admin.post(f"{KEYS}/token:rotate", params={"overlap_seconds": 0})
                assert rotated.status_code == 200, rotated.text
            assert _statuses(server.url, token) == {401}


def _statuses(url: str, token: str) -> set[int]:
    """Of requests on connections of their own, which are spread over the processes."""
    asked = [
        httpx2.get(
            f"{url}/api/v1/agents?limit=1", headers={"Authorization": f"Bearer {token}"}, timeout=60, verify=PLAIN
        )
        for _ in range(24)
    ]
    return {answer.status_code for answer in asked}

"""Pulling from a peer: copies with their origin, and peers that misbehave. The other side is a registry in this process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
import pytest

from service.federation.test_ask import Network
from support.fake_dns_server import dns_server
from support.peer_sites import PeerSite, WaypostSite, card, catalog_entry
from support.service import NOW, Bench, profile, service
from support.signing import key_of
from waypost import limits
from waypost.errors import FetchFailed, StorageFull
from waypost.federation.backoff import backoff_seconds
from waypost.federation.kinds.port import PeerProblem
from waypost.federation.peers import PeerRequest, PeerStore
from waypost.federation.pull import Puller
from waypost.federation.service import PeerService
from waypost.model.federation import Federation, peer_subject
from waypost.model.principal import Principal
from waypost.protocols.codec import DecodeContext
from waypost.protocols.dialects import decode_document
from waypost.registry.jobs.periodic import cancel_all
from waypost.registry.mirror_rules import MirroredRecord, peer_principal, withdraw_mirrored
from waypost.registry.ports import Command, CommittedChange, Decision, FetchPurpose, FetchResponse, StoreState
from waypost.registry.publication import Publication
from waypost.trust.document_signatures import sign_profile

ADMIN = Principal(subject="admin", scopes=frozenset(("admin",)))
Tamper = Callable[[list[dict[str, Any]]], list[dict[str, Any]]]


class InProcess:
    """Sends requests to another registry in this process."""

    def __init__(self, other: Bench) -> None:
        self.other = other
        self.tamper: Tamper = lambda lines: lines
        self.status: int | None = None
        self.body: bytes | None = None
        self.headers: dict[str, str] = {}  # with `status`
        self.requests: list[str] = []

    def check(self, url: str, purpose: FetchPurpose) -> None: ...

    async def send(
        self,
        url: str,
        purpose: FetchPurpose,
        *,
        method: str = "POST",
        body: bytes = b"",
        headers: Sequence[tuple[str, str]] = (),
    ) -> FetchResponse:
        self.requests.append(url)
        if "/api/v1/feed" not in url:
            return FetchResponse(url=url, status=404, headers={})
        if self.status is not None or self.body is not None:
            return FetchResponse(url=url, status=self.status or 200, headers=self.headers, body=self.body or b"")
        path = "/" + url.split("/", 3)[3]
        response = await self.other.anonymous().request(method, path, headers=dict(headers))
        lines = [json.loads(line) for line in response.content.splitlines()] if response.status_code == 200 else []
        content = "\n".join(json.dumps(line) for line in self.tamper(lines)).encode() if lines else response.content
        return FetchResponse(url=url, status=response.status_code, headers={}, body=content)


class Pair:
    """`here` follows `there`, page by page, when a test says so."""

    def __init__(self, here: Bench, there: Bench, sender: InProcess, puller: Puller, peers: PeerService) -> None:
        self.here = here
        self.there = there
        self.sender = sender
        self.puller = puller
        self.peers = peers

    async def pull(self, pages: int = 4) -> None:
        for _ in range(pages):
            await self.puller.pull_once(wait_seconds=0)

    async def put(self, agent_id: str, *, bench: Bench | None = None, subject: str = "alice", **members: Any) -> None:
        response = await (bench or self.there).as_(subject).post("/api/v1/agents", json=profile(agent_id, **members))
        assert response.is_success, response.text

    async def ids(self) -> set[str]:
        found = (await self.here.admin().get("/api/v1/agents?limit=200")).json()["agents"]
        return {agent["id"] for agent in found}

    async def get(self, agent_id: str) -> dict[str, Any]:
        response = await self.here.admin().get(f"/api/v1/agents/{agent_id.replace('/', '%2F')}")
        assert response.status_code == 200, response.text
        found: dict[str, Any] = response.json()
        return found


@asynccontextmanager
async def pair(
    tmp_path: Path, *, resolver: str | None = None, settings: dict[str, Any] | None = None, **request: Any
) -> AsyncIterator[Pair]:
    """`resolver` and `settings` are those of `here`."""
    settings = (settings or {}) | ({} if resolver is None else {"resolver": resolver})
    async with service(tmp_path / "there", anonymous_read=True, base_url="http://there.example") as there:
        sender = InProcess(there)
        async with service(tmp_path / "here", base_url="http://here.example", sender=sender, **settings) as here:
            peers = here.application.peers
            await peers.add(ADMIN, PeerRequest(url="http://there.example", name="there", **request))
            await peers.stop()  # the test pulls itself
            yield Pair(here, there, sender, peers._pullers["there"], peers)


async def test_a_copy_has_its_origin_and_its_exact_bytes(tmp_path: Path) -> None:
    async with pair(tmp_path) as both:
        document = (
            b'{ "id": "urn:ex:a", "name":"A\\u00e4", "description": "Adds.", "x_own": 1.50,\n'
            b' "bindings": [{"protocol": "https", "endpoint": "https://a.example/"}] }'
        )
        response = await both.there.as_("alice").post("/api/v1/agents", content=document)
        assert response.status_code == 201
        await both.pull()
        (registration,) = await both.here.registry.registrations(["urn:ex:a"])
        assert registration.sources[0].document == document
        assert registration.owner == "urn:waypost:peer:there"
        assert registration.visibility == "internal"
        shown = await both.get("urn:ex:a")
        federation = shown["federation"]
        assert federation["origin_service"] == "http://there.example"
        assert federation["origin_id"] == "urn:ex:a"
        assert federation["peer"] == "there"
        assert {"received_at", "origin_updated_at"} <= set(federation)
        found = (await both.here.admin().post("/profile/v1/discover", json={"query": "adds"})).json()
        assert found["candidates"][0]["federation"]["origin_service"] == "http://there.example"
        assert both.puller.view().complete


async def test_the_documents_of_a_peer_are_bounded_in_bytes(tmp_path: Path) -> None:
    async with pair(tmp_path, settings={"stored_bytes_per_peer": 60_000, "stored_bytes_per_owner": 30_000}) as both:
        for number in range(5):
            await both.put(f"urn:ex:{number}", x_notes="x" * 20_000)
        await both.pull()
        assert len(await both.ids()) == 2  # the third would have more than 60,000 bytes with its other members
        view = both.puller.view()
        assert view.parked_reasons == {"stored_bytes": 3}
        assert view.complete  # what was not taken holds up nothing
        await both.put("urn:ex:1", x_notes="small")
        await both.put("urn:ex:4", x_notes="small, too")
        await both.pull()
        assert len(await both.ids()) == 3
        await both.put("urn:ex:local", bench=both.here, x_notes="x" * 20_000)  # by its own quota


async def test_changes_and_withdrawals_follow(tmp_path: Path) -> None:
    async with pair(tmp_path) as both:
        await both.put("urn:ex:a")
        await both.put("urn:ex:b")
        await both.pull()
        assert await both.ids() == {"urn:ex:a", "urn:ex:b"}
        await both.put("urn:ex:a", description="Now it does more.", version="2")
        await both.there.as_("alice").delete("/profile/v1/agents/urn%3Aex%3Ab")
        await both.pull()
        assert await both.ids() == {"urn:ex:a"}
        assert (await both.get("urn:ex:a"))["description"] == "Now it does more."
        assert both.puller.view().complete


async def test_private_and_internal_agents_are_not_in_the_feed(tmp_path: Path) -> None:
    async with pair(tmp_path) as both:
        for visibility in ("private", "internal", "public"):
            await both.there.as_("alice").post(
                "/api/v1/agents", json=profile(f"urn:ex:{visibility}"), headers={"Waypost-Visibility": visibility}
            )
        body = (await both.there.admin().get("/api/v1/feed?wait=0")).text
        assert "urn:ex:public" in body
        assert "urn:ex:private" not in body
        assert "urn:ex:internal" not in body
        await both.there.as_("alice").post(
            "/api/v1/agents", json=profile("urn:ex:public"), headers={"Waypost-Visibility": "private"}
        )
        await both.pull()
        assert await both.ids() == set()


async def test_a_peer_replaces_no_local_agent(tmp_path: Path) -> None:
    async with pair(tmp_path) as both:
        await both.put("urn:ex:a", bench=both.here, subject="bob", name="Ours")
        await both.put("urn:ex:a", name="Theirs", version="99")
        await both.pull()
        assert (await both.get("urn:ex:a"))["name"] == "Ours"
        view = both.puller.view()
        assert view.parked_reasons == {"local_owner": 1}
        assert view.complete


async def test_a_peer_takes_no_alias_of_a_local_agent(tmp_path: Path) -> None:
    uuid = "3f1f5a1e-9c1e-4f5b-8a58-0d6f5c1b2a77"
    async with pair(tmp_path) as both:
        await both.put(f"urn:uuid:{uuid}", bench=both.here, subject="bob", name="Ours")
        await both.put(uuid, name="Theirs")
        await both.pull()
        assert (await both.get(uuid))["name"] == "Ours"


@pytest.mark.parametrize("agent_id", ["agent:bank.example.com", "https://bank.example.com/a", "urn:ex:teller"])
async def test_a_peer_brings_in_no_id_that_a_key_is_bound_to(tmp_path: Path, agent_id: str) -> None:
    """THREATS E4: before its owner comes, and after its lease ended."""
    key = key_of(number=1)
    async with pair(tmp_path) as both:
        pinned = {"agent_id": agent_id, "public_key": key.public.pem()}
        assert (await both.here.admin().post("/api/v1/keys", json=pinned)).is_success
        await both.put(agent_id, subject="squatter", name="Squatter")
        await both.pull()
        assert await both.ids() == set()
        document = sign_profile(profile(agent_id, updated_at="2026-05-01T00:00:00Z"), key)
        added = await both.here.as_("owner").post("/api/v1/agents?ttl_seconds=60", json=document)
        assert added.status_code == 201
        both.here.clock.advance(7200)
        both.there.clock.advance(7200)
        await both.put(agent_id, subject="squatter", name="Squatter", description="Once more.", version="2")
        await both.pull()
        assert await both.ids() == set()
        assert both.puller.view().parked_reasons
        again = sign_profile(profile(agent_id, updated_at="2026-05-02T00:00:00Z"), key)
        assert (await both.here.as_("owner").post("/api/v1/agents", json=again)).status_code == 201


async def test_a_peer_brings_in_no_id_of_a_proven_domain_and_its_owner_takes_over(tmp_path: Path) -> None:
    """THREATS E4: beside the owner, and before it came."""
    async with dns_server() as names, pair(tmp_path, resolver=names.address) as both:
        await both.put("agent:early.example.com", subject="squatter")
        await both.pull()
        owner = both.here.as_("owner")
        for domain in ("bank.example.com", "early.example.com"):
            made = (await owner.post("/api/v1/domains", json={"domain": domain, "method": "dns"})).json()
            names.set(made["place"], "TXT", [f'"{made["line"]}"'])
            assert (await owner.post(f"/api/v1/domains/{domain}:check")).status_code == 200
        await both.put("agent:bank.example.com", subject="squatter")
        await both.pull()
        assert "agent:bank.example.com" not in await both.ids()
        for agent_id in ("agent:bank.example.com", "agent:early.example.com"):
            answer = await owner.post("/api/v1/agents", json=profile(agent_id, name="Ours"))
            assert answer.is_success, answer.text
            await both.pull()
            assert (await both.get(agent_id))["name"] == "Ours"


async def test_a_local_registration_takes_the_place_of_a_copy(tmp_path: Path) -> None:
    async with pair(tmp_path) as both:
        await both.put("urn:ex:a", name="Theirs")
        await both.pull()
        await both.put("urn:ex:a", bench=both.here, subject="bob", name="Ours")
        found = await both.get("urn:ex:a")
        assert found["name"] == "Ours"
        assert "federation" not in found
        await both.put("urn:ex:a", name="Theirs again", version="3")
        await both.pull()
        assert (await both.get("urn:ex:a"))["name"] == "Ours"
        trail = (await both.here.admin().get("/api/v1/audit?action=takeover")).json()
        assert trail["entries"][0]["object"] == "urn:ex:a"


async def test_reading_a_page_again_changes_nothing(tmp_path: Path) -> None:
    """A crash between the records and the cursor repeats a page: nothing of it is visible."""
    async with pair(tmp_path) as both:
        await both.put("urn:ex:a")
        await both.pull()
        revision = both.here.registry.changes.revision
        both.puller.restart_snapshot()
        await both.pull()
        events = await both.here.application.store.events(revision, 100)
        assert [event for event in events if event.id == "urn:ex:a"] == []


async def test_a_lease_ends_when_the_origin_says_so(tmp_path: Path) -> None:
    async with pair(tmp_path) as both:
        await both.there.as_("alice").post("/api/v1/agents?ttl_seconds=60", json=profile("urn:ex:a"))
        await both.pull()
        (here,) = await both.here.registry.registrations(["urn:ex:a"])
        (there,) = await both.there.registry.registrations(["urn:ex:a"])
        assert here.lease_expires_at == there.lease_expires_at is not None
        both.there.clock.advance(30)
        both.here.clock.advance(30)
        await both.there.as_("alice").post("/api/v1/agents/urn%3Aex%3Aa:renew")
        await both.pull()
        (here,) = await both.here.registry.registrations(["urn:ex:a"])
        (there,) = await both.there.registry.registrations(["urn:ex:a"])
        assert here.lease_expires_at == there.lease_expires_at
        both.here.clock.advance(61)
        assert await both.ids() == set()


async def test_a_withdrawn_agent_does_not_come_back_on_a_slower_path(tmp_path: Path) -> None:
    async with pair(tmp_path) as both:
        await both.put("urn:ex:a")
        first = (await both.there.anonymous().get("/api/v1/feed?wait=0")).content
        await both.pull()
        await both.there.as_("alice").delete("/profile/v1/agents/urn%3Aex%3Aa")
        await both.pull()
        assert await both.ids() == set()
        both.sender.body = first  # an old page, as a slower copy would send it
        await both.puller.pull_once(wait_seconds=0)
        assert await both.ids() == set()


@pytest.mark.parametrize(
    ("status", "body", "reason"),
    [
        (500, b"", "status 500"),
        (200, b"", "without a bookmark"),
        (200, b"[]", "not a bookmark"),
        (200, b'{"type":"registered","id":"x"}\n', "not a bookmark"),
        (200, b"\xff\xfe\n", "not a bookmark"),
        (401, b"", "token"),
    ],
)
async def test_errors_and_empty_answers_remove_nothing(tmp_path: Path, status: int, body: bytes, reason: str) -> None:
    async with pair(tmp_path) as both:
        await both.put("urn:ex:a")
        await both.pull()
        both.sender.status, both.sender.body = status, body
        with pytest.raises(PeerProblem, match=reason):
            await both.puller.pull_once(wait_seconds=0)
        assert await both.ids() == {"urn:ex:a"}


async def test_a_changed_key_is_refused(tmp_path: Path) -> None:
    async with pair(tmp_path) as both, service(tmp_path / "other", anonymous_read=True) as other:
        both.sender.other = other
        with pytest.raises(PeerProblem, match="key has changed"):
            await both.puller.pull_once(wait_seconds=0)


async def test_a_forged_bookmark_is_refused(tmp_path: Path) -> None:
    async with pair(tmp_path) as both:
        both.sender.tamper = lambda lines: [*lines[:-1], {**lines[-1], "count": 7}]
        with pytest.raises(PeerProblem, match="signature"):
            await both.puller.pull_once(wait_seconds=0)


async def test_a_line_that_is_missing_is_noticed_and_read_again(tmp_path: Path) -> None:
    async with pair(tmp_path) as both:
        await both.put("urn:ex:a")
        await both.put("urn:ex:b")
        both.sender.tamper = lambda lines: [line for line in lines if line.get("id") != "urn:ex:a"]  # lost on the way
        await both.pull(2)
        assert not both.puller.view().complete
        both.sender.tamper = lambda lines: lines
        await both.pull(5)
        assert both.puller.view().complete
        assert await both.ids() == {"urn:ex:a", "urn:ex:b"}


async def test_poisoned_records_are_parked(tmp_path: Path) -> None:
    async with pair(tmp_path) as both:
        for number in range(4):
            await both.put(f"urn:ex:{number}")

        def poison(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
            for line in lines[:-1]:
                if line["id"] == "urn:ex:0":
                    line["documents"][0]["document"] += " "  # not the bytes of the digest
                if line["id"] == "urn:ex:1":
                    line["id"] = line["origin"]["id"] = "urn:ex:stolen"  # documents of another agent
                if line["id"] == "urn:ex:2":
                    line["origin"]["path"] = ["urn:uuid:1", "urn:uuid:2", "urn:uuid:3"]
            return lines

        both.sender.tamper = poison
        await both.pull(1)
        assert await both.ids() == {"urn:ex:3"}
        assert both.puller.view().parked_reasons == {"digest": 1, "other_id": 1, "too_many_hops": 1}


class WrittenNotes:
    """The notes that a registry writes from now on."""

    def __init__(self, bench: Bench) -> None:
        self.written: dict[str, bytes | None] = {}
        bench.registry.subscribe_notes(self.written.update)

    def count_bytes(self) -> int:
        return sum(len(name) + len(value or b"") for name, value in self.written.items())


def _spoil_documents(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    for line in lines[:-1]:
        for document in line["documents"]:
            document["document"] += " "  # not the bytes of the digest
    return lines


async def test_a_page_writes_only_the_parked_records_that_it_changes(tmp_path: Path) -> None:
    async with pair(tmp_path) as both:
        both.sender.tamper = _spoil_documents
        for number in range(40):
            await both.put(f"urn:ex:{number}:" + "x" * 400)
        notes = WrittenNotes(both.here)
        await both.pull()
        whole = notes.count_bytes()
        assert whole > 40 * 400
        assert both.puller.view().parked_reasons == {"digest": 40}
        notes.written.clear()
        await both.put("urn:ex:7:" + "x" * 400, description="Now it does more.", version="2")
        await both.pull(1)
        assert 400 < notes.count_bytes() < whole / 10
        assert (both.puller.view().parked_reasons, both.puller.is_complete) == ({"digest": 40}, True)


async def test_parked_records_survive_a_restart_and_go_with_their_peer(tmp_path: Path) -> None:
    async with pair(tmp_path) as both:
        both.sender.tamper = _spoil_documents
        ids = {"urn:ex:a", "urn:ex:b:c", "urn:ex:\u0000%\U0010ffff", "\U0010ffff"}
        peers, registry = both.peers.store, both.here.registry
        for agent_id in ("urn:ex:a", "urn:ex:b:c"):
            await both.put(agent_id)
        await both.pull()
        for agent_id in ids:
            await peers.park("there", agent_id, "etag", "other_id")
        restarted = PeerStore(registry)
        await restarted.load()
        assert restarted.parked("there") == dict.fromkeys(ids, ("etag", "other_id"))
        await both.peers.remove(ADMIN, "there")
        await restarted.load()
        assert restarted.parked("there") == {}
        assert await registry.notes("peer-") == []


async def test_a_note_of_all_parked_records_of_a_development_version_is_read_over(tmp_path: Path) -> None:
    async with pair(tmp_path) as both:
        value = b'{"urn:ex:a": ["etag", "digest"]}'

        def decide(_: StoreState) -> Decision:
            return Decision(outcome="saved", notes={"peer-parked:there": value})

        await both.here.registry.execute(Command(keys=(), decide=decide))
        restarted = PeerStore(both.here.registry)
        await restarted.load()
        assert (restarted.parked("there"), restarted.get("there").name) == ({}, "there")


async def test_no_more_records_are_parked_than_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PEER_PARKED", 3)
    async with pair(tmp_path) as both:
        both.sender.tamper = _spoil_documents
        for number in range(5):
            await both.put(f"urn:ex:{number}")
        await both.pull()
        assert both.puller.view().parked == 3
        both.sender.tamper = lambda lines: lines
        for number in range(5):
            await both.put(f"urn:ex:{number}", description="Now it does more.", version="2")
        await both.pull()
        assert (both.puller.view().parked, len(await both.ids())) == (0, 5)


async def test_lines_that_cannot_be_read_count_once_however_often_they_come(tmp_path: Path) -> None:
    async with pair(tmp_path) as both:
        await both.put("urn:ex:good")
        await both.pull()
        both.sender.tamper = lambda lines: [*({"type": "updated"} for _ in lines[:-1]), lines[-1]]
        for version in "123":
            await both.put("urn:ex:a", version=version)
            await both.put("urn:ex:b", version=version)
            await both.pull(1)
            assert both.puller.view().parked_reasons == {"unreadable": 2}
        await both.put("urn:ex:c")
        for _ in range(3):
            with suppress(PeerProblem):
                await both.pull(2)  # everything again: three new ones, and the one that could be read before
        assert both.puller.view().parked_reasons == {"unreadable": 4}
        both.sender.tamper = lambda lines: lines
        for _ in range(6):
            with suppress(PeerProblem):
                await both.pull(1)
        assert (both.puller.view().parked, both.puller.is_complete) == (0, True)


async def test_its_own_records_do_not_come_back(tmp_path: Path) -> None:
    async with pair(tmp_path) as both:
        own = await both.here.registry.service_id()
        await both.put("urn:ex:a")

        def via_us(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
            for line in lines[:-1]:
                line["origin"]["path"] = [own]
            return lines

        both.sender.tamper = via_us
        await both.pull(1)
        assert await both.ids() == set()
        assert both.puller.view().parked_reasons == {"own_record": 1}


async def test_only_the_namespaces_are_taken(tmp_path: Path) -> None:
    async with pair(tmp_path, namespaces=("urn:good:*",)) as both:
        await both.put("urn:good:a")
        await both.put("urn:bad:a")
        await both.pull()
        assert await both.ids() == {"urn:good:a"}


async def test_a_peer_makes_nothing_verified(tmp_path: Path) -> None:
    async with pair(tmp_path) as both:
        await both.put("urn:ex:a", trust={"level": "verified"})
        await both.pull()
        (entry,) = [entry for entry in both.here.registry.entries if entry.id == "urn:ex:a"]
        assert entry.trust == "self_asserted"


async def test_missing_records_go_after_two_snapshots_and_many_stop_the_pull(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with pair(tmp_path) as both:
        for number in range(5):
            await both.put(f"urn:ex:{number}")
        await both.pull()
        both.sender.tamper = lambda lines: [line for line in lines if line.get("id") != "urn:ex:0"]
        both.puller.restart_snapshot()
        await both.pull(1)
        assert "urn:ex:0" in await both.ids()  # one snapshot is no proof
        both.puller.restart_snapshot()
        await both.pull(1)
        assert "urn:ex:0" not in await both.ids()
        monkeypatch.setattr(limits, "PEER_BRAKE_RECORDS", 2)
        both.sender.tamper = lambda lines: lines[-1:]
        both.puller.restart_snapshot()
        await both.pull(1)
        both.puller.restart_snapshot()
        with pytest.raises(PeerProblem, match="paused"):
            await both.pull(1)
        assert len(await both.ids()) == 4
        assert both.puller.view().state == "paused"


async def test_an_old_cursor_leads_to_a_snapshot(tmp_path: Path) -> None:
    async with pair(tmp_path) as both:
        await both.put("urn:ex:a")
        await both.pull()
        both.sender.status = 410
        await both.puller.pull_once(wait_seconds=0)
        both.sender.status = None
        await both.put("urn:ex:b")
        await both.pull()
        assert await both.ids() == {"urn:ex:a", "urn:ex:b"}
        assert both.puller.view().complete


async def test_removing_a_peer_takes_all_of_its_records(tmp_path: Path) -> None:
    async with pair(tmp_path) as both:
        await both.put("urn:ex:a")
        await both.put("urn:ex:mine", bench=both.here, subject="bob")
        await both.pull()
        assert await both.peers.remove(ADMIN, "there") == 1
        assert await both.ids() == {"urn:ex:mine"}
        assert both.peers.list() == ()


async def test_a_peer_that_is_this_registry_is_refused(tmp_path: Path) -> None:
    async with service(tmp_path / "here", anonymous_read=True) as here:
        peers = PeerService(here.registry, InProcess(here), lambda may_reexport: here.application.peers.feed)
        with pytest.raises(FetchFailed, match="this registry itself"):
            await peers.add(ADMIN, PeerRequest(url="http://here.example"))


async def test_re_exported_records_name_the_way(tmp_path: Path) -> None:
    async with pair(tmp_path, reexport=True, visibility="public") as both:
        await both.put("urn:ex:a")
        await both.pull()
        feed = both.here.application.peers
        await feed.store.load()
        lines = [json.loads(line) for line in (await feed.feed.page(None, limit=10, wait_seconds=0)).splitlines()]
        (line,) = lines[:-1]
        assert line["origin"]["service"] == "http://there.example"
        assert line["origin"]["via"] == ["http://here.example"]
        assert lines[-1]["count"] == 1


async def test_copies_are_not_passed_on_by_default(tmp_path: Path) -> None:
    async with pair(tmp_path, visibility="public") as both:
        await both.put("urn:ex:a")
        await both.pull()
        body = await both.here.application.peers.feed.page(None, limit=10, wait_seconds=0)
        assert len(body.splitlines()) == 1


def test_the_backoff_grows_to_a_bound_and_is_spread() -> None:
    waits = [backoff_seconds(failures) for failures in range(1, 40)]
    assert max(waits) <= limits.PEER_BACKOFF_MAX_SECONDS
    assert waits[0] <= limits.PEER_BACKOFF_SECONDS
    assert len(set(waits[10:])) > 20


@pytest.mark.parametrize(
    ("request_", "path"),
    [
        ({}, "$.url"),
        ({"url": "ftp://x.example"}, "$.url"),
        ({"url": "https://x.example", "name": "Not A Name"}, "$.name"),
        ({"url": "https://x.example", "kind": "gopher"}, "$.kind"),
        ({"url": "https://x.example", "visibility": "secret"}, "$.visibility"),
        ({"url": "https://x.example", "pull": "yes"}, "$.pull"),
        ({"url": "https://x.example", "every_seconds": 0}, "$.every_seconds"),
        ({"url": "https://x.example", "colour": "red"}, "$.colour"),
    ],
)
async def test_a_bad_request_names_the_member(tmp_path: Path, request_: dict[str, Any], path: str) -> None:
    async with service(tmp_path) as bench:
        response = await bench.admin().post("/api/v1/peers", json=request_)
        assert response.status_code == 400
        assert response.json()["path"] == path


async def test_peers_are_for_admins(tmp_path: Path) -> None:
    async with service(tmp_path, anonymous_read=True) as bench:
        assert (await bench.anonymous().get("/api/v1/peers")).status_code == 401
        assert (await bench.as_("alice").get("/api/v1/peers")).status_code == 403
        assert (await bench.as_("alice").post("/api/v1/peers", json={"url": "https://x.example"})).status_code == 403
        assert (await bench.admin().get("/api/v1/peers/none")).status_code == 404


async def test_the_feed_refuses_what_it_did_not_issue(tmp_path: Path) -> None:
    async with service(tmp_path, anonymous_read=True) as bench:
        client = bench.anonymous()
        assert (await client.get("/api/v1/feed?from=nonsense")).status_code == 400
        assert (await client.get("/api/v1/feed?wait=31")).status_code == 400
        assert (await client.get("/api/v1/feed?wait=never")).status_code == 400
        assert (await client.get("/api/v1/feed?limit=0")).status_code == 400
        watch = bench.registry.changes.cursor(0)
        assert (await client.get("/api/v1/feed", params={"from": watch})).status_code == 400


async def test_the_feed_needs_a_token_unless_reading_is_open(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        assert (await bench.anonymous().get("/api/v1/feed?wait=0")).status_code == 401
        assert (await bench.as_("alice").get("/api/v1/feed?wait=0")).status_code == 200


async def test_bookmarks_tell_nothing_of_hidden_changes(tmp_path: Path) -> None:
    async with service(tmp_path, anonymous_read=True) as bench:
        client = bench.anonymous()
        first = json.loads((await client.get("/api/v1/feed?wait=0")).content)
        second = json.loads((await client.get("/api/v1/feed?wait=0")).content)
        assert first["cursor"] != second["cursor"]
        assert len(first["cursor"]) == len(second["cursor"])
        await bench.as_("alice").post(
            "/api/v1/agents", json=profile("urn:ex:p"), headers={"Waypost-Visibility": "private"}
        )
        third = json.loads((await client.get("/api/v1/feed", params={"wait": 0, "from": first["cursor"]})).content)
        assert (third["count"], third["digest"]) == (first["count"], first["digest"])


async def test_a_hidden_change_ends_no_wait_for_the_feed(tmp_path: Path) -> None:
    """V1, V2: when something hidden changed, and how often, is not told by when the feed answers."""
    async with service(tmp_path, anonymous_read=True) as bench:
        feed, alice = bench.application.peers.feed, bench.as_("alice")
        start = json.loads(await feed.page(None, limit=10, wait_seconds=0))["cursor"]
        waiting = asyncio.ensure_future(feed.page(start, limit=10, wait_seconds=60))
        for version in "12345":
            await put_hidden(bench, "urn:ex:hidden", version=version)
            await let_others_run()
            assert not waiting.done()
        await alice.post("/api/v1/agents", json=profile("urn:ex:shown"))
        *changes, _ = [json.loads(line) for line in (await waiting).splitlines()]
        assert [change["id"] for change in changes] == ["urn:ex:shown"]


@pytest.mark.parametrize("limit", [1, 2, 10])
async def test_hidden_changes_fill_no_page_of_the_feed(tmp_path: Path, limit: int) -> None:
    """V1: the pages of a feed with and without hidden changes are equal."""
    read = []
    for number in (0, 2, limits.WATCH_BATCH):
        async with service(tmp_path / str(number), anonymous_read=True) as bench:
            feed, alice = bench.application.peers.feed, bench.as_("alice")
            cursor, pages = json.loads(await feed.page(None, limit=10, wait_seconds=0))["cursor"], []
            for name in ("urn:ex:a", "urn:ex:b", "urn:ex:c"):
                for version in range(number):
                    await put_hidden(bench, f"urn:ex:hidden-{name[-1]}", version=str(version))
                await alice.post("/api/v1/agents", json=profile(name))
            await put_hidden(bench, "urn:ex:hidden")
            for _ in range(4):
                *changes, mark = [
                    json.loads(line) for line in (await feed.page(cursor, limit=limit, wait_seconds=0)).splitlines()
                ]
                cursor = mark["cursor"]
                pages.append(([change["id"] for change in changes], mark["count"], mark.get("digest")))
            read.append(pages)
    assert read[0] == read[1] == read[2]
    assert [each for ids, _, _ in read[0] for each in ids] == ["urn:ex:a", "urn:ex:b", "urn:ex:c"]


async def test_an_agent_that_was_hidden_and_then_changed_is_withdrawn_at_peers(tmp_path: Path) -> None:
    async with pair(tmp_path) as both:
        await both.put("urn:ex:a")
        await both.pull()
        assert await both.ids() == {"urn:ex:a"}
        await put_hidden(both.there, "urn:ex:a", version="2")
        await put_hidden(both.there, "urn:ex:a", version="3")
        await both.pull()
        assert await both.ids() == set()


async def put_hidden(bench: Bench, agent_id: str, **members: str) -> None:
    hidden = {"Waypost-Visibility": "private"}
    answer = await bench.as_("alice").post("/api/v1/agents", json=profile(agent_id, **members), headers=hidden)
    assert answer.is_success, answer.text


async def let_others_run() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_no_credential_can_be_a_peer(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        body = {"sub": "urn:waypost:peer:there", "scopes": ["discover:write"]}
        assert (await bench.admin().post("/api/v1/apikeys", json=body)).status_code == 400
        body = {"sub": "urn:waypost:peer:there", "scopes": ["discover:write"], "ttl_seconds": 60}
        assert (await bench.admin().post("/api/v1/tokens", json=body)).status_code == 400


async def test_a_peer_cannot_speak_for_another_origin(tmp_path: Path) -> None:
    """FED-5: the last service of the path must be the one that signed the page, or a peer could replace copies of others."""
    async with pair(tmp_path) as both:
        await both.put("urn:ex:a")
        await both.put("urn:ex:b")

        def pretend(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
            for line in lines[:-1]:
                if line["id"] == "urn:ex:a":
                    line["origin"]["service_id"] = "urn:uuid:0"  # directly from another service
                else:
                    line["origin"]["path"] = ["urn:uuid:0"]  # by way of another one
            return lines

        both.sender.tamper = pretend
        await both.pull(1)
        assert await both.ids() == set()
        assert both.puller.view().parked_reasons == {"other_path": 2}


async def test_of_two_origins_the_one_with_more_authority_counts(tmp_path: Path) -> None:
    """A copy from a peer that was granted the namespace goes before other copies; the origin itself before both."""
    async with service(tmp_path) as bench:
        registry = bench.registry

        def copy(peer: str, origin: str, *, path: tuple[str, ...] = ("urn:uuid:x",), granted: bool = False) -> Command:
            document = json.dumps(profile("urn:ex:a", name=peer)).encode()
            dialect, decoded = registry.decode(document)
            publication = Publication(
                dialect=dialect, document=document, decoded=decoded, principal=peer_principal(peer), via="peer"
            )
            federation = Federation(
                peer=peer,
                origin_service=origin,
                origin_id="urn:ex:a",
                received_at=0.0,
                service_id=origin,
                path=path,
                is_granted=granted,
            )
            record = MirroredRecord(publications=(publication,), federation=federation, visibility="public")
            return registry.mirror_command(record)

        async def name_after(command: Command) -> str:
            await registry.execute_all((command,))
            (found,) = await registry.registrations(["urn:ex:a"])
            return found.record.name

        assert await name_after(copy("first", "urn:uuid:1")) == "first"
        assert await name_after(copy("second", "urn:uuid:2")) == "first"
        assert await name_after(copy("granted", "urn:uuid:3", granted=True)) == "granted"
        assert await name_after(copy("fourth", "urn:uuid:4", granted=True)) == "granted"
        assert await name_after(copy("origin", "urn:uuid:5", path=())) == "origin"
        assert await name_after(copy("granted", "urn:uuid:3", granted=True)) == "origin"
        assert await name_after(copy("other", "urn:uuid:6", path=())) == "origin"


@pytest.mark.parametrize("member", ["service", "via"])
async def test_an_origin_is_an_address_of_the_web(tmp_path: Path, member: str) -> None:
    """FED-2: users follow it."""
    async with pair(tmp_path) as both:
        await both.put("urn:ex:a")

        def poison(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
            for line in lines[:-1]:
                line["origin"][member] = "javascript:alert(1)" if member == "service" else ["javascript:alert(1)"]
            return lines

        both.sender.tamper = poison
        await both.pull(1)
        assert await both.ids() == set()
        assert both.puller.view().parked_reasons == {"no_origin": 1}


async def mirror_copy(
    bench: Bench, name: str, *, revision: int, peer: str = "relay", path: tuple[str, ...] = ("urn:uuid:relay",)
) -> None:
    """Store a copy of urn:ex:a, which a peer says is from the registry urn:uuid:origin."""
    document = json.dumps(profile("urn:ex:a", name=name)).encode()
    dialect, decoded = bench.registry.decode(document)
    publication = Publication(
        dialect=dialect, document=document, decoded=decoded, principal=peer_principal(peer), via="peer"
    )
    federation = Federation(
        peer=peer,
        origin_service="http://origin.example",
        origin_id="urn:ex:a",
        received_at=0.0,
        service_id="urn:uuid:origin",
        path=path,
        revision=revision,
    )
    copy = MirroredRecord(publications=(publication,), federation=federation, visibility="public")
    await bench.registry.execute_all((bench.registry.mirror_command(copy),))


@pytest.mark.parametrize("is_first", [True, False], ids=["before the origin", "after it"])
async def test_no_revision_that_a_peer_on_the_way_claims_beats_the_origin(tmp_path: Path, is_first: bool) -> None:
    """FED-5: the origin's own feed has more authority than what others say about it."""
    async with service(tmp_path) as bench:
        if is_first:
            await mirror_copy(bench, "Forged", revision=1 << 62)
        await mirror_copy(bench, "Genuine", revision=7, peer="origin", path=())
        await mirror_copy(bench, "Forged", revision=1 << 62)
        (found,) = await bench.registry.registrations(["urn:ex:a"])
        assert (found.record.name, found.owner) == ("Genuine", peer_subject("origin"))
        rule = withdraw_mirrored("urn:ex:a", "origin", 8, "withdrawn", now=bench.clock.now())
        await bench.registry.execute_all((Command(keys=("urn:ex:a",), decide=rule),))
        await mirror_copy(bench, "Forged", revision=1 << 62)  # FED-13: withdrawn by the origin itself
        assert await bench.registry.registrations(["urn:ex:a"]) == []
        await mirror_copy(bench, "Again", revision=9, peer="origin", path=())
        (found,) = await bench.registry.registrations(["urn:ex:a"])
        assert found.record.name == "Again"


async def test_a_peer_cannot_pass_for_another_one(tmp_path: Path) -> None:
    """FED-5: the id of a service is its own word; with another key it is an impostor, from the beginning or later."""
    async with pair(tmp_path) as both:
        await both.put("urn:ex:a", name="Genuine")
        await both.pull()
        evil = WaypostSite()
        evil.service_id = both.puller.state.service_id
        both.peers._kinds.sources["waypost"]._requests._sender = evil  # type: ignore[attr-defined]
        with pytest.raises(FetchFailed, match="claims to be the registry of the peer there"):
            await both.peers.add(ADMIN, PeerRequest(url="http://evil.example", name="evil"))
        evil.service_id = "urn:uuid:00000000-0000-4000-8000-000000000666"
        await both.peers.add(ADMIN, PeerRequest(url="http://evil.example", name="evil", pull=False))
        evil.service_id = both.puller.state.service_id
        evil.names = ["a"]
        with pytest.raises(PeerProblem, match="claims to be the registry of the peer there"):
            await both.peers._pullers["evil"].pull_once(wait_seconds=0)
        assert (await both.get("urn:ex:a"))["name"] == "Genuine"


class Paged:
    """A feed that sends these pages, whatever was asked for: a cursor, names of agents, and whether more is waiting."""

    def __init__(self, next_page: Callable[[int], tuple[str, Sequence[str], bool]]) -> None:
        self.next_page = next_page
        self.answers = 0

    def check(self, url: str, purpose: FetchPurpose) -> None: ...

    async def send(self, url: str, purpose: FetchPurpose, **_: Any) -> FetchResponse:
        cursor, names, is_more = self.next_page(self.answers)
        self.answers += 1
        site = WaypostSite()
        site.names, site.cursor, site.is_more = list(names), cursor, is_more
        status, headers, body = site.answer("/api/v1/feed", {}, {})
        return FetchResponse(url=url, status=status, headers=headers, body=body)


async def pull_pages(puller: Puller, pages: int) -> None:
    for _ in range(pages):
        await puller.pull_once(wait_seconds=0)


@pytest.mark.parametrize(
    ("next_page", "reason"),
    [
        (lambda _: ("again", ["a"], False), "cursor does not move"),
        (lambda _: ("again", [], True), "cursor does not move"),
        (lambda answer: ("abc"[answer % 3], ["a"], False), "goes round in a circle"),
        (lambda answer: ("abc"[answer % 3], [], True), "goes round in a circle"),
        (lambda answer: (f"c{answer}", [f"a{n}" for n in range(50)], True), "without an end"),
        (lambda answer: (f"c{answer}", [], True), "without an end"),
    ],
    ids=["same cursor", "same cursor, nothing", "circle", "circle of nothing", "repetitions", "nothing for ever"],
)
async def test_a_peer_without_an_end_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, next_page: Any, reason: str
) -> None:
    """FED-16: it is named with the reason, and asked again after a pause only."""
    monkeypatch.setattr(limits, "PEER_PAGES", 60)
    async with service(tmp_path, sender=Paged(next_page)) as here:
        peers = here.application.peers
        await peers.add(ADMIN, PeerRequest(url="http://there.example", name="there", pull=False))
        puller = peers._pullers["there"]
        for pages in (200, 4):
            with pytest.raises(PeerProblem, match=reason):
                await pull_pages(puller, pages)


async def test_a_page_that_could_not_be_stored_is_no_circle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pages = [("a", ["one"], True), ("b", ["two"], True), ("b", ["two"], True), ("c", ["one", "two"], False)]
    async with service(tmp_path, sender=Paged(lambda answer: pages[max(0, answer - 1)])) as here:
        peers = here.application.peers
        await peers.add(ADMIN, PeerRequest(url="http://there.example", name="there", pull=False))
        puller = peers._pullers["there"]
        await puller.pull_once(wait_seconds=0)
        with monkeypatch.context() as full:

            async def refuse(*_: object) -> None:
                raise StorageFull("The disk is full.")

            full.setattr(peers.store, "commit_page", refuse)
            with pytest.raises(StorageFull):
                await puller.pull_once(wait_seconds=0)
        await puller.pull_once(wait_seconds=0)
        await puller.pull_once(wait_seconds=0)
        assert puller.view().complete


async def test_a_peer_that_signs_what_it_does_not_send_is_named(tmp_path: Path) -> None:
    """FED-14, 16: everything is read again once; then it is left alone, and nothing is removed."""
    async with pair(tmp_path) as both:
        await both.put("urn:ex:a")
        await both.put("urn:ex:b")
        await both.pull()
        await both.put("urn:ex:c")
        both.sender.tamper = lambda lines: [line for line in lines if line.get("id") != "urn:ex:c"]
        with pytest.raises(PeerProblem, match="history has forked"):
            await both.pull(12)
        assert await both.ids() == {"urn:ex:a", "urn:ex:b"}
        both.sender.tamper = lambda lines: lines
        await both.pull()
        view = both.puller.view()
        assert (view.complete, view.error, view.state) == (True, None, "current")


async def test_a_copy_comes_back_when_the_local_agent_is_gone(tmp_path: Path) -> None:
    async with pair(tmp_path) as both:
        await both.put("urn:ex:a", name="Theirs")
        await both.put("urn:ex:b", name="Theirs", bench=both.here, subject="bob")
        await both.put("urn:ex:b", name="Theirs")
        await both.pull()
        await both.put("urn:ex:a", bench=both.here, subject="bob", name="Ours")
        await both.pull()
        for agent_id in ("urn:ex:a", "urn:ex:b"):
            assert (await both.here.as_("bob").delete(f"/api/v1/agents/{agent_id}")).is_success
        assert await both.ids() == set()
        both.here.clock.advance(limits.PEER_REFRESH_SECONDS)
        both.puller.refresh()
        await both.pull()
        assert (await both.get("urn:ex:a"))["federation"]["peer"] == "there"
        assert (await both.get("urn:ex:b"))["federation"]["peer"] == "there"
        assert both.puller.view().parked == 0
        requests = len(both.sender.requests)
        assert (await both.there.as_("alice").delete("/api/v1/agents/urn:ex:a")).is_success
        await both.pull()
        both.here.clock.advance(limits.PEER_REFRESH_SECONDS)
        both.puller.refresh()  # its own withdrawal is no reason to read everything again
        await both.pull(1)
        assert all("from=" in request for request in both.sender.requests[requests:])
        assert await both.ids() == {"urn:ex:b"}


async def test_everything_is_read_again_for_freed_agents_now_and_then_only(tmp_path: Path) -> None:
    """Who registers and withdraws an id of a peer for ever costs one reading a minute."""
    async with pair(tmp_path) as both:
        await both.put("urn:ex:a")
        await both.pull()
        for expected in (1, 0):
            await both.put("urn:ex:a", bench=both.here, subject="bob")
            assert (await both.here.as_("bob").delete("/api/v1/agents/urn:ex:a")).is_success
            both.sender.requests.clear()
            both.here.clock.advance(limits.PEER_REFRESH_SECONDS)
            both.puller.refresh()
            await both.pull(2)
            assert sum("from=" not in request for request in both.sender.requests) == expected
        both.here.clock.advance(limits.PEER_REFRESH_PAUSE_SECONDS)
        both.puller.refresh()
        await both.pull(2)
        assert await both.ids() == {"urn:ex:a"}


CARD = card("twin")


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
async def test_one_card_under_two_ids_is_one_record(tmp_path: Path, order: tuple[int, int]) -> None:
    """The same document of two registries: the second id becomes an alias, and goes with its origin."""
    ids = ("https://cards.example/twin.json", "https://twin.example.com/a2a")  # by its address, and by its content
    urls = ("https://cards.example/twin.json", None)
    network = Network()
    async with (
        service(tmp_path / "0", anonymous_read=True, base_url="http://zero.example") as zero,
        service(tmp_path / "1", anonymous_read=True, base_url="http://one.example") as one,
        service(tmp_path / "here", base_url="http://here.example", sender=network) as here,
    ):
        network.benches = {"zero.example": zero, "one.example": one}
        for bench, url in zip((zero, one), urls, strict=True):
            await register_card(bench, url)
        peers = here.application.peers
        for name in ("zero", "one"):
            await peers.add(ADMIN, PeerRequest(url=f"http://{name}.example", name=name, pull=False))
        pullers = [peers._pullers[("zero", "one")[number]] for number in order]
        first, second = (ids[number] for number in order)
        for puller in pullers:
            await pull_pages(puller, 2)
        (entry,) = here.registry.entries
        assert entry.id == first
        for agent_id in ids:
            found = await here.admin().get(f"/api/v1/agents/{quote(agent_id, safe='')}")
            assert found.json()["id"] == first
        views = [puller.view() for puller in pullers]
        assert [view.complete for view in views] == [True, True]
        assert views[1].parked_reasons == {"alias": 1}
        origin = (zero, one)[order[0]]
        assert (await origin.admin().delete(f"/api/v1/agents/{quote(first, safe='')}")).is_success
        await pull_pages(pullers[0], 1)
        pullers[1].refresh()
        here.clock.advance(limits.PEER_REFRESH_SECONDS)
        pullers[1].refresh()
        await pull_pages(pullers[1], 2)
        (entry,) = here.registry.entries
        assert entry.id == second  # the other registry still has it
        assert pullers[1].view().parked == 0


async def test_an_alias_goes_with_its_origin(tmp_path: Path) -> None:
    network = Network()
    async with (
        service(tmp_path / "0", anonymous_read=True, base_url="http://zero.example") as zero,
        service(tmp_path / "1", anonymous_read=True, base_url="http://one.example") as one,
        service(tmp_path / "here", base_url="http://here.example", sender=network) as here,
    ):
        network.benches = {"zero.example": zero, "one.example": one}
        await register_card(one, None)
        await register_card(zero, "https://cards.example/twin.json")
        peers = here.application.peers
        for name in ("one", "zero"):
            await peers.add(ADMIN, PeerRequest(url=f"http://{name}.example", name=name, pull=False))
            await pull_pages(peers._pullers[name], 2)
        alias = quote("https://cards.example/twin.json", safe="")
        assert (await here.admin().get(f"/api/v1/agents/{alias}")).is_success
        assert (await zero.admin().delete(f"/api/v1/agents/{alias}")).is_success
        await pull_pages(peers._pullers["zero"], 1)
        assert (await here.admin().get(f"/api/v1/agents/{alias}")).status_code == 404
        assert len(here.registry.entries) == 1


async def register_card(bench: Bench, url: str | None) -> None:
    publication = Publication(
        dialect="a2a",
        document=json.dumps(CARD).encode(),
        decoded=decode_document(json.dumps(CARD).encode(), "a2a", DecodeContext(now=NOW, source_url=url))[2],
        principal=ADMIN,
        via="http",
        source_url=url,
    )
    await bench.registry.publish(publication)


@pytest.mark.parametrize(
    ("members", "expected"),
    [({}, 1), ({"name": "Somebody else"}, 2), ({"endpoint": "https://else.example.com/"}, 2), ({"key": 2}, 2)],
    ids=["one agent", "another name", "another endpoint", "another key"],
)
async def test_a_bound_key_and_an_endpoint_make_one_agent(
    tmp_path: Path, members: dict[str, Any], expected: int
) -> None:
    """Two registries know it under different ids, and both ids are bound to its key here."""
    network, ids = Network(), ("urn:ex:first", "urn:ex:second")
    async with (
        service(tmp_path / "0", anonymous_read=True, base_url="http://zero.example") as zero,
        service(tmp_path / "1", anonymous_read=True, base_url="http://one.example") as one,
        service(tmp_path / "here", base_url="http://here.example", sender=network) as here,
    ):
        network.benches = {"zero.example": zero, "one.example": one}
        peers = here.application.peers
        for number, (name, bench) in enumerate((("zero", zero), ("one", one))):
            chosen = members if number else {}
            key = key_of(number=chosen.get("key", 1))
            endpoint = chosen.get("endpoint", "https://one.example.com/")
            binding = {"protocol": "https", "endpoint": endpoint}
            document = profile(ids[number], name=chosen.get("name", "Same"), bindings=[binding])
            answer = await bench.admin().post("/api/v1/agents", json=sign_profile(document, key))
            assert answer.is_success, answer.text
            pinned = {"agent_id": ids[number], "public_key": key.public.pem()}
            assert (await here.admin().post("/api/v1/keys", json=pinned)).is_success
            await peers.add(ADMIN, PeerRequest(url=f"http://{name}.example", name=name, pull=False))
            await pull_pages(peers._pullers[name], 2)
        assert len(here.registry.entries) == expected
        second = (await here.admin().get(f"/api/v1/agents/{ids[1]}")).json()["id"]
        assert second == ids[0] if expected == 1 else ids[1]
        assert peers.show("one").parked_reasons == ({"alias": 1} if expected == 1 else {})
        assert peers.show("one").complete
        assert (await zero.admin().delete(f"/api/v1/agents/{ids[0]}")).is_success
        await pull_pages(peers._pullers["zero"], 1)
        puller = peers._pullers["one"]
        puller.refresh()
        here.clock.advance(limits.PEER_REFRESH_SECONDS)
        puller.refresh()
        await pull_pages(puller, 2)
        assert [entry.id for entry in here.registry.entries] == [ids[1]]  # its own registry still has it


@asynccontextmanager
async def twins(tmp_path: Path, **members: Any) -> AsyncIterator[Pair]:
    """`urn:ex:ours`, which is local, and `urn:ex:theirs` of the peer are one agent, by a key that is bound to both ids."""
    async with pair(tmp_path) as both:
        for agent_id in ("urn:ex:ours", "urn:ex:theirs"):
            pinned = {"agent_id": agent_id, "public_key": key_of(number=1).public.pem()}
            assert (await both.here.admin().post("/api/v1/keys", json=pinned)).is_success
        await put_twin(both.here, "urn:ex:ours", **members)
        await put_twin(both.there, "urn:ex:theirs")
        await both.pull()
        assert await both.ids() == {"urn:ex:ours"}
        assert (await both.get("urn:ex:theirs"))["id"] == "urn:ex:ours"
        assert both.puller.view().parked_reasons == {"alias": 1}
        yield both


async def put_twin(bench: Bench, agent_id: str, **members: Any) -> None:
    document = sign_profile(profile(agent_id, **{"name": "Same", **members}), key_of(number=1))
    response = await bench.as_("owner").post("/api/v1/agents", json=document)
    assert response.is_success, response.text


async def find_status(both: Pair, agent_id: str) -> int:
    return (await both.here.admin().get(f"/api/v1/agents/{agent_id}")).status_code


async def test_a_proven_copy_of_a_local_agent_is_a_name_of_it(tmp_path: Path) -> None:
    async with twins(tmp_path) as both:
        assert "federation" not in await both.get("urn:ex:ours")
        trail = (await both.here.admin().get("/api/v1/audit?action=alias")).json()["entries"]
        assert [(entry["object"], entry["subject"]) for entry in trail] == [("urn:ex:ours", "urn:waypost:peer:there")]
        assert (await both.there.admin().delete("/api/v1/agents/urn:ex:theirs")).is_success
        await both.pull()
        assert await both.ids() == {"urn:ex:ours"}
        assert await find_status(both, "urn:ex:theirs") == 404  # the name goes with the copy
        assert both.puller.view().parked == 0
        await put_twin(both.there, "urn:ex:theirs", description="It is back.")
        await both.pull()
        assert (await both.get("urn:ex:theirs"))["id"] == "urn:ex:ours"


async def test_a_snapshot_that_is_read_again_keeps_the_name(tmp_path: Path) -> None:
    async with twins(tmp_path) as both:
        revision = both.here.registry.changes.revision
        both.puller.restart_snapshot()
        await both.pull()
        assert both.puller.view().parked_reasons == {"alias": 1}
        assert both.here.registry.changes.revision == revision  # nothing changed
        await put_twin(both.here, "urn:ex:ours", description="Changed by its owner.")
        assert (await both.get("urn:ex:theirs"))["id"] == "urn:ex:ours"
        assert (await both.there.admin().delete("/api/v1/agents/urn:ex:theirs")).is_success
        await both.pull()
        assert await find_status(both, "urn:ex:theirs") == 404


async def test_a_copy_that_is_no_longer_the_same_agent_stands_for_itself(tmp_path: Path) -> None:
    async with twins(tmp_path) as both:
        await put_twin(both.there, "urn:ex:theirs", description="Still the same.")
        await both.pull()
        assert (await both.get("urn:ex:theirs"))["id"] == "urn:ex:ours"
        await put_twin(both.there, "urn:ex:theirs", name="Another one")
        await both.pull()
        assert await both.ids() == {"urn:ex:ours", "urn:ex:theirs"}
        assert (await both.get("urn:ex:theirs"))["name"] == "Another one"
        assert (both.puller.view().parked, both.puller.is_complete) == (0, True)


async def test_a_name_that_its_owner_gave_stays_when_the_copy_goes(tmp_path: Path) -> None:
    async with twins(tmp_path) as both:
        document = json.dumps(sign_profile(profile("urn:ex:ours", name="Same"), key_of(number=1))).encode()
        publication = Publication(
            dialect="profile",
            document=document,
            decoded=decode_document(document, "profile", DecodeContext(now=NOW))[2],
            principal=Principal(subject="owner"),
            via="http",
        )
        named = msgspec.structs.replace(publication.decoded, aliases=("urn:ex:theirs",))
        await both.here.registry.publish(msgspec.structs.replace(publication, decoded=named))
        assert (await both.there.admin().delete("/api/v1/agents/urn:ex:theirs")).is_success
        await both.pull()
        assert (await both.get("urn:ex:theirs"))["id"] == "urn:ex:ours"


@pytest.mark.parametrize("is_kept", [False, True])
async def test_names_go_with_the_peer_that_gave_them(tmp_path: Path, is_kept: bool) -> None:
    async with twins(tmp_path) as both:
        await both.put("urn:ex:other")
        await both.pull()
        assert await both.peers.remove(ADMIN, "there", keep=is_kept) == (0 if is_kept else 1)
        assert await both.ids() == ({"urn:ex:ours", "urn:ex:other"} if is_kept else {"urn:ex:ours"})
        assert await find_status(both, "urn:ex:theirs") == (200 if is_kept else 404)


async def test_a_name_goes_when_two_snapshots_lack_the_copy(tmp_path: Path) -> None:
    async with twins(tmp_path) as both:
        both.sender.tamper = lambda lines: [
            line for line in lines if line["id" if "id" in line else "type"] != "urn:ex:theirs"
        ]
        for _ in range(8):
            both.puller.restart_snapshot()
            with suppress(PeerProblem):
                await both.pull(1)
        assert await find_status(both, "urn:ex:theirs") == 404
        assert await both.ids() == {"urn:ex:ours"}


def change_origins(**members: Any) -> Tamper:
    """Replace members of the origin of every agent in a page."""

    def tamper(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [{**line, "origin": {**line["origin"], **members}} if "origin" in line else line for line in lines]

    return tamper


@pytest.mark.parametrize(
    "members",
    [{"revision": 1 << 64}, {"revision": -1}, {"service": "x" * 5000}, {"via": ["x"] * 50}, {"updated_at": "x" * 100}],
    ids=["a huge revision", "a negative revision", "a long service", "a long way", "a long time"],
)
async def test_an_origin_without_bounds_is_unreadable_and_removes_nothing(
    tmp_path: Path, members: dict[str, Any]
) -> None:
    async with pair(tmp_path) as both:
        await both.put("urn:ex:a")
        await both.pull()
        both.sender.tamper = change_origins(**members)
        await both.put("urn:ex:b")
        for _ in range(12):
            with suppress(PeerProblem):
                await both.pull(1)
        assert await both.ids() == {"urn:ex:a"}
        assert both.puller.view().parked_reasons["unreadable"] >= 1
        assert not both.puller.is_complete
        both.sender.tamper = lambda lines: lines
        await both.pull()
        assert await both.ids() == {"urn:ex:a", "urn:ex:b"}
        assert both.puller.is_complete


async def test_another_registry_at_the_address_is_named_and_removes_nothing(tmp_path: Path) -> None:
    """It does not know the cursor, so it is asked from the beginning, and then its key tells."""
    async with pair(tmp_path / "1") as both, service(tmp_path / "2", anonymous_read=True) as other:
        await both.put("urn:ex:a")
        await both.pull()
        both.sender.other = other
        with pytest.raises(PeerProblem, match="key has changed"):
            await both.pull()
        assert await both.ids() == {"urn:ex:a"}


@pytest.mark.parametrize("status", [400, 410])
async def test_a_peer_that_does_not_know_its_own_cursors_is_left_alone(tmp_path: Path, status: int) -> None:
    async with pair(tmp_path) as both:
        await both.put("urn:ex:a")
        send = both.sender.send

        async def forget(url: str, purpose: FetchPurpose, **members: Any) -> FetchResponse:
            response = await send(url, purpose, **members)
            return FetchResponse(url=url, status=status, headers={}) if "from=" in url else response

        both.sender.send = forget  # type: ignore[method-assign]
        with pytest.raises(PeerProblem, match="does not know the cursors"):
            await both.pull(20)
        assert await both.ids() == {"urn:ex:a"}


async def test_a_page_of_too_many_lines_is_not_read(tmp_path: Path) -> None:
    async with pair(tmp_path) as both:
        both.sender.body = b"{}\n" * 2_000_000
        with pytest.raises(PeerProblem, match="more than 2000 lines"):
            await both.pull(1)


async def test_a_redirect_is_named_and_not_followed(tmp_path: Path) -> None:
    async with pair(tmp_path) as both:
        both.sender.status, both.sender.headers = 302, {"location": "https://elsewhere.example/"}
        with pytest.raises(PeerProblem, match=r"redirects to 'https://elsewhere\.example/'"):
            await both.pull(1)
        assert all(url.startswith("http://there.example/") for url in both.sender.requests)


async def test_an_error_that_nobody_expected_is_named_and_does_not_end_the_pull(tmp_path: Path) -> None:
    async with pair(tmp_path) as both:
        await both.put("urn:ex:a")

        def fail(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
            raise ArithmeticError

        both.sender.tamper = fail
        task = asyncio.create_task(both.puller.run())
        try:
            async with asyncio.timeout(20):
                while both.puller.view().error is None:
                    await asyncio.sleep(0)
                assert "ArithmeticError" in (both.puller.view().error or "")
                both.sender.tamper = lambda lines: lines
                while not both.puller.is_complete:
                    both.puller.wake()
                    await asyncio.sleep(0)
        finally:
            await cancel_all([task])
        assert both.puller.view().error is None


async def test_a_list_without_pages_is_stored_in_parts(tmp_path: Path) -> None:
    """Its cursor moves with the last part; a pause ends it between two."""
    count = 2 * limits.PEER_BATCH + 10
    catalog = {"specVersion": "1.0", "entries": [catalog_entry(f"a{number}") for number in range(count)]}
    site = PeerSite()
    site.answer = lambda path, query, headers: (  # type: ignore[method-assign]
        (200, {"etag": '"1"'}, catalog) if path == "/ai-catalog.json" else (404, {}, b"")
    )
    async with service(tmp_path, base_url="http://here.example", sender=site) as here:
        peers = here.application.peers
        await peers.add(ADMIN, PeerRequest(url=f"{site.url}/ai-catalog.json", name="list", pull=False))
        puller, sizes = peers._pullers["list"], []

        def pause(committed: CommittedChange) -> None:
            if len(here.registry.entries) == limits.PEER_BATCH:
                sizes.append(puller.state.cursor)
                peers.store._peers["list"] = msgspec.structs.replace(puller.peer, paused=True)

        here.registry.subscribe(pause)
        await puller.pull_once(wait_seconds=0)
        assert (len(here.registry.entries), puller.state.cursor, sizes) == (limits.PEER_BATCH, None, [None])
        peers.store._peers["list"] = msgspec.structs.replace(puller.peer, paused=False)
        revision = here.registry.changes.revision
        await puller.pull_once(wait_seconds=0)
        assert len(here.registry.entries) == count
        assert (
            here.registry.changes.revision - revision == count - limits.PEER_BATCH
        )  # the first part is not told again
        assert puller.state.cursor is not None
        assert puller.is_complete


async def test_the_digest_follows_what_is_passed_on(tmp_path: Path) -> None:
    """A peer whose agents are passed on later, as by the settings: readers of the feed can still prove that they have all."""
    async with pair(tmp_path, visibility="public") as both:
        await both.put("urn:ex:a")
        await both.pull()
        peers = both.here.application.peers

        async def count() -> tuple[int, int]:
            lines = (await both.here.admin().get("/api/v1/feed?wait=0")).content.splitlines()
            return len(lines) - 1, json.loads(lines[-1])["count"]

        assert await count() == (0, 0)
        for is_on in (True, False):
            peer = msgspec.structs.replace(peers.store.get("there"), reexport=is_on)
            await peers.store.change(ADMIN, peer, "peer-change")
            assert await count() == (int(is_on), int(is_on))

"""Private agents and invitations (ADP-55, ADP-56, P-6)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import jsonschema
import pytest

from support.files import content
from support.service import Bench, profile
from support.signing import key_of
from support.tasks import BOB, TaskService, place
from waypost import limits
from waypost.protocols.adp.invitation import Invitation, parse_invitation
from waypost.responses.messaging import InvitationList, InvitationView, RedeemedInvitation
from waypost.server.http.openapi import answer_schema
from waypost.trust.keys.private_key import PrivateKey
from waypost.trust.keys.public_key import parse_pem

WELL_KNOWN = "/.well-known/agent.json"
DOMAIN = "vault.example.com"
AGENT = "urn:agent:vault"
INVITES = "/api/v1/invitations"


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[TaskService]:
    async with place(tmp_path) as made:
        await host(made.bench)
        yield made


async def host(bench: Bench, visibility: str = "private") -> None:
    alice = bench.as_("alice")
    await alice.post("/api/v1/agents", json=profile(AGENT, name="Vault"), headers={"Waypost-Visibility": visibility})
    answer = await bench.admin().post("/api/v1/agents/urn%3Aagent%3Avault:host", json={"domain": DOMAIN})
    assert answer.is_success, answer.text


async def at(client: httpx2.AsyncClient, path: str = WELL_KNOWN, **headers: str) -> httpx2.Response:
    return await client.get(path, headers={"Host": DOMAIN, "X-Request-Id": "the-same", **headers})


async def invite(here: TaskService, **members: Any) -> dict[str, Any]:
    answer = await here.bench.as_("alice").post(INVITES, json={"agent": AGENT, **members})
    assert answer.status_code == 201, answer.text
    jsonschema.validate(answer.json(), answer_schema(InvitationView))
    made: dict[str, Any] = answer.json()
    return made


def code_of(made: dict[str, Any]) -> str:
    return str(made["invitation"]["invite"]["code"])


@pytest.mark.req("ADP-55")
async def test_a_private_agent_is_absent_without_credentials(here: TaskService) -> None:
    bench = here.bench
    for path in (WELL_KNOWN, "/.well-known/agent-card.json", "/.well-known/ai-catalog.json"):
        assert (await at(bench.anonymous(), path)).status_code == 404, path
    for client in (bench.as_("carol"), bench.client("not-a-token")):
        assert (await at(client)).status_code == 404
    named = await bench.anonymous().get(WELL_KNOWN, params={"agent": AGENT})
    absent = await bench.anonymous().get(WELL_KNOWN, params={"agent": AGENT + "0"})
    assert named.status_code == absent.status_code == 404
    assert named.json()["message"] == absent.json()["message"].replace("vault0", "vault")


@pytest.mark.req("ADP-55")
async def test_a_private_agent_is_shown_to_the_tokens_that_may_see_it(here: TaskService) -> None:
    for client in (here.bench.as_("alice"), here.bench.admin()):
        answer = await at(client)
        assert answer.status_code == 200
        assert answer.json()["identity"]["id"] == f"agent:{DOMAIN}"
        assert "no-store" in answer.headers["cache-control"]
        assert "public" not in answer.headers["cache-control"]


@pytest.mark.req("ADP-55")
async def test_a_private_agent_has_no_records(here: TaskService) -> None:
    answer = await here.bench.as_("alice").get("/api/v1/dns/zone", params={"agent": AGENT})
    assert not answer.is_success


@pytest.mark.req("ADP-56")
async def test_an_invitation_has_the_members_of_the_draft_and_is_signed_by_the_agents_key(here: TaskService) -> None:
    made = await invite(here)
    shown = made["invitation"]
    assert shown["protocol"] == "ADP/1.1"
    assert shown["invite"]["agent"] == f"agent:{DOMAIN}"
    assert shown["invite"]["wellKnown"] == f"https://{DOMAIN}{WELL_KNOWN}"
    assert len(bytes.fromhex(shown["invite"]["code"])) * 8 >= 128
    document = (await at(here.bench.as_("alice"))).json()
    stated = document["identity"]["publicKey"]
    assert shown["invite"]["pubkey"] == stated["fingerprint"]
    invitation = parse_invitation(shown)
    key = parse_pem(stated["full"])
    lines = [shown["invite"][name] for name in ("code", "agent", "wellKnown", "pubkey", "expires")]
    assert invitation.signing_input.decode().split("\n") == lines
    assert invitation.is_signed_by(key)
    changed = parse_invitation({**shown, "invite": {**shown["invite"], "expires": "2036-01-01T00:00:00Z"}})
    assert not changed.is_signed_by(key)


@pytest.mark.req("ADP-55", "ADP-56")
@pytest.mark.parametrize("way", ["query", "header"])
async def test_a_code_opens_the_document_once(here: TaskService, way: str) -> None:
    code = code_of(await invite(here))
    anonymous = here.bench.anonymous()

    async def show() -> httpx2.Response:
        if way == "query":
            return await at(anonymous, f"{WELL_KNOWN}?invite={code}")
        return await at(anonymous, Authorization=f"ADP-Invite {code}")

    looked = await anonymous.head(f"{WELL_KNOWN}?invite={code}", headers={"Host": DOMAIN})
    assert looked.status_code == 200
    first = await show()
    assert first.status_code == 200
    assert first.json()["identity"]["domain"] == DOMAIN
    assert "no-store" in first.headers["cache-control"]
    assert (await show()).status_code == 404


@pytest.mark.req("ADP-56")
async def test_concurrent_redemptions_succeed_as_often_as_the_code_has_uses(here: TaskService) -> None:
    for uses in (1, 3):
        code = code_of(await invite(here, uses=uses))
        anonymous = here.bench.anonymous()
        answers = await asyncio.gather(*(at(anonymous, f"{WELL_KNOWN}?invite={code}") for _ in range(12)))
        assert sorted(answer.status_code for answer in answers) == [200] * uses + [404] * (12 - uses)


@pytest.mark.req("ADP-56")
async def test_an_invalid_invitation_code_is_answered_like_no_code(here: TaskService) -> None:
    revoked, expired, other = [await invite(here, ttl_seconds=60) for _ in range(3)]
    assert (await here.bench.as_("alice").delete(f"{INVITES}/{revoked['id']}")).status_code == 204
    used = await invite(here)
    await at(here.bench.anonymous(), f"{WELL_KNOWN}?invite={code_of(used)}")
    here.bench.clock.advance(60)
    await here.bench.as_("alice").post(
        "/api/v1/agents", json=profile("urn:agent:safe"), headers={"Waypost-Visibility": "private"}
    )
    await here.bench.admin().post("/api/v1/agents/urn%3Aagent%3Asafe:host", json={"domain": "safe.example.com"})
    fresh = await invite(here)
    elsewhere = await here.bench.anonymous().get(
        f"{WELL_KNOWN}?invite={code_of(fresh)}", headers={"Host": "safe.example.com"}
    )
    assert elsewhere.status_code == 404
    nothing = await at(here.bench.anonymous())
    answers = [
        await at(here.bench.anonymous(), f"{WELL_KNOWN}?invite={code}")
        for code in ("0" * 40, "", code_of(revoked), code_of(expired), code_of(other), code_of(used))
    ]
    for answer in answers:
        assert answer.status_code == 404
        assert answer.content == nothing.content
        assert answer.headers == nothing.headers
    bob = here.bench.as_("bob")
    redeemed = [
        await bob.post(f"{INVITES}:redeem", json={"code": code})
        for code in ("0" * 40, code_of(revoked), code_of(expired), code_of(used))
    ]
    assert {(answer.status_code, answer.json()["message"]) for answer in redeemed} == {
        (404, "There is no such invitation, or it has ended.")
    }


@pytest.mark.req("ADP-56")
async def test_a_redeemed_invitation_makes_the_agent_visible(here: TaskService) -> None:
    made = await invite(here)
    bob, carol = here.bench.as_("bob"), here.bench.as_("carol")
    answer = await bob.post(f"{INVITES}:redeem", json=made["invitation"])  # as the file holds it
    assert answer.status_code == 200, answer.text
    jsonschema.validate(answer.json(), answer_schema(RedeemedInvitation))
    assert answer.json()["document"]["identity"]["domain"] == DOMAIN
    assert (answer.json()["shared"], answer.json()["id"]) == (True, AGENT)
    assert (await bob.get("/api/v1/agents/urn%3Aagent%3Avault")).status_code == 200
    assert (await at(bob)).status_code == 200
    assert (await bob.post(f"{INVITES}:redeem", json={"code": code_of(made)})).status_code == 200  # a lost answer
    assert (await carol.post(f"{INVITES}:redeem", json={"code": code_of(made)})).status_code == 404
    assert (await carol.get("/api/v1/agents/urn%3Aagent%3Avault")).status_code == 404


@pytest.mark.req("ADP-56")
async def test_invitations_are_made_listed_and_revoked_by_the_owner_alone(here: TaskService) -> None:
    bob = here.bench.as_("bob")
    made = await invite(here, uses=2)
    assert (await bob.post(INVITES, json={"agent": AGENT})).status_code == 404
    assert (await bob.get(INVITES)).json() == {"invitations": []}
    assert (await bob.delete(f"{INVITES}/{made['id']}")).status_code == 404
    await bob.post(f"{INVITES}:redeem", json={"code": code_of(made)})
    assert (await bob.post(INVITES, json={"agent": AGENT})).status_code == 403
    for params in ({}, {"agent": AGENT}):
        listed = (await here.bench.as_("alice").get(INVITES, params=params)).json()
        jsonschema.validate(listed, answer_schema(InvitationList))
        (one,) = listed["invitations"]
        assert (one["state"], one["used"], one["uses"], one["redeemed_by"]) == ("open", 1, 2, ["bob"])
        assert code_of(made) not in json.dumps(listed)
    revoked = await here.bench.as_("alice").delete(f"{INVITES}/{made['id']}")
    assert revoked.status_code == 204
    assert (await here.bench.as_("alice").get(INVITES)).json()["invitations"][0]["state"] == "revoked"
    trail = (await here.bench.admin().get("/api/v1/audit")).json()["entries"]
    noted = {(entry["action"], entry["subject"]) for entry in trail if entry["object"] == AGENT}
    assert {("invite", "alice"), ("redeem", "bob"), ("revoke_invitation", "alice")} <= noted
    assert code_of(made) not in json.dumps(trail)


@pytest.mark.req("ADP-56")
async def test_only_the_hash_of_a_code_is_stored(tmp_path: Path) -> None:
    async with place(tmp_path, store="sqlite") as here:
        await host(here.bench)
        code = code_of(await invite(here))
        data = here.bench.application.settings.data
        written = b"".join(content(path) for path in data.rglob("*") if path.is_file())
        assert code.encode() not in written


@pytest.mark.req("ADP-56")
@pytest.mark.parametrize(
    ("members", "path"),
    [
        ({"agent": 7}, "$.agent"),
        ({"uses": 0}, "$.uses"),
        ({"uses": limits.INVITATION_USES + 1}, "$.uses"),
        ({"ttl_seconds": limits.INVITATION_TTL_MIN_SECONDS - 1}, "$.ttl_seconds"),
        ({"ttl_seconds": limits.INVITATION_TTL_MAX_SECONDS + 1}, "$.ttl_seconds"),
    ],
)
async def test_an_invitation_has_its_bounds(here: TaskService, members: dict[str, Any], path: str) -> None:
    answer = await here.bench.as_("alice").post(INVITES, json={"agent": AGENT, **members})
    assert (answer.status_code, answer.json()["path"]) == (400, path)


@pytest.mark.req("ADP-55", "ADP-56")
async def test_an_invitee_reads_an_agent_without_a_host_by_its_id(here: TaskService) -> None:
    """Not even its domain is served here; its own document names its key."""
    _, document = theirs(here, key_of())
    bob = here.bench.as_("bob")
    made = await bob.post("/api/v1/agents", content=document, headers={"Waypost-Visibility": "private"})
    assert made.is_success, made.text
    assert (await here.bench.anonymous().get(WELL_KNOWN, headers={"Host": "bob.example.com"})).status_code == 200
    answer = await bob.post(INVITES, json={"agent": BOB})
    assert answer.status_code == 201, answer.text
    shown = answer.json()["invitation"]["invite"]
    assert (shown["agent"], shown["pubkey"]) == (BOB, key_of().public.fingerprint())
    assert "signature" not in shown  # the key is not here
    url = httpx2.URL(shown["wellKnown"]).copy_merge_params({"invite": shown["code"]})
    first = await here.bench.anonymous().get(url)
    assert first.content == document
    assert "no-store" in first.headers["cache-control"]
    assert (await here.bench.anonymous().get(url)).status_code == 404
    hosted = await here.bench.as_("alice").post(
        "/api/v1/agents", json=profile("urn:agent:bare"), headers={"Waypost-Visibility": "private"}
    )
    assert hosted.is_success
    bare = await here.bench.as_("alice").post(INVITES, json={"agent": "urn:agent:bare"})
    assert (bare.status_code, "waypost host" in bare.json()["hint"]) == (400, True)


# --- Invitations from elsewhere ---------------------------------------------------------------------


def theirs(here: TaskService, key: PrivateKey, **members: str) -> tuple[dict[str, Any], bytes]:
    """An invitation of another server to bob, and the document that is served there."""
    well_known = f"https://bob.example.com:{here.taking.port}{WELL_KNOWN}"
    stated = {"algorithm": "ed25519", "fingerprint": key.public.fingerprint(), "full": key.public.pem()}
    document = {
        "protocol": "ADP/1.1",
        "identity": {"id": BOB, "domain": "bob.example.com", "name": "Bob", "publicKey": stated},
        "endpoints": {"wellKnown": well_known},
        "capabilities": [{"id": "chat", "name": "Chat"}],
    }
    invitation = Invitation(
        code="a1b2c3d4",
        agent=members.get("agent", BOB),
        well_known=members.get("well_known", well_known),
        pubkey=members.get("pubkey", key.public.fingerprint() or ""),
        expires=members.get("expires", "2026-12-31T00:00:00Z"),
    )
    return invitation.signed(key).json(), json.dumps(document).encode()


@pytest.mark.req("ADP-56", "ADP-51")
async def test_an_invitation_from_elsewhere_is_followed_and_its_key_stored(here: TaskService) -> None:
    given, document = theirs(here, key_of())
    here.taking.answers = [("200 OK", document)]
    answer = await here.bench.as_("carol").post(f"{INVITES}:redeem", json={"invitation": given})
    assert answer.status_code == 200, answer.text
    assert (answer.json()["agent"], answer.json()["pinned"]) == (BOB, True)
    (asked,) = here.taking.taken
    assert (asked.method, asked.path) == ("GET", WELL_KNOWN)
    assert asked.headers["authorization"] == "ADP-Invite a1b2c3d4"
    sent = await here.signing().request("POST", "/agent/tasks", {"task": "echo"})
    assert sent.status_code == 202  # bob is known by the key of the invitation


@pytest.mark.req("ADP-56", "ADP-51")
async def test_an_invitation_whose_key_or_name_is_another_is_refused(here: TaskService) -> None:
    carol = here.bench.as_("carol")
    other = key_of(number=1).public.fingerprint() or ""
    wrong = [
        theirs(here, key_of(), pubkey=other),
        theirs(here, key_of(), agent="agent:mallory.example.com"),
        theirs(here, key_of(), expires="2026-01-01T00:00:00Z"),
    ]
    changed, document = theirs(here, key_of())
    changed["invite"]["expires"] = "2026-12-30T00:00:00Z"
    for given, served in [*wrong, (changed, document)]:
        here.taking.answers = [("200 OK", served)]
        answer = await carol.post(f"{INVITES}:redeem", json={"invitation": given})
        assert answer.status_code in (400, 401, 404), answer.text
    sent = await here.signing().request("POST", "/agent/tasks", {"task": "echo"})
    assert sent.status_code == 401


@pytest.mark.req("ADP-56")
async def test_an_invitation_cannot_replace_the_key_of_another_agent(here: TaskService) -> None:
    """The document comes from a server of mallory's, who invites to an agent that is not hers."""
    here.names.set("bank.example.com", "A", ["192.0.2.1"])
    victim = "agent:bank.example.com"
    given, document = theirs(here, key_of(), agent=victim)
    served = json.loads(document)
    served["identity"] |= {"id": victim, "domain": "bank.example.com"}
    here.taking.answers = [("200 OK", json.dumps(served).encode())]
    answer = await here.bench.as_("mallory").post(f"{INVITES}:redeem", json={"invitation": given})
    assert (answer.status_code, answer.json()["pinned"]) == (200, False)
    sent = await here.signing(victim).request("POST", "/agent/tasks", {"task": "echo"})
    assert sent.status_code == 401


@pytest.mark.req("ADP-56")
async def test_invitations_cannot_be_used_to_scan_a_network(here: TaskService) -> None:
    """S1, S9: denied, closed, missing and refused look alike; readers trigger no outgoing request."""
    here.bench.application.invitations.discreet_seconds = 0.01
    here.names.set("inner.example.com", "A", ["10.0.0.1"])
    here.taking.answers = [("403 Forbidden", b"")]
    own = f"https://bob.example.com:{here.taking.port}{WELL_KNOWN}"
    told = []
    for url in (own, f"https://inner.example.com{WELL_KNOWN}", f"https://missing.example.com{WELL_KNOWN}"):
        given, _ = theirs(here, key_of(), well_known=url)
        answer = await here.bench.as_("carol").post(f"{INVITES}:redeem", json={"invitation": given})
        told.append({name: value for name, value in answer.json().items() if name != "correlation_id"})
    assert told[0] == told[1] == told[2]
    assert told[0]["status"] == 502
    given, _ = theirs(here, key_of())
    reader = here.bench.as_("dora", "discover:read")
    assert (await reader.post(f"{INVITES}:redeem", json={"invitation": given})).status_code == 403
    hop = await here.bench.as_("carol").post(
        f"{INVITES}:redeem", json={"invitation": given}, headers={"X-Discovery-Hop": "1"}
    )
    assert hop.status_code == 508
    assert len(here.taking.taken) == 1

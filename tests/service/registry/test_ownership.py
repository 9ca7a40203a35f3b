"""Who owns an id (THREATS E4): every way in, by everybody who might try, and by those who have proven it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx2
import pytest

import waypost
from support.announce import AGENT_ID, announcement, key
from support.bus import nats_server
from support.external_server import external_server
from support.fake_dns_server import DnsServer, dns_server
from support.ports import free_port
from support.server import running_server
from support.service import Bench, profile, service
from support.signing import key_of
from support.store_commands import make_registration
from support.store_commands import put as put_registration
from support.transports import eventually
from support.websocket_clients import socket_service
from waypost.app import mint_locally
from waypost.cli.main import main
from waypost.model.names import unslug
from waypost.model.principal import LAN_SUBJECT, LAN_VIA, SCOPE_READ, SCOPE_WRITE, Principal
from waypost.protocols.codec import CARRY
from waypost.protocols.dialects import DIALECTS
from waypost.registry.ownership import binding_note_name, domain_notes
from waypost.registry.ports import Command, Decision
from waypost.registry.publication import Publication
from waypost.settings import Settings
from waypost.transports.bus import BusTransport
from waypost.transports.port import Transport
from waypost.transports.udp import UdpTransport
from waypost.trust.document_signatures import sign_adp_public_key, sign_profile
from waypost.trust.domain_claims import claims_key, parent_domains

DOMAIN = "bank.example.com"
UUID = "3cde1b52-1fc2-4f7b-8d8c-5e3e6f5c9c1d"
DIGITS = UUID.replace("-", "")
IDS = (f"agent:{DOMAIN}", f"https://{DOMAIN}/agents/teller", f"urn:air:{DOMAIN}:teller", f"urn:uuid:{UUID}", "teller")
SPELLINGS = {
    f"agent:{DOMAIN}": (
        "agent:BANK.example.com",
        f"agent:{DOMAIN}.",
        "agent:b%61nk.example.com",
        "agent:bank%C2%AD.example.com",
        "AGENT:bank.example.com",
    ),
    f"https://{DOMAIN}/a": (f"https://{DOMAIN}:443/a", f"https://u@{DOMAIN}/a", "HTTPS://Bank.Example.com/a"),
    f"urn:air:{DOMAIN}:a": ("URN:AIR:bank.example.com:a", "urn:air:BANK.EXAMPLE.COM:a"),
    f"urn:uuid:{UUID}": (
        UUID,
        UUID.upper(),
        f"URN:UUID:{UUID}",
        f"urn:uuid:{DIGITS}",
        f"urn:uuid:{DIGITS.upper()}",
        DIGITS,
        f"{{{UUID.upper()}}}",
        f"urn:uuid:{{{UUID}}}",
    ),
}
SOURCE = Path(waypost.__file__).parent
KEY, OTHER = key_of(number=1), key_of(number=2)
LEASE = 60
HEARD_ID = "7b0c6a52-41f1-4c66-9a0e-0f5d2ce0a511"  # of an agent on the LAN
OWN_ID = "0d9f2c11-6a52-4e0b-9a7e-5b1f0c2d3e4f"  # of the agent on the LAN that has the bound key


@pytest.fixture
async def names() -> AsyncIterator[DnsServer]:
    async with dns_server() as server:
        yield server


@pytest.fixture(params=["memory", "sqlite"])
async def bench(request: pytest.FixtureRequest, tmp_path: Path, names: DnsServer) -> AsyncIterator[Bench]:
    async with service(tmp_path, resolver=names.address, store=request.param) as made:
        await made.admin().post("/api/v1/allow", json={"rule": "*"})
        yield made


def signed(agent_id: str, signer: Any = KEY, at: str = "2026-05-01T00:00:00Z", **members: Any) -> dict[str, Any]:
    document: dict[str, Any] = sign_profile(profile(agent_id, updated_at=at, **members), signer)
    return document


async def pin(bench: Bench, name: str) -> None:
    answer = await bench.admin().post("/api/v1/keys", json={"agent_id": name, "public_key": KEY.public.pem()})
    assert answer.status_code in (200, 201), answer.text


async def prove(client: httpx2.AsyncClient, names: DnsServer, domain: str = DOMAIN) -> None:
    made = (await client.post("/api/v1/domains", json={"domain": domain, "method": "dns"})).json()
    names.set(made["place"], "TXT", [f'"{made["line"]}"'])
    answer = await client.post(f"/api/v1/domains/{domain}:check")
    assert answer.status_code == 200, answer.text


async def owner(bench: Bench, agent_id: str) -> str | None:
    entry = bench.registry.entries.find_named(agent_id)
    return None if entry is None else entry.owner


async def audit(bench: Bench, action: str) -> list[tuple[str, str]]:
    entries = (await bench.admin().get("/api/v1/audit", params={"action": action})).json()["entries"]
    return [(entry["subject"], entry["object"]) for entry in entries]


# --- Every way in ---------------------------------------------------------------------------------


async def documents(agent_id: str, folder: Path) -> dict[str, dict[str, Any]]:
    """The agent in every dialect, from a service where nobody owns the id."""
    async with service(folder) as elsewhere:
        alice = elsewhere.as_("alice")
        assert (await alice.post("/api/v1/agents", json=profile(agent_id))).status_code == 201
        path = f"/api/v1/agents/{quote(agent_id, safe='')}"
        answers = {name: await alice.get(path, params={"as": name}) for name in DIALECTS}
        return {name: answer.json() for name, answer in answers.items() if answer.status_code == 200}


async def post(bench: Bench, client: httpx2.AsyncClient, document: dict[str, Any]) -> int:
    return (await client.post("/api/v1/agents", json=document)).status_code


async def post_batch(bench: Bench, client: httpx2.AsyncClient, document: dict[str, Any]) -> int:
    answer = await client.post(
        "/api/v1/agents:batch",
        content=json.dumps(document).encode() + b"\n",
        headers={"content-type": "application/x-ndjson"},
    )
    (line,) = [json.loads(text) for text in answer.text.splitlines()]
    return 409 if line.get("error", {}).get("code") == "conflict" else 500 if "error" in line else 200


async def put(bench: Bench, client: httpx2.AsyncClient, document: dict[str, Any]) -> int:
    return (await client.put(f"/profile/v1/agents/{quote(document['id'], safe='')}", json=document)).status_code


async def call_rtfs(bench: Bench, client: httpx2.AsyncClient, document: dict[str, Any]) -> int:
    call = {"jsonrpc": "2.0", "id": 1, "method": "rtfs.registry.register", "params": {"agent_card": document}}
    error = (await client.post("/rtfs", json=call)).json().get("error")
    return 200 if error is None else 409 if error["code"] == -32007 else 500


async def call_mcp(bench: Bench, client: httpx2.AsyncClient, document: dict[str, Any]) -> int:
    params = {"name": "register_agent", "arguments": {"document": document}}
    headers = {"accept": "application/json, text/event-stream", "mcp-protocol-version": "2025-06-18"}
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    answer = (await client.post("/mcp", json=call, headers=headers)).json()
    result = answer["result"]
    return 200 if not result["isError"] else 409 if result["structuredContent"]["error"]["code"] == "conflict" else 500


async def announce(bench: Bench, client: httpx2.AsyncClient, document: dict[str, Any]) -> int:
    """Announced over HTTP, signed with a key of the sender."""
    metadata = document["agent"].get("metadata", {})
    message = announcement(
        OTHER,
        seq=1,
        at=bench.clock.now(),
        **{**{name: value for name, value in document["agent"].items() if name != "public_key"}, "metadata": metadata},
    )
    return (await client.post("/agents", json=message)).status_code


async def hear_on_the_lan(bench: Bench, client: httpx2.AsyncClient, document: dict[str, Any]) -> int:
    """Announced on the LAN, where everybody has the same subject."""
    message = announcement(
        OTHER,
        seq=1,
        at=bench.clock.now(),
        agent_id=HEARD_ID,
        metadata=document["metadata"],
    )
    data = json.dumps(message).encode()
    dialect, decoded = bench.registry.decode(data, dialect="announce")
    principal = Principal(subject=LAN_SUBJECT, scopes=frozenset((SCOPE_WRITE,)), via=LAN_VIA)
    publication = Publication(
        dialect=dialect, document=data, decoded=decoded, principal=principal, via="udp", gated=True
    )
    try:
        await bench.registry.publish(publication)
    except Exception as error:  # noqa: BLE001 - the status of any refusal
        return 409 if getattr(error, "details", {}).get("reason") in ("bound", "other_key") else 500
    return 200


async def try_every_way(bench: Bench, client: httpx2.AsyncClient, agent_id: str, folder: Path) -> dict[str, int]:
    found = await documents(agent_id, folder)
    tries: dict[str, int] = {}
    for name, document in found.items():
        if name == "announce":
            continue
        tries[f"post {name}"] = await post(bench, client, document)
        tries[f"batch {name}"] = await post_batch(bench, client, document)
        tries[f"mcp {name}"] = await call_mcp(bench, client, document)
    tries["put"] = await put(bench, client, found["profile"])
    if "rtfs" in found:
        tries["rtfs"] = await call_rtfs(bench, client, found["rtfs"])
    return tries


# --- What reserves an id --------------------------------------------------------------------------


@pytest.mark.parametrize("agent_id", IDS)
async def test_nobody_takes_an_id_that_a_key_is_bound_to(bench: Bench, tmp_path: Path, agent_id: str) -> None:
    """Before its owner has come, while it is there, and after its lease has ended."""
    alice, mallory, admin = bench.as_("alice"), bench.as_("mallory"), bench.admin()
    await pin(bench, agent_id)
    for caller in (mallory, admin):
        before = await try_every_way(bench, caller, agent_id, tmp_path / "elsewhere")
        assert {way: status for way, status in before.items() if status not in (403, 409)} == {}
    assert await owner(bench, agent_id) is None

    answer = await alice.post("/api/v1/agents", json=signed(agent_id), params={"ttl_seconds": LEASE})
    assert answer.status_code == 201, answer.text
    for caller in (mallory, admin):
        live = await try_every_way(bench, caller, agent_id, tmp_path / "elsewhere")
        assert {way: status for way, status in live.items() if status not in (403, 409)} == {}
    assert (await mallory.post("/api/v1/agents", json=signed(agent_id, OTHER))).status_code == 409
    assert await owner(bench, agent_id) == "alice"

    bench.clock.advance(90_000)  # beyond every hold and tombstone
    assert await owner(bench, agent_id) is None
    mallory, admin = bench.as_("mallory"), bench.admin()
    for caller in (mallory, admin):
        ended = await try_every_way(bench, caller, agent_id, tmp_path / "elsewhere")
        assert {way: status for way, status in ended.items() if status not in (403, 409)} == {}
    assert (await mallory.post("/api/v1/agents", json=signed(agent_id))).status_code == 409, "a copy proves nothing"
    again = await bench.as_("alice").post("/api/v1/agents", json=signed(agent_id, at="2026-05-02T00:00:00Z"))
    assert again.status_code == 201, again.text


@pytest.mark.parametrize("agent_id", IDS)
async def test_the_subject_that_proved_an_id_changes_it_through_any_api(
    bench: Bench, tmp_path: Path, agent_id: str
) -> None:
    alice = bench.as_("alice")
    await pin(bench, agent_id)
    assert (await alice.post("/api/v1/agents", json=signed(agent_id, at="2020-01-01T00:00:00Z"))).status_code == 201
    tries = await try_every_way(bench, alice, agent_id, tmp_path / "elsewhere")
    assert {way: status for way, status in tries.items() if status in (403, 409)} == {}
    assert await owner(bench, agent_id) == "alice"


@pytest.mark.parametrize("agent_id", IDS[:3])
async def test_nobody_takes_an_id_of_a_domain_that_somebody_has_proven(
    bench: Bench, names: DnsServer, tmp_path: Path, agent_id: str
) -> None:
    alice, mallory = bench.as_("alice"), bench.as_("mallory")
    await prove(alice, names)
    tries = await try_every_way(bench, mallory, agent_id, tmp_path / "elsewhere")
    assert {way: status for way, status in tries.items() if status not in (403, 409)} == {}
    mine = await try_every_way(bench, alice, agent_id, tmp_path / "elsewhere")
    assert {way: status for way, status in mine.items() if not 200 <= status < 300} == {}
    assert await owner(bench, agent_id) == "alice"


@pytest.mark.parametrize("agent_id", IDS[:3])
async def test_an_announcement_does_not_carry_the_id_of_another(
    bench: Bench, names: DnsServer, tmp_path: Path, agent_id: str
) -> None:
    """An announcement proves its own UUID. The id that it carries may be anybody's."""
    found = (await documents(agent_id, tmp_path / "elsewhere"))["announce"]
    document = found if "agent" in found else {"agent": found}
    mallory = bench.as_("mallory")
    await pin(bench, agent_id)
    assert await announce(bench, mallory, document) == 409
    assert await hear_on_the_lan(bench, mallory, document["agent"]) == 409
    assert await owner(bench, agent_id) is None


async def test_an_agent_of_the_lan_gets_no_name_of_another_with_its_new_owner(bench: Bench, tmp_path: Path) -> None:
    """An agent that was heard on the LAN is adopted by an announcement with its key, under its own names only."""
    agent_id = f"agent:{DOMAIN}"
    found = (await documents(agent_id, tmp_path / "elsewhere"))["announce"]
    carried = found.get("agent", found)["metadata"]
    await pin(bench, agent_id)
    assert await hear_on_the_lan(bench, bench.as_("mallory"), {"metadata": {"load": 1}}) == 200
    message = announcement(OTHER, seq=2, at=bench.clock.now(), agent_id=HEARD_ID, metadata=carried)
    assert (await bench.as_("mallory").post("/agents", json=message)).status_code == 409
    assert await owner(bench, agent_id) is None
    plain = announcement(OTHER, seq=3, at=bench.clock.now(), agent_id=HEARD_ID)
    assert (await bench.as_("mallory").post("/agents", json=plain)).status_code in (200, 201)
    assert await owner(bench, HEARD_ID) == "mallory"


async def test_a_websocket_does_not_carry_the_id_of_another(tmp_path: Path) -> None:
    agent_id = f"agent:{DOMAIN}"
    found = (await documents(agent_id, tmp_path / "elsewhere"))["announce"]
    carried = found.get("agent", found)["metadata"]
    async with socket_service(tmp_path / "here") as sockets:
        bench = sockets.bench
        await pin(bench, agent_id)
        mallory = await sockets.session("mallory")
        refused = await mallory.announce(announcement(OTHER, seq=1, at=bench.clock.now(), metadata=carried))
        assert refused["code"] == "ErrDuplicateID"
        assert await owner(bench, agent_id) is None


# --- Carriers and imports -------------------------------------------------------------------------


@asynccontextmanager
async def heard_service(carrier: str, folder: Path, resolver: str) -> AsyncIterator[tuple[Bench, Transport]]:
    """A service that listens on a carrier, and the end of somebody else on it."""
    with ExitStack() as stack:
        settings: dict[str, Any] = {"udp": True, "udp_interface": "lo", "udp_port": free_port()}
        if carrier == "bus":
            settings = {"bus": stack.enter_context(nats_server()).url}
        async with service(folder, trust_mode="tofu", resolver=resolver, **settings) as bench:
            sender: Transport = (
                BusTransport(settings["bus"], bench.clock)
                if carrier == "bus"
                else UdpTransport(["lo"], bench.clock, port=settings["udp_port"])
            )
            await sender.open()
            try:
                yield bench, sender
            finally:
                await sender.close()


@pytest.mark.parametrize("reserved_by", ["key", "domain"])
@pytest.mark.parametrize("carrier", ["udp", "bus"])
async def test_no_carrier_brings_in_the_id_of_another(
    tmp_path: Path, names: DnsServer, carrier: str, reserved_by: str
) -> None:
    """A squatter is heard before somebody who carries no id of another; the holder of the bound key is heard last."""
    agent_id = f"agent:{DOMAIN}"
    found = (await documents(agent_id, tmp_path / "elsewhere"))["announce"]
    carried = found.get("agent", found)["metadata"]
    async with heard_service(carrier, tmp_path / "here", names.address) as (bench, sender):
        if reserved_by == "domain":
            await prove(bench.as_("alice"), names)
        else:
            await pin(bench, agent_id)
        now = bench.clock.now()
        await sender.announce(announcement(OTHER, seq=1, at=now, agent_id=HEARD_ID, metadata=carried), 30)
        await sender.announce(announcement(key("a"), seq=1, at=now), 30)
        await eventually(lambda: bench.registry.entries.find_named(f"urn:uuid:{AGENT_ID}") is not None)
        assert await owner(bench, agent_id) is None
        assert len(bench.registry.entries) == 1
        if reserved_by == "domain":
            await pin(bench, agent_id)
        await sender.announce(announcement(KEY, seq=1, at=now, agent_id=OWN_ID, metadata=carried), 30)
        await eventually(lambda: bench.registry.entries.find_named(agent_id) is not None)
        assert await owner(bench, agent_id) == LAN_SUBJECT
        assert bench.registry.entries.find_named(f"urn:uuid:{HEARD_ID}") is None


@pytest.mark.parametrize("agent_id", IDS[:3])
@pytest.mark.parametrize("reserved_by", ["key", "domain"])
async def test_no_import_brings_in_the_id_of_another(
    tmp_path: Path, names: DnsServer, agent_id: str, reserved_by: str
) -> None:
    async with (
        service(tmp_path, allow_cidrs=("127.0.0.1/32",), resolver=names.address) as bench,
        external_server() as site,
    ):
        alice, mallory = bench.as_("alice"), bench.as_("mallory")
        if reserved_by == "domain":
            await prove(alice, names)
        else:
            await pin(bench, agent_id)
        site.json("/unsigned.json", profile(agent_id))
        site.json("/forged.json", signed(agent_id, OTHER))
        site.json("/signed.json", signed(agent_id))

        async def fetch(client: httpx2.AsyncClient, name: str) -> int:
            request = {"url": f"http://127.0.0.1:{site.port}/{name}.json", "save": True}
            return (await client.post("/api/v1/agents:fetch", json=request)).status_code

        for squatter in (mallory, bench.admin()) if reserved_by == "key" else (mallory,):
            for name in ("unsigned", "forged"):
                assert await fetch(squatter, name) == 409, name
        assert await owner(bench, agent_id) is None
        assert await fetch(alice, "signed") == 200
        assert await owner(bench, agent_id) == "alice"


def test_the_import_command_brings_in_no_id_of_another(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    agent_id = f"agent:{DOMAIN}"
    files = {"unsigned": profile(agent_id), "forged": signed(agent_id, OTHER), "signed": signed(agent_id)}
    for name, document in files.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(document))
    with running_server("--embedder", "none", data=tmp_path / "data") as server:
        pinned = {"agent_id": agent_id, "public_key": KEY.public.pem()}
        headers = {"Authorization": f"Bearer {server.admin_token}"}
        assert httpx2.post(f"{server.url}/api/v1/keys", json=pinned, headers=headers).is_success

        def import_as(subject: str, name: str) -> int:
            token = mint_locally(Settings(data=tmp_path / "data"), subject, (SCOPE_READ, SCOPE_WRITE), 600)[0]
            return main(["import", str(tmp_path / f"{name}.json"), "--server", server.url, "--token", token])

        assert [import_as("mallory", name) for name in ("unsigned", "forged")] == [1, 1]
        assert capsys.readouterr().err.count("reserved for its proven owner") == 2
        assert httpx2.get(f"{server.url}/api/v1/agents/agent%3A{DOMAIN}", headers=headers).status_code == 404
        assert import_as("alice", "signed") == 0
        assert httpx2.get(f"{server.url}/api/v1/agents/agent%3A{DOMAIN}", headers=headers).status_code == 200


def test_nothing_registers_an_agent_but_the_rule() -> None:
    """The LAN, the bus, imports and every API end in the same function. Copies of peers have a rule of their own, which asks
    the same one who owns an id."""
    sources = {path.name: path.read_text(encoding="utf-8") for path in SOURCE.rglob("*.py")}
    registering = {name for name, text in sources.items() if 'type="registered"' in text}
    assert registering == {"write_rules.py", "mirror_rules.py"}
    assert all("decide_ownership(" in sources[name] for name in registering)
    assert [name for name, text in sources.items() if "write_rules.publish" in text] == ["writer.py"]
    assert [name for name, text in sources.items() if "mirror_rules.mirror(" in text] == ["writer.py"]


@pytest.mark.parametrize(("agent_id", "spelling"), [(each, name) for each, all_ in SPELLINGS.items() for name in all_])
async def test_another_spelling_is_the_same_id(bench: Bench, agent_id: str, spelling: str) -> None:
    alice, mallory = bench.as_("alice"), bench.as_("mallory")
    await pin(bench, agent_id)
    assert (await mallory.post("/api/v1/agents", json=profile(spelling))).status_code == 409
    assert (await alice.post("/api/v1/agents", json=signed(agent_id))).status_code == 201
    assert (await mallory.post("/api/v1/agents", json=profile(spelling))).status_code == 409
    assert await owner(bench, agent_id) == "alice"


async def test_a_uuid_is_found_with_and_without_its_prefix(bench: Bench) -> None:
    alice, mallory = bench.as_("alice"), bench.as_("mallory")
    assert (await alice.post("/api/v1/agents", json=profile(UUID))).status_code == 201
    assert (await mallory.post("/api/v1/agents", json=profile(f"urn:uuid:{UUID}"))).status_code == 409
    answer = await alice.get(f"/api/v1/agents/{quote(f'urn:uuid:{UUID}', safe='')}")
    assert (answer.status_code, answer.json()["id"]) == (200, UUID)
    assert (await alice.post("/api/v1/agents", json=profile(f"urn:uuid:{UUID}"))).status_code == 200


async def test_a_name_that_only_looks_like_another_gets_nothing_of_it(bench: Bench, names: DnsServer) -> None:
    """Confusable letters are another domain; a slug of an id is not the id."""
    alice, mallory = bench.as_("alice"), bench.as_("mallory")
    await pin(bench, f"agent:{DOMAIN}")
    assert (await alice.post("/api/v1/agents", json=signed(f"agent:{DOMAIN}"))).status_code == 201
    assert (await mallory.post("/api/v1/agents", json=profile("agent:b\u0430nk.example.com"))).status_code == 201
    slug = "u-YWdlbnQ6YmFuay5leGFtcGxlLmNvbQ"
    await mallory.post("/api/v1/agents", json=profile(slug, name="Slug"))
    answer = await mallory.get(f"/.well-known/agentframework/v1/agents/{slug}")
    assert answer.json()["name"] == "Minimal Agent"
    assert await owner(bench, f"agent:{DOMAIN}") == "alice"


def card_with_alias(alias: str) -> dict[str, Any]:
    """An RTFS card whose own id is another than that of the record it carries."""
    card = {"agent_id": alias, "name": "M", "version": "1", "description": "d", "capabilities": []}
    carried = {"members": {"id": "mine"}}
    return {**card, "communication": {"endpoints": [{"uri": "https://m.example/"}]}, "metadata": {CARRY: carried}}


async def test_an_alias_is_claimed_like_an_id(bench: Bench) -> None:
    mallory = bench.as_("mallory")
    await pin(bench, f"agent:{DOMAIN}")
    assert await call_rtfs(bench, mallory, card_with_alias(f"agent:{DOMAIN}")) == 409
    assert await owner(bench, f"agent:{DOMAIN}") is None


def test_a_name_behind_many_claimed_domains_is_compared_with_its_own_claims() -> None:
    """Names in domains that the sender claims itself do not hide the last one from the rule."""
    names = [f"agent:a.b.c.d.e.f.shop{number}.example" for number in range(32)]
    claimed = {parent for name in names for parent in parent_domains(name.removeprefix("agent:"))}
    notes = domain_notes([*names, f"agent:{DOMAIN}"], dict.fromkeys((*claimed, DOMAIN)))
    assert claims_key(DOMAIN) in notes


async def test_an_alias_opens_no_way_to_a_bound_agent(bench: Bench) -> None:
    """Documents that name a bound agent by an alias only, of an admin and of an owner that has proven nothing."""
    mallory, admin = bench.as_("mallory"), bench.admin()
    assert await call_rtfs(bench, mallory, card_with_alias("also-mine")) == 200
    await pin(bench, "mine")
    assert (await admin.post("/api/v1/agents", json=profile("also-mine"))).status_code == 409
    assert (await mallory.post("/api/v1/agents", json=profile("also-mine"))).status_code == 409


# --- Spellings of a UUID --------------------------------------------------------------------------

SPELLED = (
    UUID,
    UUID.upper(),
    f"urn:uuid:{UUID}",
    f"urn:uuid:{DIGITS}",
    f"urn:uuid:{UUID.upper()}",
    f"URN:UUID:{UUID.upper()}",
    DIGITS.upper(),
    f"{{{UUID}}}",
)


async def read_everywhere(client: httpx2.AsyncClient, spelling: str) -> dict[str, Any]:
    """The id that each API shows for this spelling, or the status of its refusal."""
    path = quote(spelling, safe="")
    shown: dict[str, Any] = {}
    for name, url, member in (
        ("rest", f"/api/v1/agents/{path}", "id"),
        ("rest profile", f"/api/v1/agents/{path}?as=profile", "id"),
        ("history", f"/api/v1/agents/{path}:history", "id"),
        ("profile", f"/profile/v1/agents/{path}", "id"),
    ):
        answer = await client.get(url)
        shown[name] = answer.json()[member] if answer.status_code == 200 else answer.status_code
    announced = await client.get(f"/agents/{path}")
    shown["announce"] = announced.json()["agent"]["metadata"] if announced.status_code == 200 else announced.status_code
    item = await client.get(f"/.well-known/agentframework/v1/agents/{path}")
    shown["af"] = unslug(item.json()["id"]) or item.json()["id"] if item.status_code == 200 else item.status_code
    listed = (await client.get("/.well-known/agentframework/v1/agents", params={"id": spelling})).json()
    shown["af list"] = [unslug(each["id"]) or each["id"] for each in listed["agents"]]
    call = {"jsonrpc": "2.0", "id": 1, "method": "rtfs.registry.discover", "params": {"agent_id": spelling}}
    found = (await client.post("/rtfs", json=call)).json()
    shown["rtfs"] = [each["agent_id"] for each in found["result"]["agents"]] if "result" in found else found
    headers = {"accept": "application/json, text/event-stream", "mcp-protocol-version": "2025-06-18"}
    tool = {"name": "get_agent", "arguments": {"id": spelling}}
    answer = (await client.post("/mcp", json={**call, "method": "tools/call", "params": tool}, headers=headers)).json()
    result = answer["result"]
    shown["mcp"] = 404 if result["isError"] else result["structuredContent"]["id"]
    return shown


@pytest.mark.parametrize("registered", SPELLED[:4])
async def test_every_api_reads_a_uuid_in_any_spelling(bench: Bench, registered: str) -> None:
    alice, mallory = bench.as_("alice"), bench.as_("mallory")
    private = {"waypost-visibility": "private"}
    assert (await alice.post("/api/v1/agents", json=profile(registered), headers=private)).status_code == 201
    expected = await read_everywhere(alice, registered)
    assert set(map(str, expected.values())) - {str(expected["announce"])} == {registered, str([registered])}
    unknown = await read_everywhere(mallory, UUID.replace("3", "4"))
    for spelling in SPELLED:
        assert await read_everywhere(alice, spelling) == expected, spelling
        assert await read_everywhere(mallory, spelling) == unknown, spelling


async def write_everywhere(client: httpx2.AsyncClient, spelling: str) -> dict[str, Any]:
    """The status of each API that changes an agent. The last ones remove it, and the first ones register it again."""
    path = quote(spelling, safe="")
    done: dict[str, Any] = {}

    async def call_rtfs_with(method: str, **params: Any) -> Any:
        call = {"jsonrpc": "2.0", "id": 1, "method": f"rtfs.registry.{method}", "params": params}
        answer = (await client.post("/rtfs", json=call)).json()
        return answer["result"]["status"] if "result" in answer else answer["error"]["code"]

    async def register() -> int:
        return (await client.post("/api/v1/agents", json=profile(spelling))).status_code

    done["put"] = (await client.put(f"/profile/v1/agents/{path}", json=profile(spelling))).status_code
    done["renew"] = (await client.post(f"/api/v1/agents/{path}:renew")).status_code
    done["share"] = (await client.post(f"/api/v1/agents/{path}:share", json={"add": ["bob"]})).status_code
    done["heartbeat"] = await call_rtfs_with("heartbeat", agent_id=spelling)
    done["deregister"] = await call_rtfs_with("deregister", agent_id=spelling)
    done["deregister again"] = await call_rtfs_with("deregister", agent_id=spelling)
    for name, url in (("rest", "/api/v1/agents"), ("profile", "/profile/v1/agents"), ("announce", "/agents")):
        done[f"register for {name}"] = await register()
        done[name] = (await client.delete(f"{url}/{path}")).status_code
    return done


@pytest.mark.parametrize("registered", SPELLED[:4])
async def test_every_api_changes_a_uuid_in_any_spelling(bench: Bench, registered: str) -> None:
    alice, mallory = bench.as_("alice"), bench.as_("mallory")
    for spelling in SPELLED:
        assert (await alice.post("/api/v1/agents", json=profile(registered))).status_code == 201
        refused = await write_everywhere(mallory, spelling)
        assert {refused.pop("deregister"), refused.pop("deregister again"), refused.pop("heartbeat")} == {-32003}
        assert set(refused.values()) <= {403, 409}, (spelling, refused)
        written = await write_everywhere(alice, spelling)
        assert {written.pop("deregister"), written.pop("deregister again")} == {"deregistered"}
        assert written.pop("heartbeat") == "refreshed"
        assert set(written.values()) <= {200, 201, 204}, (spelling, written)


@pytest.mark.parametrize("registered", SPELLED[:4])
async def test_an_expired_uuid_is_reserved_in_any_spelling(bench: Bench, registered: str) -> None:
    alice, mallory = bench.as_("alice"), bench.as_("mallory")
    answer = await alice.post(f"/api/v1/agents?ttl_seconds={LEASE}", json=profile(registered))
    assert answer.status_code == 201
    bench.clock.advance(LEASE + 1)
    for spelling in SPELLED:
        assert (await mallory.get(f"/api/v1/agents/{quote(spelling, safe='')}")).status_code == 404
        assert (await mallory.post("/api/v1/agents", json=profile(spelling))).status_code == 409, spelling
    await bench.registry.leader.expire_leases()
    for spelling in SPELLED:
        assert (await mallory.post("/api/v1/agents", json=profile(spelling))).status_code == 409, spelling
    assert (await alice.post("/api/v1/agents", json=profile(SPELLED[4]))).status_code == 201


# --- Takeover -------------------------------------------------------------------------------------


@pytest.mark.parametrize("agent_id", IDS[:3])
async def test_whoever_proves_a_domain_takes_its_ids_over(bench: Bench, names: DnsServer, agent_id: str) -> None:
    alice, mallory = bench.as_("alice"), bench.as_("mallory")
    squatted = await mallory.post("/api/v1/agents", json=profile(agent_id, name="Squatter"))
    assert squatted.status_code == 201
    assert (await alice.post("/api/v1/agents", json=profile(agent_id))).status_code == 409
    await prove(alice, names)
    answer = await alice.post("/api/v1/agents", json=profile(agent_id, name="Teller"))
    assert answer.status_code == 201, answer.text
    assert answer.json()["trust"]["level"] == "verified"
    assert await owner(bench, agent_id) == "alice"
    assert await audit(bench, "takeover") == [("alice", agent_id)]
    assert (await mallory.post("/api/v1/agents", json=profile(agent_id))).status_code == 409
    assert ("mallory", agent_id) in await audit(bench, "refuse")


@pytest.mark.parametrize("agent_id", IDS)
async def test_whoever_holds_the_key_takes_an_id_over_from_one_who_does_not(bench: Bench, agent_id: str) -> None:
    alice, mallory = bench.as_("alice"), bench.as_("mallory")
    assert (await mallory.post("/api/v1/agents", json=profile(agent_id, name="Squatter"))).status_code == 201
    await pin(bench, agent_id)
    assert (await mallory.post("/api/v1/agents", json=profile(agent_id, name="Again"))).status_code == 409
    answer = await alice.post("/api/v1/agents", json=signed(agent_id))
    assert answer.status_code == 201, answer.text
    assert await owner(bench, agent_id) == "alice"
    assert (await audit(bench, "takeover"))[0][0] == "alice"
    assert (await audit(bench, "bind"))[0][0] == "alice"


async def test_a_withdrawn_squatter_is_seen_by_watchers(bench: Bench) -> None:
    alice, mallory = bench.as_("alice"), bench.as_("mallory")
    await mallory.post("/api/v1/agents", json=profile("teller", name="Squatter"))
    await pin(bench, "teller")
    await alice.post("/api/v1/agents", json=signed("teller"))
    events = await bench.application.registry._store.events(0, 100)
    assert [event.type for event in events if event.id == "teller"] == ["registered", "withdrawn", "registered"]


async def test_a_newer_signed_document_moves_an_agent_and_a_copy_does_not(bench: Bench) -> None:
    """A new subject with the key gets in. It may have found the document elsewhere, so its changes must be signed."""
    alice, bob, mallory = bench.as_("alice"), bench.as_("bob"), bench.as_("mallory")
    await pin(bench, "teller")
    first = signed("teller", at="2026-05-01T00:00:00Z")
    assert (await alice.post("/api/v1/agents", json=first)).status_code == 201
    assert (await mallory.post("/api/v1/agents", json=first)).status_code == 409
    assert (await bob.post("/api/v1/agents", json=signed("teller", at="2026-05-02T00:00:00Z"))).status_code == 200
    assert await owner(bench, "teller") == "bob"
    assert ("bob", "teller") in await audit(bench, "takeover")
    unsigned = profile("teller", updated_at="2026-05-03T00:00:00Z")
    assert (await bob.post("/api/v1/agents", json=unsigned)).status_code == 409
    assert (await bob.post("/api/v1/agents", json=signed("teller", at="2026-05-03T00:00:00Z"))).status_code == 200
    assert (await alice.post("/api/v1/agents", json=signed("teller", at="2026-05-04T00:00:00Z"))).status_code == 200
    assert await owner(bench, "teller") == "alice"


async def test_an_admin_withdraws_what_it_may_not_impersonate(bench: Bench) -> None:
    alice, admin = bench.as_("alice"), bench.admin()
    await pin(bench, "teller")
    assert (await alice.post("/api/v1/agents", json=signed("teller"))).status_code == 201
    assert (await admin.post("/api/v1/agents", json=profile("teller"))).status_code == 409
    assert (await admin.delete("/api/v1/agents/teller")).status_code == 204
    assert (await admin.post("/api/v1/agents", json=profile("teller"))).status_code == 409
    assert (await bench.as_("mallory").post("/api/v1/agents", json=profile("teller"))).status_code == 409
    assert (await alice.post("/api/v1/agents", json=signed("teller"))).status_code == 201


async def test_an_alias_of_a_squatter_is_removed_not_its_agent(bench: Bench, names: DnsServer) -> None:
    alice, mallory = bench.as_("alice"), bench.as_("mallory")
    assert await call_rtfs(bench, mallory, card_with_alias(f"agent:{DOMAIN}")) == 200
    assert await owner(bench, f"agent:{DOMAIN}") == "mallory"
    await prove(alice, names)
    assert (await alice.post("/api/v1/agents", json=profile(f"agent:{DOMAIN}"))).status_code == 201
    assert await owner(bench, f"agent:{DOMAIN}") == "alice"
    assert await owner(bench, "mine") == "mallory"


async def test_a_copied_proof_of_a_name_leads_nobody_astray(bench: Bench) -> None:
    """The proof in an ADP document covers the name only, and is public."""
    alice, mallory = bench.as_("alice"), bench.as_("mallory")
    await pin(bench, f"agent:{DOMAIN}")

    def document(host: str) -> dict[str, Any]:
        return {
            "protocol": "ADP/1.1",
            "identity": {
                "id": f"agent:{DOMAIN}",
                "domain": DOMAIN,
                "name": "Teller",
                "publicKey": sign_adp_public_key(KEY, DOMAIN),
            },
            "endpoints": {
                "wellKnown": f"https://{DOMAIN}/.well-known/agent.json",
                "chat": f"wss://{host}/chat",
                "tasks": f"https://{host}/tasks",
            },
            "capabilities": [{"id": "chat", "name": "Chat", "description": "Talks."}],
        }

    assert (await mallory.post("/api/v1/agents", json=document("evil.example"))).status_code == 409
    assert (await alice.post("/api/v1/agents", json=document(DOMAIN))).status_code == 201


@pytest.mark.parametrize("stored", [f"urn:uuid:{DIGITS}", DIGITS])
async def test_a_uuid_that_an_earlier_release_stored_without_hyphens_stays_that_of_its_owner(
    tmp_path: Path, stored: str
) -> None:
    """That release took it for another id than the one with hyphens, so the record has no other name."""
    async with service(tmp_path, store="sqlite") as bench:
        await bench.application.store.execute(put_registration(make_registration(stored, owner="alice")))
    async with service(tmp_path, store="sqlite") as bench:
        alice, mallory = bench.as_("alice"), bench.as_("mallory")
        for spelling in (*SPELLED, stored):
            assert (await alice.get(f"/api/v1/agents/{quote(spelling, safe='')}")).status_code == 200
            assert (await mallory.post("/api/v1/agents", json=profile(spelling))).status_code == 409
            updated = await alice.post("/api/v1/agents", json=profile(spelling))
            assert (updated.status_code, updated.json()["id"]) == (200, stored)
        assert (await alice.delete(f"/api/v1/agents/{UUID}")).status_code == 204
        assert (await alice.get(f"/api/v1/agents/{quote(stored, safe='')}")).status_code == 404


async def test_two_records_of_one_uuid_of_an_earlier_release_stay_apart(tmp_path: Path) -> None:
    async with service(tmp_path, store="sqlite") as bench:
        for agent_id, subject in ((UUID, "alice"), (f"urn:uuid:{DIGITS}", "bob")):
            held = make_registration(agent_id, owner=subject, text=f"Of {subject}.")
            await bench.application.store.execute(put_registration(held))
    async with service(tmp_path, store="sqlite") as bench:
        alice, bob = bench.as_("alice"), bench.as_("bob")
        assert (await alice.post("/api/v1/agents", json=profile(UUID))).status_code == 200
        assert (await bob.post("/api/v1/agents", json=profile(f"urn:uuid:{DIGITS}"))).status_code == 200
        assert (await bob.delete(f"/api/v1/agents/urn%3Auuid%3A{DIGITS}")).status_code == 204
        assert (await alice.get(f"/api/v1/agents/{DIGITS}")).json()["id"] == UUID


@pytest.mark.parametrize(
    ("revoked", "spelling"), [(agent_id, each) for agent_id, others in SPELLINGS.items() for each in others]
)
async def test_a_revoked_agent_does_not_come_back_in_another_spelling(
    bench: Bench, revoked: str, spelling: str
) -> None:
    alice, admin = bench.as_("alice"), bench.admin()
    assert (await alice.post("/api/v1/agents", json=profile(spelling))).status_code == 201
    answer = await admin.post("/api/v1/keys:revoke", json={"agent_id": revoked, "reason": "key lost"})
    assert answer.json()["withdrawn"] == [spelling]
    for each in (revoked, spelling, *SPELLINGS[revoked]):
        assert (await alice.post("/api/v1/agents", json=profile(each))).status_code == 403, each


# --- Over time ------------------------------------------------------------------------------------


async def test_an_announced_id_belongs_to_its_key_after_its_lease(bench: Bench) -> None:
    alice, mallory = bench.as_("alice"), bench.as_("mallory")
    first = announcement(key("one"), seq=1, at=bench.clock.now())
    assert (await alice.post("/agents", json=first)).status_code in (200, 201)
    bench.clock.advance(10 * 120)
    for spelling in (UUID, f"urn:uuid:{UUID}"):
        assert (await mallory.post("/api/v1/agents", json=profile(spelling))).status_code == 409
        assert (await bench.admin().post("/api/v1/agents", json=profile(spelling))).status_code == 409
    again = announcement(key("one"), seq=2, at=bench.clock.now())
    assert (await alice.post("/agents", json=again)).status_code in (200, 201)


async def test_what_was_proven_outlives_a_restart(tmp_path: Path) -> None:
    async with service(tmp_path, store="sqlite") as bench:
        await pin(bench, "teller")
        alice = bench.as_("alice")
        assert (await alice.post("/api/v1/agents", json=signed("teller"))).status_code == 201
        assert (await alice.delete("/api/v1/agents/teller")).status_code == 204
    async with service(tmp_path, store="sqlite") as bench:
        assert (await bench.as_("mallory").post("/api/v1/agents", json=profile("teller"))).status_code == 409
        assert (await bench.as_("mallory").post("/api/v1/agents", json=signed("teller"))).status_code == 409
        assert (await bench.as_("alice").post("/api/v1/agents", json=profile("teller"))).status_code == 201


async def test_a_data_folder_without_bindings_keeps_its_owners(tmp_path: Path) -> None:
    """Verified agents that were stored before bindings were: the documents say who has proven them."""
    async with service(tmp_path, store="sqlite") as bench:
        await pin(bench, "teller")
        alice, mallory = bench.as_("alice"), bench.as_("mallory")
        assert (await alice.post("/api/v1/agents", json=signed("teller"))).status_code == 201
        name = binding_note_name("teller")
        await bench.registry.execute(
            Command(keys=(), notes=(name,), decide=lambda _: Decision(outcome="done", notes={name: None}))
        )
        newer = profile("teller", updated_at="2026-05-02T00:00:00Z", description="Counts money.")
        assert (await mallory.post("/api/v1/agents", json=newer)).status_code == 409
        assert (await mallory.post("/api/v1/agents", json=signed("teller"))).status_code == 409
        assert (await alice.post("/api/v1/agents", json=newer)).status_code in (200, 202)


async def test_a_key_that_is_bound_later_names_the_subject_that_signed(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        alice, mallory = bench.as_("alice"), bench.as_("mallory")
        assert (await alice.post("/api/v1/agents", json=signed("teller"))).status_code == 201
        await pin(bench, "teller")
        assert (await alice.delete("/api/v1/agents/teller")).status_code == 204
        assert (await mallory.post("/api/v1/agents", json=signed("teller"))).status_code == 409
        assert (await alice.post("/api/v1/agents", json=signed("teller"))).status_code == 201


async def test_a_revoked_key_proves_nothing_any_more(tmp_path: Path) -> None:
    """The id stays reserved until an operator binds another key."""
    async with service(tmp_path) as bench:
        alice, admin = bench.as_("alice"), bench.admin()
        await pin(bench, "teller")
        assert (await alice.post("/api/v1/agents", json=signed("teller"))).status_code == 201
        await admin.post("/api/v1/keys:revoke", json={"key_id": KEY.public.key_id, "reason": "stolen"})
        for caller in (alice, bench.as_("mallory")):
            assert (await caller.post("/api/v1/agents", json=profile("teller"))).status_code == 409
        await admin.post("/api/v1/keys", json={"agent_id": "teller", "public_key": OTHER.public.pem()})
        assert (await alice.post("/api/v1/agents", json=signed("teller", OTHER))).status_code == 201


async def test_refusals_do_not_fill_the_audit_trail(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        await pin(bench, "teller")
        mallory = bench.as_("mallory")
        for _ in range(100):
            assert (await mallory.post("/api/v1/agents", json=profile("teller"))).status_code == 409
        refused = (await bench.admin().get("/api/v1/audit", params={"action": "refuse", "limit": 1000})).json()
    assert [entry["subject"] for entry in refused["entries"]] == ["mallory"] * 30


async def test_the_doctor_lists_ids_that_nothing_proves(bench: Bench, names: DnsServer) -> None:
    alice, mallory = bench.as_("alice"), bench.as_("mallory")
    await prove(alice, names)
    await alice.post("/api/v1/agents", json=profile(f"agent:{DOMAIN}"))
    for number in range(12):
        await mallory.post("/api/v1/agents", json=profile(f"https://shop{number:02}.example/agent"))
    await mallory.post("/api/v1/agents", json=profile("plain"))
    found = (await bench.admin().get("/api/v1/doctor")).json()["findings"]
    (finding,) = [each for each in found if each["layer"] == "ownership"]
    assert finding["message"].startswith("12 agents name a domain that nothing proves: https://shop00.example/agent, ")
    assert finding["message"].count("shop") == 10
    assert DOMAIN not in finding["message"]


# --- Tasks ----------------------------------------------------------------------------------------


async def test_tasks_for_a_domain_do_not_go_to_one_who_only_asserts_it(bench: Bench, names: DnsServer) -> None:
    alice, mallory, caller = bench.as_("alice"), bench.as_("mallory"), bench.as_("caller")
    agent_id = f"agent:{DOMAIN}"
    task = {"task": "transfer", "input": {"amount": 1}}
    await mallory.post("/api/v1/agents", json=profile(agent_id))
    for spelling in (agent_id, "agent:BANK.example.com", f"agent:{DOMAIN}."):
        sent = await caller.post("/agent/tasks", params={"agent": spelling}, json=task)
        assert sent.status_code == 202, sent.text
        assert "DNS" in sent.json()["reason"]
    taken = await mallory.post("/agent/tasks:take", json={"agent": agent_id})
    assert taken.json() == {"tasks": []}, taken.text
    await prove(alice, names)
    assert (await alice.post("/api/v1/agents", json=profile(agent_id))).status_code == 201
    kept = await caller.post("/agent/tasks", params={"agent": agent_id}, json=task)
    assert "registered here" in kept.json()["reason"]
    taken = await alice.post("/agent/tasks:take", json={"agent": agent_id})
    assert [each["task"] for each in taken.json()["tasks"]] == ["transfer"]

"""Our zones with other servers: their checkers accept the text, knot accepts updates, and unbound validates the records."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.certificates import Authority
from support.dns_serve_process import served_zone
from support.nameserver import EXAMPLE
from support.real_dns_servers import NameServer, knot, program, unbound
from support.server import RunningServer, running_server
from support.service import profile
from support.shell import Shell
from support.zone_plans import APEX, whole_zone, zone_of
from waypost.domains.zone import ZONE_FORMATS, ExtraProtocol, GeneratedZone, ZoneIndexEntry

pytestmark = pytest.mark.judge(
    "bind9, nsd, knot, unbound", "Debian", "read, take over by update and validate zones of ours"
)

SECRET = "c2VjcmV0IG9mIHRoZSB0ZXN0cywgMzIgYnl0ZXMgLi4="
INDEX = (ZoneIndexEntry(domain="alice.example.com", protocol="a2a"),)
DESK = "desk.example.com"


def _large() -> GeneratedZone:
    return zone_of(
        organisation="example.com",
        index=INDEX,
        index_host="agents.example.com",
        addresses=("192.0.2.1", "2001:db8::1"),
        extra_protocols=(ExtraProtocol(protocol="mcp", host="mcp.example.com", port=8443),),
        capabilities_url="https://alice.example.com/" + "x" * 300,
        metadata_url="https://alice.example.com/" + "y" * 300,
    )


@pytest.mark.parametrize("checker", ["named-checkzone", "nsd-checkzone"])
@pytest.mark.parametrize("form", [form for form in ZONE_FORMATS if form != "terraform"])
def test_the_checkers_of_bind_and_nsd_read_every_zone(tmp_path: Path, checker: str, form: str) -> None:
    file = tmp_path / "zone"
    file.write_text(whole_zone(_large(), form))
    done = subprocess.run([program(checker), "example.com", str(file)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


# --- knot takes what is published -----------------------------------------------------------------


@pytest.fixture(scope="module")
def zone_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NameServer]:
    folder = tmp_path_factory.mktemp("knot")
    text = f'$ORIGIN example.com.\n{APEX}_agent.desk 60 IN TXT "v=aid2;u=https://desk.example.com/mcp;p=mcp"\n'
    policy = {"algorithm": "ed25519", "nsec3": "off"}
    with knot(folder, {"example.com": text}, policy=policy, update_secret=SECRET) as server:
        (folder / "update.key").write_text(f"hmac-sha256:update:{SECRET}\n")
        yield server


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running_server() as server:
        shell = Shell(tmp_path_factory.mktemp("agents"), server.environment())
        name = shell.write("desk.json", profile("urn:agent:desk", name="Desk", tags=["invoices"]))
        assert shell("register", name).code == 0
        assert shell("host", DESK, "urn:agent:desk").code == 0
        yield server


@pytest.fixture
def shell(tmp_path: Path, registry: RunningServer, zone_server: NameServer) -> Shell:
    return Shell(tmp_path, {**registry.environment(), "WAYPOST_RESOLVER": zone_server.address})


def _places(server: NameServer) -> list[str]:
    return ["--nameserver", server.address, "--key", str(server.folder / "update.key")]


def _texts(server: NameServer, name: str, kind: str) -> list[str]:
    return sorted(
        rdata.to_text() for rrset in server.ask(name, kind).answer if rrset.rdtype.name == kind for rdata in rrset
    )


def _changed(ran: Any) -> list[tuple[str, str]]:
    return [(change["name"], change["type"]) for change in ran.json["changes"]]


def test_records_are_published_once_checked_and_taken_back(shell: Shell, zone_server: NameServer) -> None:
    where = _places(zone_server)
    asked = ["dns", "check", DESK, "--nameserver", zone_server.address]
    missing = shell(*asked, "-o", "json")
    assert missing.code == 1
    assert {row["state"] for row in missing.json} == {"missing", "differs"}  # the text of AID is there, ours is not

    planned = shell("dns", "publish", DESK, *where, "--org", "example.com", "--dry-run", "-o", "json")
    assert planned.json["outcome"] == "planned"
    assert _texts(zone_server, DESK, "SVCB") == []

    first = shell("dns", "publish", DESK, *where, "--org", "example.com", "-o", "json")
    assert (first.code, first.json["outcome"]) == (0, "published"), first.err
    assert _changed(first) == _changed(planned)
    assert len(_texts(zone_server, f"_agent.{DESK}", "TXT")) == 2  # AID's is still there
    assert _texts(zone_server, "_agents.example.com", "SVCB") == [f"0 {DESK}."]

    again = shell("dns", "publish", DESK, *where, "--org", "example.com", "-o", "json")
    assert (again.json["outcome"], again.json["changes"]) == ("unchanged", [])
    checked = shell(*asked)
    assert checked.code == 0, checked.out
    assert "same" in checked.out

    # Records that the agent no longer needs are removed; records of others stay.
    moved = shell("dns", "publish", DESK, *where, "--port", "8443", "--tlsa-cert", _certificate(shell), "-o", "json")
    assert moved.json["outcome"] == "published", moved.err
    assert len(_texts(zone_server, f"_8443._tcp.{DESK}", "TLSA")) == 1
    assert shell(*asked).code == 1

    back = shell("dns", "publish", DESK, *where, "--rollback", "-o", "json")
    assert back.json["outcome"] == "rolled back", back.err
    assert _texts(zone_server, f"_8443._tcp.{DESK}", "TLSA") == []
    assert shell(*asked).code == 0
    undone = shell("dns", "publish", DESK, *where, "--rollback", "-o", "json")
    assert undone.code == 0, undone.err
    assert _texts(zone_server, DESK, "SVCB") == []
    assert _texts(zone_server, f"_agent.{DESK}", "TXT") == ['"v=aid2;u=https://desk.example.com/mcp;p=mcp"']
    assert shell("dns", "publish", DESK, *where, "--rollback").code == 1


def _certificate(shell: Shell) -> str:
    return str(Authority(shell.folder).server_files(DESK)[0])


def test_a_zone_changed_by_others_is_not_rolled_back(shell: Shell, zone_server: NameServer) -> None:
    where = _places(zone_server)
    assert shell("dns", "publish", DESK, *where).code == 0
    other = {"WAYPOST_DATA": str(shell.folder / "other"), "WAYPOST_TOKEN": _token(shell)}
    assert shell("dns", "publish", DESK, *where, "--ttl", "300", **other).code == 0
    refused = shell("dns", "publish", DESK, *where, "--withdraw", "-o", "json")
    assert refused.json["outcome"] == "withdrawn"
    late = shell("dns", "publish", DESK, *where, "--rollback", **other)
    assert late.code == 1
    assert "changed since" in late.err


def _token(shell: Shell) -> str:
    return (Path(shell.environment["WAYPOST_DATA"]) / "admin.token").read_text().strip()


def test_without_the_key_nothing_is_published(shell: Shell, zone_server: NameServer) -> None:
    (shell.folder / "wrong.key").write_text("hmac-sha256:update:d3Jvbmcgd3Jvbmcgd3Jvbmcgd3Jvbmcgd3Jvbmcgd3Jvbmc=")
    refused = shell("dns", "publish", DESK, "--nameserver", zone_server.address, "--key", "wrong.key")
    assert refused.code == 77, refused.err
    nowhere = shell("dns", "publish", DESK, "--nameserver", zone_server.address)
    assert (nowhere.code, "--key" in nowhere.err) == (1, True), nowhere.err
    elsewhere = shell("dns", "publish", DESK, *_places(zone_server), "--zone", "example.net")
    assert (elsewhere.code, "not in the zone" in elsewhere.err) == (1, True), elsewhere.err
    (shell.folder / "unknown.key").write_text(f"nobody:{SECRET}")
    unknown = shell("dns", "publish", DESK, "--nameserver", zone_server.address, "--key", "unknown.key")
    assert unknown.code == 77, unknown.err
    dead = shell("dns", "publish", DESK, "--nameserver", "127.0.0.1:1", "--key", "wrong.key")
    assert dead.code == 69, dead.err


def test_a_zone_is_served_with_the_records_of_agents(shell: Shell, registry: RunningServer, tmp_path: Path) -> None:
    environment = {**shell.environment, "WAYPOST_TOKEN": registry.admin_token}
    more = ("--agent", DESK, "--server", registry.url)
    with served_zone(tmp_path, "", "ed25519", "example.com", *more, environment=environment) as (server, _):
        assert len(_texts(server, DESK, "SVCB")) == 1
        assert len(_texts(server, f"_agent.{DESK}", "TXT")) == 1


# --- unbound judges what is served ----------------------------------------------------------------


@pytest.mark.parametrize("algorithm", ["ed25519", "ecdsa"])
def test_unbound_validates_the_answers_of_dns_serve(tmp_path: Path, algorithm: str) -> None:
    with served_zone(tmp_path, EXAMPLE, algorithm) as (server, anchors):
        judged = tmp_path / "unbound"
        judged.mkdir()
        with unbound(judged, {"example.test": server}, anchors) as judge:
            for name, kind in (
                ("alice.example.test", "SVCB"),
                ("_agent.alice.example.test", "TXT"),
                ("x.wild.example.test", "TXT"),
                ("x.wild.example.test", "A"),
                ("alias.example.test", "SVCB"),
                ("between.example.test", "A"),
                ("nobody.example.test", "A"),
                ("zzz.example.test", "TXT"),
                ("alice.example.test", "TLSA"),
                ("sub.example.test", "DS"),
            ):
                assert judge.verdict(name, kind) == "secure", (name, kind)

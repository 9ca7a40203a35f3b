from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from waypost import limits
from waypost.model.credentials import Issuer
from waypost.registry.doctor import DatabaseFacts, Deployment, HostFacts, RuntimeFacts, examine
from waypost.responses.service import DoctorFinding
from waypost.settings import SETTINGS, Settings

NOW = 1_780_000_000.0
SOUND = HostFacts(
    data_mode=0o700, admin_token_mode=0o600, key_modes=(("token.pem", 0o600),), free_bytes=10**12, cores=4
)
HARDENED: dict[str, Any] = {
    "host": "192.0.2.1",
    "tls_cert": Path("cert.pem"),
    "tls_key": Path("key.pem"),
    "client_ca": Path("ca.pem"),
    "crl": Path("crl.pem"),
    "bind_subject": True,
    "resolver": "192.0.2.53:53,192.0.2.54:53",
}


def found(machine: HostFacts = SOUND, running: RuntimeFacts | None = None, **settings: Any) -> list[DoctorFinding]:
    deployment = Deployment(
        settings=Settings(data=Path("/nowhere"), **settings),
        machine=machine,
        now=NOW,
        running=running or RuntimeFacts(),
    )
    return examine(deployment)


def missing(*arguments: Any, **settings: Any) -> set[tuple[str, str, str | None]]:
    """The findings that are a danger or a warning: severity, layer, setting."""
    return {
        (each.severity, each.layer, each.setting)
        for each in found(*arguments, **settings)
        if each.severity in ("danger", "warning")
    }


def test_a_start_on_loopback_misses_nothing_that_it_needs() -> None:
    assert missing() == set()
    assert {each.setting for each in found() if each.severity == "info"} >= {"tls_cert", "client_ca", "bind_subject"}


def test_a_hardened_deployment_misses_nothing() -> None:
    findings = found(running=RuntimeFacts(allow_rules=("key:sha256:00",)), **HARDENED)
    assert [each for each in findings if each.severity != "ok"] == []


def test_the_doctor_reports_who_validates_dnssec() -> None:
    told = [
        [(each.severity, each.setting) for each in found(trust_ad=ad) if each.layer == "dnssec"] for ad in (False, True)
    ]
    assert told == [[("ok", "trust_anchors")], [("info", "trust_ad")]]


def test_listeners_on_the_lan_are_named_and_first_use_there_is_a_warning() -> None:
    findings = found(mdns=True, udp=True, mdns_publish=True, legacy_signatures=True)
    told = {(each.severity, each.setting) for each in findings if each.layer in ("LAN", "announcements")}
    assert told >= {("ok", "mdns"), ("ok", "udp"), ("info", "mdns_publish"), ("warning", "legacy_signatures")}
    assert ("warning", "LAN", "udp") in missing(udp=True, trust_mode="tofu")
    assert ("warning", "LAN", "bus") in missing(bus="nats://127.0.0.1:4222", trust_mode="tofu")


def test_an_open_service_is_reported() -> None:
    assert missing(open=True) == {("warning", "authentication", "open")}


@pytest.mark.parametrize(
    ("expected", "settings"),
    [
        (("danger", "transport", "tls_cert"), {"host": "0.0.0.0"}),
        (("warning", "announcements", "trust_mode"), {"trust_mode": "tofu"}),
        (("warning", "announcements", "unsigned_announcements"), {"unsigned_announcements": "untrusted"}),
        (("warning", "announcements", "legacy_signatures"), {"legacy_signatures": True}),
        (("warning", "rate limits", "rate_limit_writes"), {**HARDENED, "rate_limit_writes": 0}),
        (("warning", "quotas", "agents_per_owner"), {**HARDENED, "agents_per_owner": 0}),
        (("warning", "quotas", "stored_bytes_per_owner"), {**HARDENED, "stored_bytes_per_owner": 0}),
        (("warning", "quotas", "hourly_bytes_per_owner"), {**HARDENED, "hourly_bytes_per_owner": 0}),
        (("danger", "outgoing requests", "allow_cidrs"), {"allow_cidrs": ("0.0.0.0/0",)}),
        (("warning", "outgoing requests", "allow_cidrs"), {"allow_cidrs": ("10.0.0.0/8",)}),
        (("warning", "outgoing requests", "allow_cidrs"), {"allow_cidrs": ("127.0.0.0/16",)}),
        (("danger", "proxies", "trusted_proxies"), {"trusted_proxies": ("0.0.0.0/0",)}),
        (("danger", "proxies", "trusted_proxies"), {"base_url": "https://agents.example.com"}),
        (("warning", "durability", "store"), {**HARDENED, "store": "memory"}),
        (
            ("warning", "outside issuers", "jwks_admin"),
            {"issuers": (Issuer(issuer="x", audience="y", jwks=("k.json",), admin=True, prefix="x:"),)},
        ),
    ],
)
def test_each_missing_layer_is_named_with_its_setting(expected: tuple[str, str, str], settings: dict[str, Any]) -> None:
    assert missing(**settings) == {expected}


@pytest.mark.parametrize(
    ("expected", "facts"),
    [
        (("danger", "files", "data"), {"admin_token_mode": 0o644}),
        (("danger", "files", "data"), {"key_modes": (("token.pem", 0o640),)}),
        (("danger", "files", "data"), {"data_mode": 0o777}),
        (("warning", "files", "data"), {"data_mode": 0o755}),
        (("danger", "disk", "data"), {"free_bytes": limits.DOCTOR_DISK_DANGER_BYTES - 1}),
        (("warning", "disk", "data"), {"free_bytes": limits.DOCTOR_DISK_WARNING_BYTES - 1}),
        (("warning", "kernels", None), {"missing_kernels": ("words",)}),
    ],
)
def test_doctor_checks_the_facts_of_the_machine(expected: tuple[str, str, str], facts: dict[str, Any]) -> None:
    assert missing(msgspec.structs.replace(SOUND, **facts)) == {expected}


@pytest.mark.parametrize(("days", "severity"), [(-1, "danger"), (3, "warning"), (90, None)])
def test_an_expiring_certificate_is_reported_in_time(days: int, severity: str | None) -> None:
    machine = msgspec.structs.replace(SOUND, certificate_ends=NOW + days * 86_400)
    told = {each.severity for each in found(machine, **HARDENED) if each.layer == "certificate"}
    assert told == ({severity} if severity else set())


def test_doctor_checks_the_facts_of_a_running_service() -> None:
    running = RuntimeFacts(
        allow_rules=("*",), silent_issuers=("https://id.example/keys",), agents=9, failed=2, pending=1
    )
    assert missing(SOUND, running) == {
        ("warning", "announcements", None),
        ("warning", "outside issuers", "jwks"),
        ("warning", "agents", None),
    }


def test_a_clock_that_was_never_set_is_a_danger() -> None:
    deployment = Deployment(settings=Settings(data=Path("/nowhere")), machine=SOUND, now=1000.0)
    assert examine(deployment)[0].layer == "clock"


def test_every_named_setting_exists_and_every_finding_has_a_hint() -> None:
    findings = [
        *found(),
        *found(open=True, store="memory", log_level="debug", workers=1, embedder="none"),
        *found(**HARDENED),
    ]
    names = {setting.name for setting in SETTINGS}
    assert {each.setting for each in findings if each.setting} <= names
    assert all(each.hint for each in findings if each.severity != "ok")


def test_agents_that_only_assert_a_domain_are_listed_with_what_to_do() -> None:
    running = RuntimeFacts(agents=20, asserted_domains=12, asserted_examples=("agent:a.example", "https://b.example/x"))
    (finding,) = [each for each in found(running=running) if each.layer == "ownership"]
    assert finding.severity == "info"
    assert finding.message == "12 agents name a domain that nothing proves: agent:a.example, https://b.example/x, …."
    assert "waypost domain prove" in finding.hint
    assert not [each for each in found() if each.layer == "ownership"]


@pytest.mark.parametrize(
    ("facts", "severity", "words"),
    [
        ({"is_away": True}, "danger", "is away"),
        ({"fsync": False}, "danger", "fsync"),
        ({"full_page_writes": False}, "danger", "full_page_writes"),
        ({"synchronous_commit": "off"}, "danger", "synchronous_commit is off"),
        (
            {"synchronous_commit": "local", "synchronous_standbys": "ANY 1 (*)", "standbys": 2},
            "warning",
            "do not wait for a standby",
        ),
        ({"synchronous_standbys": "ANY 1 (*)"}, "danger", "No standby is connected"),
        ({"standbys": 2}, "warning", "All 2 standbys are asynchronous"),
        ({}, "info", "has no standby"),
        ({"is_remote": True}, "danger", "not encrypted"),
        ({"max_connections": 100, "connections": 81}, "warning", "81 of 100 connections"),
        ({"hears": False}, "info", "pool in transaction mode"),
        ({"skew_seconds": -3600.0}, "warning", "differ by 3600 s"),
    ],
)
def test_doctor_checks_the_database_of_a_cluster(facts: dict[str, Any], severity: str, words: str) -> None:
    findings = found(running=RuntimeFacts(database=DatabaseFacts(**facts)))
    assert [each.severity for each in findings if words in each.message] == [severity]


def test_a_sound_database_of_a_cluster_misses_nothing() -> None:
    facts = DatabaseFacts(synchronous_standbys="ANY 1 (*)", standbys=2, is_remote=True, tls=True, max_connections=100)
    findings = found(running=RuntimeFacts(database=facts))
    assert {each.severity for each in findings if each.layer == "database"} == {"ok"}

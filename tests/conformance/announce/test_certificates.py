"""Certificates as announced keys, and the mode `ca` (announce.md P-11, P-14)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from support.announce import AGENT_ID, announce, announcement, error_of, key
from support.certificates import Authority, Issued
from support.mutual_tls import tls, today
from support.service import Bench, service
from waypost.errors import ConfigurationError
from waypost.settings import Settings
from waypost.trust.keys.private_key import load_private_key

URN = f"urn:uuid:{AGENT_ID}"


def make_announcement(bench: Bench, issued: Issued, **more: Any) -> dict[str, Any]:
    now = bench.clock.now()
    signer = load_private_key(issued.key.read_bytes())
    return announcement(signer, seq=int(now * 1000), at=now, public_key=issued.certificate.read_text(), **more)


async def admit(bench: Bench, rule: str) -> None:
    assert (await bench.admin().post("/api/v1/allow", json={"rule": rule})).status_code == 201


@pytest.mark.req("ANN-21", "ANN-20")
async def test_in_the_mode_ca_an_authority_and_a_rule_admit(tmp_path: Path) -> None:
    known, unknown = Authority(tmp_path / "a"), Authority(tmp_path / "b", "Another authority")
    good = known.client("good", URN, dns=("agents.example.com",))
    async with service(tmp_path / "d", clock=today(), trust_mode="ca", **tls(known)) as bench:
        alice = bench.as_("alice")
        assert error_of(await announce(alice, make_announcement(bench, good))) == (403, "ErrForbidden", "not_allowed")
        await admit(bench, "san:example.org")
        assert error_of(await announce(alice, make_announcement(bench, good))) == (403, "ErrForbidden", "not_allowed")
        await admit(bench, "san:example.com")
        for wrong, expected in (
            (unknown.client("stranger", URN, dns=("agents.example.com",)), (401, "ErrAuth", "certificate")),
            (known.client("nameless", dns=("agents.example.com",)), (403, "ErrForbidden", "not_allowed")),
            (known.client("other", "urn:uuid:" + AGENT_ID[::-1]), (403, "ErrForbidden", "not_allowed")),
        ):
            assert error_of(await announce(alice, make_announcement(bench, wrong))) == expected
        now = bench.clock.now()
        plain = announcement(key("one"), seq=int(now * 1000), at=now)
        assert error_of(await announce(alice, plain)) == (403, "ErrForbidden", "not_allowed")
        assert (await announce(alice, make_announcement(bench, good))).status_code == 200
        held = (await bench.admin().get("/api/v1/keys")).json()["keys"]
        assert [(row["kind"], row["via"]) for row in held] == [("p-256", "ca")]


@pytest.mark.req("ANN-23")
@pytest.mark.parametrize("how", ["crl", "serial"])
async def test_a_revoked_certificate_cannot_register(tmp_path: Path, how: str) -> None:
    authority = Authority(tmp_path / "a")
    issued = authority.client("good", URN)
    crl = authority.revoke()
    async with service(tmp_path / "d", clock=today(), crl=crl, **tls(authority)) as bench:
        await admit(bench, "*")
        alice = bench.as_("alice")
        assert (await announce(alice, make_announcement(bench, issued))).status_code == 200
        if how == "crl":
            authority.revoke(issued)
            bench.clock.advance(61)
        else:
            serial = f"{issued.serial:X}"
            assert (await bench.admin().post("/api/v1/keys:revoke", json={"serial": serial})).status_code == 200
            bench.clock.advance(1)
        for answer in (
            await announce(alice, make_announcement(bench, issued)),
            await alice.post("/api/v1/agents", json=make_announcement(bench, issued)),
        ):
            assert (answer.status_code, answer.json()["reason"]) == (403, "revoked")


@pytest.mark.req("ANN-23")
async def test_a_certificate_that_is_out_of_date_is_no_key(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "a")
    issued = authority.client("good", URN)
    async with service(tmp_path / "d", clock=today()) as bench:
        await admit(bench, "*")
        assert (await announce(bench.as_("alice"), make_announcement(bench, issued))).status_code == 200
        bench.clock.advance(2 * 86_400)
        answer = await announce(bench.as_("alice"), make_announcement(bench, issued))
        assert error_of(answer) == (401, "ErrAuth", "certificate")


@pytest.mark.req("ANN-20")
def test_the_mode_ca_needs_authorities(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as refused:
        Settings(data=tmp_path, trust_mode="ca")
    assert refused.value.path == "client_ca"

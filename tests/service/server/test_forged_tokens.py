"""Forged tokens (THREATS J1…J10, ANN-60): none is accepted, and none triggers an outgoing request."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from support.external_server import ExternalServer, external_server
from support.forged_tokens import forgeries
from support.service import NOW, Bench, profile, service
from support.tokens import TokenIssuer
from support.vectors import load_own_vectors
from waypost.errors import ConfigurationError
from waypost.model.credentials import Issuer
from waypost.trust.jwt import SERVICE_KEY_ID

CASES = load_own_vectors("jwt_cases")["cases"]
IDP = TokenIssuer(NOW)
# Cases with a test of their own in this file, because they need more than one token.
ELSEWHERE = {
    "server configured with an HS256 secret < 32 bytes",
    "exp past by 5 s (leeway 30)",
    "valid token, sub not owner of agent_id",
    "two Authorization headers",
    "revoked jti / revoked key",
}


@asynccontextmanager
async def both_issuers(folder: Path) -> AsyncIterator[tuple[Bench, ExternalServer, TokenIssuer]]:
    """A service that believes itself and an outside issuer, and a server that must not be asked."""
    (folder / "jwks.json").write_text(json.dumps(IDP.jwks()))
    outsider = Issuer(issuer=IDP.issuer, jwks=(str(folder / "jwks.json"),))
    async with external_server() as canary, service(folder / "data", issuers=(outsider,)) as bench:
        key = load_pem_private_key((folder / "data/keys/token.pem").read_bytes(), None)
        assert isinstance(key, Ed25519PrivateKey)
        yield bench, canary, TokenIssuer(NOW, "waypost", keys={"EdDSA": key}, kids={"EdDSA": SERVICE_KEY_ID})


async def send(client: httpx2.AsyncClient, token: str, method: str = "GET") -> httpx2.Response:
    headers = {"Authorization": f"Bearer {token}"}
    if method == "POST":
        return await client.post("/api/v1/agents", json=profile("forged"), headers=headers)
    return await client.get("/api/v1/agents", headers=headers)


@pytest.mark.req("ANN-60")
async def test_no_forged_token_is_accepted_and_nothing_is_fetched(tmp_path: Path) -> None:
    async with both_issuers(tmp_path) as (bench, canary, own):
        anonymous = bench.anonymous()
        asked = 0
        for issuer in (own, IDP):
            assert (await send(anonymous, issuer.token())).status_code == 200, "the good one"
            for forgery in forgeries(issuer, f"http://127.0.0.1:{canary.port}/jwks.json"):
                answer = await send(anonymous, forgery.token, forgery.method)
                assert answer.status_code == forgery.want, (issuer.issuer, forgery[:2], answer.text)
                assert forgery.token not in answer.text
                asked += 1
        assert (await bench.admin().get("/api/v1/stats")).json()["agents"] == 0
        assert asked >= 60
        assert canary.connections == 0


def test_every_case_of_the_list_has_a_forgery() -> None:
    named = {forgery.case for forgery in forgeries(IDP, "http://127.0.0.1:1/")}
    assert {case["name"] for case in CASES} - named == ELSEWHERE


@pytest.mark.parametrize("algorithm", ["EdDSA", "RS256", "ES256"])
async def test_a_token_of_an_outside_issuer_is_accepted_with_some_leeway(tmp_path: Path, algorithm: str) -> None:
    """J6."""
    async with both_issuers(tmp_path) as (bench, _, own):
        anonymous = bench.anonymous()
        assert (await send(anonymous, IDP.token(algorithm, exp=int(NOW) - 5))).status_code == 200
        assert (await send(anonymous, IDP.token(algorithm, nbf=int(NOW) + 5, typ=None))).status_code == 200
        assert (await send(anonymous, IDP.token(algorithm, iat=None, aud=["x", "waypost"]))).status_code == 200
        scp = IDP.token(algorithm, scope=None, scp=["discover:read"], header={"typ": "at+JWT"})
        assert (await send(anonymous, scp)).status_code == 200
        ours = own.token("EdDSA", exp=int(NOW) - 5)
        assert (await send(anonymous, ours)).status_code == 401, "ours is minted by the same clock"


async def test_a_token_is_refused_after_it_expires(tmp_path: Path) -> None:
    async with both_issuers(tmp_path) as (bench, _, own):
        anonymous = bench.anonymous()
        for issuer, end in ((own, 600), (IDP, 630)):  # an outside issuer has a clock of its own
            token, elapsed = issuer.token(), bench.clock.now() - NOW
            bench.clock.advance(-elapsed)
            for at, want in ((0, 200), (end - 1, 200), (end, 401)):
                bench.clock.advance(NOW + at - bench.clock.now())
                assert (await send(anonymous, token)).status_code == want, (issuer.issuer, at)


@pytest.mark.req("ANN-60")
async def test_two_credentials_are_one_too_many(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        token = bench.token("alice")
        headers = [("Authorization", f"Bearer {token}"), ("Authorization", f"Bearer {bench.admin_token}")]
        answer = await bench.anonymous().get("/api/v1/agents", headers=headers)
        assert answer.status_code == 400


async def test_an_external_issuer_grants_admin_only_if_configured(tmp_path: Path) -> None:
    (tmp_path / "jwks.json").write_text(json.dumps(IDP.jwks()))
    token = IDP.token(scope="admin")
    for admin, want in ((False, 403), (True, 201)):
        outsider = Issuer(issuer=IDP.issuer, jwks=(str(tmp_path / "jwks.json"),), admin=admin)
        async with service(tmp_path / str(admin), issuers=(outsider,)) as bench:
            asked = {"sub": "x", "scopes": ["discover:read"]}
            answer = await bench.client(token).post("/api/v1/tokens", json=asked)
            assert answer.status_code == want


async def test_a_prefix_keeps_the_subjects_of_an_issuer_apart(tmp_path: Path) -> None:
    (tmp_path / "jwks.json").write_text(json.dumps(IDP.jwks()))
    outsider = Issuer(issuer=IDP.issuer, jwks=(str(tmp_path / "jwks.json"),), prefix="idp:")
    async with service(tmp_path / "data", issuers=(outsider,)) as bench:
        theirs, ours = bench.client(IDP.token()), bench.as_("alice")
        made = await theirs.post("/api/v1/agents", json=profile("a"), headers={"Waypost-Visibility": "private"})
        assert made.status_code == 201
        assert (await ours.get("/api/v1/agents/a")).status_code == 404
        assert (await bench.as_("idp:alice").get("/api/v1/agents/a")).status_code == 200
        admin = bench.client(IDP.token(sub="admin"))
        assert (await admin.get("/api/v1/agents")).status_code == 200, "idp:admin is nobody in particular"


async def test_the_one_issuer_of_the_flags_shares_its_name_with_our_own_tokens(tmp_path: Path) -> None:
    (tmp_path / "jwks.json").write_text(json.dumps(IDP.jwks()))
    flags = {"jwks": (str(tmp_path / "jwks.json"),), "issuer": IDP.issuer, "audience": "waypost"}
    async with service(tmp_path / "data", **flags) as bench:
        assert (await bench.client(IDP.token()).get("/api/v1/agents")).status_code == 200
        assert (await bench.as_("bob").get("/api/v1/agents")).status_code == 200


async def test_a_shared_secret_is_used_where_it_is_configured_and_must_be_long(tmp_path: Path) -> None:
    """J2, J9."""
    secret = b"s" * 32
    (tmp_path / "secret").write_bytes(secret + b"\n")
    issuer = Issuer(issuer=IDP.issuer, secret=str(tmp_path / "secret"))
    async with service(tmp_path / "data", issuers=(issuer,)) as bench:
        anonymous = bench.anonymous()
        assert (await send(anonymous, IDP.shared(secret))).status_code == 200
        for wrong in (IDP.shared(b"t" * 32), IDP.shared(secret, header={"alg": "HS512"}), IDP.token("RS256")):
            assert (await send(anonymous, wrong)).status_code == 401
    (tmp_path / "secret").write_bytes(b"s" * 31)
    with pytest.raises(ConfigurationError, match="32"):
        async with service(tmp_path / "other", issuers=(issuer,)):
            pass


async def test_a_revoked_token_is_refused_at_once(tmp_path: Path) -> None:
    async with both_issuers(tmp_path) as (bench, _, own):
        anonymous = bench.anonymous()
        for issuer in (own, IDP):
            token = issuer.token(jti=f"jti-{issuer.issuer}")
            assert (await send(anonymous, token)).status_code == 200
            bench.registry.trust.apply_notes({f"revoked:token:jti-{issuer.issuer}": b""})
            assert (await send(anonymous, token)).status_code == 401
            assert (await send(anonymous, issuer.token(jti="another"))).status_code == 200


async def test_only_the_owner_changes_an_agent(tmp_path: Path) -> None:
    """J8: through every method, for a token that holds."""
    async with both_issuers(tmp_path) as (bench, _, own):
        await bench.client(IDP.token()).post("/api/v1/agents", json=profile("a"))
        bob = bench.client(own.token(sub="bob"))
        answers = [
            await bob.post("/api/v1/agents", json=profile("a", name="B")),
            await bob.put("/profile/v1/agents/a", json=profile("a", name="B")),
            await bob.delete("/api/v1/agents/a"),
            await bob.delete("/profile/v1/agents/a"),
            await bob.post("/api/v1/agents/a:renew"),
            await bob.post("/api/v1/agents/a:share", json={"add": ["bob"]}),
        ]
        assert [answer.status_code for answer in answers] == [409, 409, 403, 403, 403, 403]
        call = {"jsonrpc": "2.0", "id": 1, "method": "rtfs.registry.deregister", "params": {"agent_id": "a"}}
        assert (await bob.post("/rtfs", json=call)).json()["error"]["code"] == -32003


async def test_an_address_that_fails_again_and_again_is_refused_before_anything_is_verified(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        from_afar = httpx2.ASGITransport(bench.application.http_app, client=("203.0.113.9", 4000))
        async with httpx2.AsyncClient(transport=from_afar, base_url=bench.application.base_url) as client:
            good = bench.token("alice")
            assert (await send(client, good)).status_code == 200
            answers = [(await send(client, f"a.b.{number}")).status_code for number in range(605)]
            assert answers == [401] * 600 + [429] * 5
            refused = await send(client, bench.token("bob"))
            assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
            assert (await send(client, good)).status_code == 200, "it is known already"
            bench.clock.advance(2)
            assert (await send(client, bench.token("bob"))).status_code == 200

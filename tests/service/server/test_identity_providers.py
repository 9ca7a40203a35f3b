"""Tokens in the form of well-known issuers, with the settings that docs/how-to/use-your-own-identity-provider.md gives."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from support.external_server import external_server
from support.service import NOW, Bench, profile, service
from support.tokens import TokenIssuer, rsa_key
from waypost.errors import ConfigurationError
from waypost.model.credentials import Issuer
from waypost.settings import Settings, load_settings

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "use-your-own-identity-provider.md"


def documented(heading: str, folder: Path) -> Issuer:
    """The issuer in the TOML example below a heading of the page, as the settings file loads it."""
    section = PAGE.read_text().partition(f"### {heading}\n")[2].partition("\n#")[0]
    (example,) = re.findall(r"```toml\n(.*?)```", section, re.DOTALL)
    config = folder / "example.toml"
    config.write_text(example)
    (issuer,) = load_settings(config=config, environ={}).external_issuers
    return issuer


class Provider:
    """An issuer of the page with an RSA key of the test. `alg` is left out of the key, as Entra does."""

    def __init__(self, issuer: Issuer, folder: Path) -> None:
        keys = folder / "provider-keys.json"
        self.tokens = TokenIssuer(
            NOW, issuer.issuer, issuer.audience, keys={"RS256": rsa_key()}, kids={"RS256": "provider-1"}
        )
        jwk = {**self.tokens.jwk("RS256"), "x5t": "provider-1", "x5c": ["MIIC"]}
        del jwk["alg"]
        keys.write_text(json.dumps({"keys": [jwk]}))
        self.issuer = msgspec.structs.replace(issuer, jwks=(str(keys),))

    def token(self, **claims: Any) -> str:
        """A token with these claims only, besides issuer, audience and times."""
        return self.tokens.token("RS256", **{"scope": None, "jti": None, "nbf": int(NOW), **claims})


@asynccontextmanager
async def provider(heading: str, folder: Path) -> AsyncIterator[tuple[Bench, Provider]]:
    made = Provider(documented(heading, folder), folder)
    async with service(folder / "data", issuers=(made.issuer,)) as bench:
        yield bench, made


async def rights(bench: Bench, token: str) -> tuple[int, int, int]:
    """The statuses of a read, a write and an admin's request."""
    client = bench.client(token)
    read = await client.get("/api/v1/agents")
    written = await client.post("/api/v1/agents", json=profile("urn:example:probe"))
    admin = await client.get("/api/v1/audit")
    if written.status_code == 201:
        await client.delete("/api/v1/agents/urn:example:probe")
    return read.status_code, written.status_code, admin.status_code


NOTHING, READS, WRITES, REFUSED = (403, 403, 403), (200, 403, 403), (200, 201, 403), (401, 401, 401)

ENTRA = {
    "sub": "AAAAAAAAAAAAAAAAAAAAAIkzqFVrSaSaFHy782bbtaQ",
    "tid": "11111111-2222-3333-4444-555555555555",
    "ver": "2.0",
}


@pytest.mark.parametrize(
    ("claims", "granted"),
    [
        ({"scp": "Agents.Read"}, READS),
        ({"scp": "User.Read Agents.Write"}, WRITES),
        ({"roles": ["Agents.Read"], "idtyp": "app"}, READS),
        ({"roles": ["Other", "Agents.Write"]}, WRITES),
        ({"scp": "Agents.Reader"}, NOTHING),
        ({"scp": "agents.read"}, NOTHING),
        ({"roles": ["admin"]}, NOTHING),
        ({"roles": [["Agents.Write"]]}, NOTHING),
        ({"roles": {"Agents.Write": True}}, NOTHING),
        ({"roles": "Agents.Read Agents.Write"}, NOTHING),
        ({"wids": ["Agents.Write"]}, NOTHING),
        ({"scp": "Agents.Write", "aud": "00000003-0000-0000-c000-000000000000"}, REFUSED),
        ({"scp": "Agents.Write", "iss": "https://login.microsoftonline.com/other/v2.0"}, REFUSED),
        ({"scp": "Agents.Write", "nonce": "n"}, REFUSED),
    ],
)
async def test_a_token_of_entra(tmp_path: Path, claims: dict[str, Any], granted: tuple[int, ...]) -> None:
    async with provider("Microsoft Entra ID", tmp_path) as (bench, entra):
        assert await rights(bench, entra.token(**ENTRA, **claims)) == granted


@pytest.mark.parametrize(
    ("claims", "granted"),
    [
        ({"permissions": ["read:agents"], "scope": "openid profile"}, READS),
        ({"permissions": ["read:agents", "write:agents"]}, WRITES),
        ({"scope": "openid read:agents"}, READS),
        ({"permissions": ["admin"]}, NOTHING),
        ({"permissions": ["discover:write"]}, NOTHING),
        ({"permissions": ["read:agents"], "aud": ["https://acme.eu.auth0.com/userinfo"]}, REFUSED),
    ],
)
async def test_a_token_of_auth0(tmp_path: Path, claims: dict[str, Any], granted: tuple[int, ...]) -> None:
    async with provider("Auth0", tmp_path) as (bench, auth0):
        audience = ["https://agents.example.com", "https://acme.eu.auth0.com/userinfo"]
        given = {"sub": "auth0|5f7c8ec7c33c6c004bbafe82", "azp": "client", "aud": audience, **claims}
        assert await rights(bench, auth0.token(**given)) == granted


def service_account(namespace: str, name: str) -> dict[str, Any]:
    return {
        "sub": f"system:serviceaccount:{namespace}:{name}",
        "kubernetes.io": {"namespace": namespace, "serviceaccount": {"name": name, "uid": "0b5a"}},
        "aud": ["waypost"],
        "exp": int(NOW) + 3607,
    }


async def test_a_token_of_a_kubernetes_service_account(tmp_path: Path) -> None:
    async with provider("Kubernetes service accounts", tmp_path) as (bench, cluster):

        def issue(namespace: str, **claims: Any) -> str:
            given = {**service_account(namespace, "deployer"), **claims}
            return cluster.tokens.token("RS256", header={"typ": None}, scope=None, jti=None, **given)

        assert await rights(bench, issue("agents")) == WRITES
        for namespace in ("default", "agents2", "xagents", "kube-system"):
            assert await rights(bench, issue(namespace)) == REFUSED
        assert await rights(bench, issue("agents", aud=["https://kubernetes.default.svc"])) == REFUSED
        assert await rights(bench, issue("agents", exp=int(NOW) + 365 * 86_400)) == REFUSED
        written = await bench.client(issue("agents")).post("/api/v1/agents", json=profile("a"))
        assert written.status_code == 201
        trail = (await bench.admin().get("/api/v1/audit", params={"object": "a"})).json()["entries"]
        assert trail[0]["subject"] == "k8s:system:serviceaccount:agents:deployer"


def workflow(subject: str) -> dict[str, Any]:
    return {
        "sub": subject,
        "aud": "https://agents.example.com",
        "repository": "acme/agents",
        "ref": "refs/heads/main",
        "workflow": "publish",
        "jti": "example-id",
    }


@pytest.mark.parametrize(
    ("subject", "granted"),
    [
        ("repo:acme/agents:ref:refs/heads/main", WRITES),
        ("repo:acme/agents:environment:production", WRITES),
        ("repo:acme/agents:ref:refs/heads/main2", REFUSED),
        ("repo:acme/agents:pull_request", REFUSED),
        ("repo:acme/agents-evil:ref:refs/heads/main", REFUSED),
        ("repo:mallory/x:ref:refs/heads/main", REFUSED),
        ("x\nrepo:acme/agents:ref:refs/heads/main", REFUSED),
    ],
)
async def test_a_token_of_github_actions(tmp_path: Path, subject: str, granted: tuple[int, ...]) -> None:
    async with provider("GitHub Actions", tmp_path) as (bench, github):
        assert await rights(bench, github.token(**workflow(subject))) == granted


async def test_scopes_of_the_map_cannot_make_an_admin_unless_the_issuer_may(tmp_path: Path) -> None:
    for may, statuses in ((False, NOTHING), (True, (200, 201, 200))):
        issuer = Issuer(issuer="https://idp.example", scope_map={"boss": "admin"}, admin=may)
        made = Provider(issuer, tmp_path)
        async with service(tmp_path / f"data-{may}", issuers=(made.issuer,)) as bench:
            for claims in ({"groups": ["boss"]}, {"roles": ["boss"]}, {"scope": "boss"}, {"scp": ["boss"]}):
                assert await rights(bench, made.token(sub="eve", **claims)) == statuses


async def test_the_map_of_the_settings_is_valid_for_every_external_issuer_and_not_for_own_tokens(
    tmp_path: Path,
) -> None:
    made = Provider(Issuer(issuer="https://idp.example"), tmp_path)
    settings = {"issuers": (made.issuer,), "scope_map": {"readers": ("discover:read",)}}
    async with service(tmp_path / "data", **settings) as bench:
        assert await rights(bench, made.token(sub="a", groups=["readers"])) == READS
        assert await rights(bench, made.token(sub="a", groups="readers")) == READS
        assert await rights(bench, made.token(sub="a", scope="readers other")) == READS
        assert await rights(bench, made.token(sub="a")) == NOTHING


# --- Settings -------------------------------------------------------------------------------------


def test_the_map_comes_from_a_file_a_variable_or_a_flag(tmp_path: Path) -> None:
    config = tmp_path / "waypost.toml"
    config.write_text('jwks = ["k.json"]\n[scope_map]\n"a b" = "admin"\nc = ["discover:read", "discover:write"]\n')
    loaded = load_settings(config=config, environ={})
    assert loaded.scope_map == {"a b": ("admin",), "c": ("discover:read", "discover:write")}
    environment = {"WAYPOST_JWKS": "k.json", "WAYPOST_SCOPE_MAP": "x=y=admin, z=discover:read, z=discover:write"}
    loaded = load_settings(environ=environment)
    assert loaded.scope_map == {"x=y": ("admin",), "z": ("discover:read", "discover:write")}
    flags = {"jwks": ("k.json",), "scope_map": ("r=discover:read",)}
    assert load_settings(flags, environ={}).scope_map == {"r": ("discover:read",)}


@pytest.mark.parametrize(
    "lines",
    [
        'scope_map = "x"',
        "scope_map = {x = 1}",
        "scope_map = {x = []}",
        'scope_map = {x = "discover"}',
        '[[issuers]]\nissuer = "https://a.example"\nscope_map = {x = "everything"}',
        '[[issuers]]\nissuer = "https://a.example"\nscopes = ["discover:read"]',
        '[[issuers]]\nissuer = "https://a.example"\nsubjects = ["*"]\nscopes = ["root"]',
        '[[issuers]]\nissuer = "https://a.example"\nsubjects = ["*"]\nscopes = ["admin"]',
        '[[issuers]]\nissuer = "https://a.example"\nsubjects = [""]',
        '[[issuers]]\nissuer = "a.example"',
        '[[issuers]]\nissuer = "http://a.example"',
        '[[issuers]]\nissuer = "https://token.actions.githubusercontent.com"',
    ],
)
def test_settings_that_would_grant_too_much_or_nothing_are_refused(tmp_path: Path, lines: str) -> None:
    config = tmp_path / "waypost.toml"
    config.write_text(f"{'' if '[[' in lines else 'jwks = [' + chr(34) + 'k.json' + chr(34) + ']'}\n{lines}\n")
    with pytest.raises(ConfigurationError):
        load_settings(config=config, environ={})


# --- Discovery ------------------------------------------------------------------------------------


@asynccontextmanager
async def discovering(
    folder: Path, configuration: dict[str, Any] | None = None
) -> AsyncIterator[tuple[Bench, TokenIssuer]]:
    """A service with an issuer whose keys are found by discovery on a server of the test."""
    async with external_server() as site:
        base = f"http://127.0.0.1:{site.port}"
        tokens = TokenIssuer(NOW, base, keys={"RS256": rsa_key()})
        site.json(
            "/.well-known/openid-configuration", {"issuer": base, "jwks_uri": f"{base}/k", **(configuration or {})}
        )
        site.json("/k", tokens.jwks())
        settings = {"issuers": (Issuer(issuer=base),), "allow_cidrs": ("127.0.0.1/32",)}
        async with service(folder, **settings) as bench:
            yield bench, tokens


async def test_keys_are_found_by_discovery(tmp_path: Path) -> None:
    async with discovering(tmp_path) as (bench, tokens):
        assert await rights(bench, tokens.token()) == WRITES
        stranger = TokenIssuer(NOW, tokens.issuer, keys={"RS256": rsa_key(1)})
        assert await rights(bench, stranger.token()) == REFUSED


@pytest.mark.parametrize(
    "configuration",
    [
        {"issuer": "https://login.microsoftonline.com/{tenantid}/v2.0"},
        {"issuer": None},
        {"jwks_uri": None},
        {"jwks_uri": "file:///etc/passwd"},
        {"jwks_uri": "http://192.0.2.7/k"},
        {"jwks_uri": ["http://127.0.0.1/k"]},
    ],
)
async def test_a_configuration_of_another_issuer_or_without_safe_keys_is_refused(
    tmp_path: Path, configuration: dict[str, Any]
) -> None:
    async with discovering(tmp_path, configuration) as (bench, tokens):
        assert await rights(bench, tokens.token()) == REFUSED
        assert bench.application.issuers is not None
        assert bench.application.issuers.unavailable() == (f"{tokens.issuer}/.well-known/openid-configuration",)


async def test_discovery_asks_no_denied_address(tmp_path: Path) -> None:
    async with external_server() as site:
        base = f"http://127.0.0.1:{site.port}"
        tokens = TokenIssuer(NOW, base, keys={"RS256": rsa_key()})
        async with service(tmp_path, issuers=(Issuer(issuer=base),)) as bench:
            assert await rights(bench, tokens.token()) == REFUSED
        assert site.connections == 0


def test_the_named_issuer_is_discovered_by_the_address_of_its_configuration() -> None:
    url = "https://idp.example/.well-known/openid-configuration"
    (issuer,) = Settings(data=Path("x"), jwks=(url,), issuer="https://idp.example").external_issuers
    assert issuer.key_sources == (url,)


# --- RFC 9728 -------------------------------------------------------------------------------------


async def test_the_metadata_of_the_resource_is_open_and_names_issuers(tmp_path: Path) -> None:
    made = Provider(Issuer(issuer="https://idp.example"), tmp_path)
    settings = {"issuers": (made.issuer,), "base_url": "https://agents.example.com/"}
    async with service(tmp_path / "data", **settings) as bench:
        answer = await bench.anonymous().get("/.well-known/oauth-protected-resource")
        assert answer.status_code == 200
        document = answer.json()
        assert document["resource"] == "https://agents.example.com"
        assert document["authorization_servers"] == ["https://idp.example"]
        assert document["scopes_supported"] == ["discover:read", "discover:write", "admin"]
        assert document["bearer_methods_supported"] == ["header"]


async def test_without_issuers_the_metadata_names_none(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        document = (await bench.anonymous().get("/.well-known/oauth-protected-resource")).json()
        assert "authorization_servers" not in document
        assert document["resource"] == bench.application.base_url


async def test_every_401_names_the_metadata(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        url = f"{bench.application.base_url}/.well-known/oauth-protected-resource"
        for client, is_given in ((bench.anonymous(), False), (bench.client("x.y.z"), True)):
            answers = [
                await client.get("/api/v1/agents"),
                await client.get("/.well-known/agentframework/v1/agents"),
                await client.post("/profile/v1/discover", json={"query": "x"}),
                await client.post("/mcp", json={"jsonrpc": "2.0", "id": 1, "method": "tools/list"}),
                await client.get("/agents"),
                await client.post("/ard/search", json={"query": {"text": "x"}}),
            ]
            for answer in answers:
                assert answer.status_code == 401, answer.request.url
                (challenge,) = answer.headers.get_list("www-authenticate")
                assert challenge.startswith(f'Bearer resource_metadata="{url}"')
                assert ('error="invalid_token"' in challenge) is is_given


async def test_every_403_for_a_missing_scope_names_the_scope_and_the_metadata(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        url = f"{bench.application.base_url}/.well-known/oauth-protected-resource"
        reader, writer = bench.as_("ria", "discover:read"), bench.as_("wim", "discover:write")
        answers = {
            "discover:write": [
                await reader.post("/api/v1/agents", json={}),
                await reader.put("/profile/v1/agents/x", json={}),
                await reader.delete("/agents/x"),
            ],
            "discover:read": [
                await writer.get("/api/v1/agents"),
                await writer.get("/.well-known/agentframework/v1/agents"),
                await writer.get("/agents"),
                await writer.post("/ard/search", json={"query": {"text": "x"}}),
                await writer.get("/api/v1/agents", headers={"Accept": "text/html"}),
            ],
            "admin": [await reader.get("/api/v1/audit")],
        }
        for scope, refused in answers.items():
            for answer in refused:
                assert answer.status_code == 403, answer.request.url
                (challenge,) = answer.headers.get_list("www-authenticate")
                assert challenge.startswith(f'Bearer resource_metadata="{url}"')
                assert challenge.endswith(f', error="insufficient_scope", scope="{scope}"')


async def test_a_403_for_another_reason_names_no_scope(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        writer = bench.as_("wim", "discover:read", "discover:write")
        assert (await bench.admin().post("/api/v1/agents", json=profile("hers"))).status_code == 201
        answer = await writer.delete("/api/v1/agents/hers")
        assert answer.status_code == 403
        assert "www-authenticate" not in answer.headers

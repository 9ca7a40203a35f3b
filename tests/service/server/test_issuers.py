"""The keys of external issuers: rotation, outages, and how rarely a token triggers a fetch (THREATS J5)."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from support.external_server import ExternalServer, answer, external_server
from support.service import NOW, Bench, service
from support.tokens import TokenIssuer
from waypost import limits
from waypost.errors import ConfigurationError
from waypost.model.credentials import Issuer
from waypost.settings import Settings, load_settings


def issuer_with(kid: str) -> TokenIssuer:
    return TokenIssuer(NOW, keys={"EdDSA": Ed25519PrivateKey.generate()}, kids={"EdDSA": kid})


OLD, NEW = issuer_with("old"), issuer_with("new")


@asynccontextmanager
async def fetched(folder: Path, document: Any) -> AsyncIterator[tuple[Bench, ExternalServer]]:
    """A service whose issuer publishes its keys on a server of the test."""
    async with external_server() as site:
        site.json("/jwks.json", document)
        url = f"http://127.0.0.1:{site.port}/jwks.json"
        issuer = Issuer(issuer=OLD.issuer, jwks=(url,))
        async with service(folder, issuers=(issuer,), allow_cidrs=("127.0.0.1/32",)) as bench:
            assert bench.application.issuers is not None
            await bench.application.issuers.refresh()
            yield bench, site


async def status(bench: Bench, token: str) -> int:
    client: httpx2.AsyncClient = bench.client(token)
    return (await client.get("/api/v1/agents")).status_code


def token_at(issuer: TokenIssuer, bench: Bench, **claims: Any) -> str:
    now = int(bench.clock.now())
    return issuer.token(iat=now, exp=now + 600, **claims)


async def test_keys_of_an_address_are_fetched_once_for_many_tokens(tmp_path: Path) -> None:
    async with fetched(tmp_path, OLD.jwks()) as (bench, site):
        for number in range(20):
            assert await status(bench, OLD.token(jti=f"{number}")) == 200
        assert site.connections == 1


async def test_a_new_key_is_looked_for_at_most_once_a_minute(tmp_path: Path) -> None:
    async with fetched(tmp_path, OLD.jwks()) as (bench, site):
        assert await status(bench, OLD.token()) == 200
        site.json("/jwks.json", {"keys": [OLD.jwk("EdDSA"), NEW.jwk("EdDSA")]})
        assert await status(bench, NEW.token()) == 401, "asked less than a minute ago"
        bench.clock.advance(limits.JWKS_REFRESH_SECONDS)
        assert await status(bench, NEW.token()) == 200
        assert await status(bench, OLD.token()) == 200
        strangers = [issuer_with(f"kid-{number}") for number in range(30)]
        for stranger in strangers:
            assert await status(bench, stranger.token()) == 401
        assert site.connections == 2


async def test_a_bad_signature_by_a_known_key_fetches_nothing(tmp_path: Path) -> None:
    async with fetched(tmp_path, OLD.jwks()) as (bench, site):
        assert await status(bench, OLD.token()) == 200
        bench.clock.advance(limits.JWKS_REFRESH_SECONDS)
        impostor = issuer_with("old")
        assert await status(bench, impostor.token()) == 401
        stranger = TokenIssuer(NOW, "https://other.example", keys=impostor.keys, kids={"EdDSA": "x"})
        assert await status(bench, stranger.token()) == 401
        assert site.connections == 1


async def test_keys_that_were_taken_back_end_within_the_time_that_keys_are_fresh(tmp_path: Path) -> None:
    async with fetched(tmp_path, OLD.jwks()) as (bench, site):
        assert await status(bench, OLD.token()) == 200
        site.json("/jwks.json", NEW.jwks())
        bench.clock.advance(limits.JWKS_FRESH_SECONDS + 1)
        assert bench.application.issuers is not None
        await bench.application.issuers.refresh()
        assert await status(bench, token_at(OLD, bench)) == 401
        assert await status(bench, token_at(NEW, bench)) == 200


@pytest.mark.parametrize("outage", [answer(b"", status="503 Service Unavailable"), answer(b"<html>"), answer(b"{}")])
async def test_cached_issuer_keys_are_used_for_a_limited_time_while_the_issuer_is_down(
    tmp_path: Path, outage: bytes
) -> None:
    async with fetched(tmp_path, OLD.jwks()) as (bench, site):
        assert await status(bench, OLD.token()) == 200
        site.pages["/jwks.json"] = outage
        bench.clock.advance(limits.JWKS_KEEP_SECONDS - 1)
        assert bench.application.issuers is not None
        await bench.application.issuers.refresh()
        assert await status(bench, token_at(OLD, bench)) == 200
        bench.clock.advance(2)
        assert await status(bench, token_at(OLD, bench, jti="later")) == 401
        site.json("/jwks.json", OLD.jwks())
        bench.clock.advance(limits.JWKS_REFRESH_SECONDS)
        assert await status(bench, token_at(OLD, bench)) == 200


async def test_a_file_of_keys_is_read_again_when_it_changes(tmp_path: Path) -> None:
    file = tmp_path / "jwks.json"
    file.write_text(json.dumps(OLD.jwks()))
    async with service(tmp_path / "data", jwks=(str(file),), issuer=OLD.issuer) as bench:
        token = OLD.token()
        assert await status(bench, token) == 200
        replace(file, json.dumps(NEW.jwks()))
        bench.clock.advance(limits.TOKEN_RECHECK_SECONDS)
        assert await status(bench, token) == 401, "a token that held is asked about again"
        assert await status(bench, NEW.token()) == 200
        replace(file, "not a key set")
        bench.clock.advance(limits.FILE_CHECK_SECONDS)
        assert await status(bench, NEW.token(jti="2")) == 200, "what cannot be read changes nothing"


def replace(file: Path, text: str) -> None:
    fresh = file.with_suffix(".new")
    fresh.write_text(text)
    os.replace(fresh, file)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"jwks": ("/nowhere/jwks.json",)}, "jwks"),
        ({"jwks": ("http://idp.example/jwks.json",)}, "https"),
        ({"jwks_prefix": "x:"}, "jwks_prefix"),
        ({"jwks_admin": True}, "jwks_admin"),
        ({"issuers": (Issuer(issuer="a"),)}, "has no keys"),
        ({"issuers": (Issuer(issuer="a", jwks=("https://a/",)), Issuer(issuer="b", jwks=("https://b/",)))}, "prefix"),
        ({"issuers": (Issuer(issuer="a", jwks=("https://a/",), prefix="1"),) * 2}, "a"),
        ({"jwks": ("https://a/",), "issuers": (Issuer(issuer="b", jwks=("https://b/",)),)}, "prefix"),
    ],
)
async def test_issuers_that_could_be_misused_are_refused_at_the_start(
    tmp_path: Path, settings: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigurationError, match=words):
        async with service(tmp_path, **settings):
            pass


def test_issuers_are_tables_of_the_settings_file(tmp_path: Path) -> None:
    file = tmp_path / "waypost.toml"
    file.write_text(
        '[[issuers]]\nissuer = "https://a"\naudience = "us"\njwks = ["a.json", "https://a/jwks"]\nprefix = "a:"\n'
        '[[issuers]]\nissuer = "https://b"\nsecret = "b.secret"\nadmin = true\n'
    )
    first, second = load_settings(config=file, environ={}).issuers
    assert first.jwks == (str(tmp_path / "a.json"), "https://a/jwks")
    assert (first.audience, first.prefix, first.admin) == ("us", "a:", False)
    assert (second.secret, second.admin) == (str(tmp_path / "b.secret"), True)
    file.write_text('[[issuers]]\nissuer = "https://a"\njwsk = []\n')
    with pytest.raises(ConfigurationError, match="jwsk"):
        load_settings(config=file, environ={})
    with pytest.raises(ConfigurationError, match="table"):
        load_settings(environ={"WAYPOST_ISSUERS": "x"})


def test_the_issuer_of_the_flags_is_added_to_those_of_the_table(tmp_path: Path) -> None:
    tables = (Issuer(issuer="https://b", jwks=("https://b/",), prefix="b:"),)
    settings = Settings(data=tmp_path, jwks=("https://a/",), issuer="https://a", issuers=tables)
    assert [issuer.issuer for issuer in settings.external_issuers] == ["https://a", "https://b"]


async def test_no_issuer_names_subjects_of_another(tmp_path: Path) -> None:
    for issuer, name in ((OLD, "old"), (NEW, "new")):
        (tmp_path / name).write_text(json.dumps(issuer.jwks()))
    plain = Issuer(issuer=OLD.issuer, jwks=(str(tmp_path / "old"),))
    prefixed = Issuer(issuer="https://b", jwks=(str(tmp_path / "new"),), prefix="b:")
    async with service(tmp_path / "data", issuers=(plain, prefixed)) as bench:
        assert await status(bench, OLD.token(sub="b:alice")) == 401
        assert await status(bench, OLD.token(sub="alice")) == 200
        assert await status(bench, NEW.token(iss="https://b", sub="alice")) == 200

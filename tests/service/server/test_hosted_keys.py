"""Keys of hosted domains: created once, reloaded when replaced, and only files of that name are read."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.service import profile, service
from waypost.client.identity import make_key
from waypost.errors import InvalidParameter
from waypost.server.hosted_agents.keys import HostedKeys, ReplacedKey, hosted_key_path
from waypost.trust.keys.private_key import PrivateKey

OWN = make_key("ed25519")


class OwnKey:
    """A service whose key was never rotated."""

    changed_at = 0.0

    def current(self) -> PrivateKey:
        return OWN

    def replaced(self) -> list[ReplacedKey]:
        return []


def _keys(data: Path) -> HostedKeys:
    return HostedKeys(data, OwnKey(), "registry.example.com")


def test_the_service_signs_for_itself_with_its_own_key(tmp_path: Path) -> None:
    assert _keys(tmp_path).key_of("Registry.example.com.") is OWN


def test_a_key_is_made_once_for_its_owner_alone(tmp_path: Path) -> None:
    keys = _keys(tmp_path)
    assert keys.key_of("alice.example.com") is None
    made = keys.ensure("alice.example.com")
    assert made is not None
    assert made.public.kind == "ed25519"
    again = _keys(tmp_path).ensure("ALICE.example.com")
    assert again is not None
    assert again.public.key_id == made.public.key_id
    path = hosted_key_path(tmp_path, "alice.example.com")
    assert path.stat().st_mode & 0o777 == 0o600
    assert [file.name for file in path.parent.iterdir()] == ["alice.example.com.pem"]


def test_a_key_that_is_replaced_or_removed_counts_at_once(tmp_path: Path) -> None:
    keys, other = _keys(tmp_path), make_key("ed25519")
    keys.ensure("alice.example.com")
    path = hosted_key_path(tmp_path, "alice.example.com")
    fresh = path.with_name("fresh")
    fresh.write_bytes(other.pem())
    fresh.replace(path)
    found = keys.key_of("alice.example.com")
    assert found is not None
    assert found.public.key_id == other.public.key_id
    path.unlink()
    assert keys.key_of("alice.example.com") is None


@pytest.mark.parametrize("kind", ["rsa", "p-256"])
def test_a_key_that_adp_has_no_name_for_is_none(tmp_path: Path, kind: str) -> None:
    path = hosted_key_path(tmp_path, "alice.example.com")
    path.parent.mkdir(parents=True)
    path.write_bytes(make_key(kind).pem())
    keys = _keys(tmp_path)
    assert keys.key_of("alice.example.com") is None
    assert keys.ensure("alice.example.com") is None


@pytest.mark.parametrize("name", ["../identity", "a/b", "", ".", "x y", "a\0b"])
def test_no_name_leads_out_of_the_folder(tmp_path: Path, name: str) -> None:
    keys = _keys(tmp_path)
    assert keys.key_of(name) is None
    with pytest.raises(InvalidParameter):
        keys.ensure(name)
    assert list(tmp_path.iterdir()) == []


async def test_hosting_makes_the_key_that_is_not_there(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        admin = bench.admin()
        await admin.post("/api/v1/agents", json=profile("urn:agent:one"))
        path = hosted_key_path(tmp_path, "one.example.com")
        assert not path.exists()
        answer = await admin.post("/api/v1/agents/urn%3Aagent%3Aone:host", json={"domain": "one.example.com"})
        assert answer.status_code == 200, answer.text
        assert path.exists()

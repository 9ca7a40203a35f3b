"""What operators have: peers in the settings, key changes, quotas, metrics, the doctor. The other side is in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from service.federation.test_ask import ADMIN, Network
from support.service import Bench, profile, service
from waypost.errors import ConfigurationError
from waypost.federation.kinds.port import PeerProblem
from waypost.federation.peers import PeerRequest
from waypost.model.federation import PeerSetting
from waypost.settings import load_settings


async def eventually(is_true: Callable[[], object]) -> None:
    for _ in range(200):
        if is_true():
            return
        await asyncio.sleep(0.02)
    raise AssertionError("it did not happen")


async def put(bench: Bench, agent_id: str) -> None:
    assert (await bench.as_("alice").post("/api/v1/agents", json=profile(agent_id))).is_success


def views(bench: Bench) -> dict[str, Any]:
    return {view.name: view for view in bench.application.peers.list()}


async def test_peers_of_the_settings_are_added_changed_and_removed(tmp_path: Path) -> None:
    """FED-1. One that is away at the start is added as soon as it is there."""
    network = Network()
    async with service(tmp_path / "there", anonymous_read=True, base_url="http://there.example") as there:
        await put(there, "urn:ex:a")
        wanted = (PeerSetting(url="http://there.example", name="there", visibility="public"),)
        data = tmp_path / "here"
        async with service(data, sender=network, store="sqlite", peers=wanted) as here:
            await asyncio.sleep(0.1)
            assert views(here) == {}  # it is not there yet
            network.benches["there.example"] = there
            await eventually(lambda: "there" in views(here) and views(here)["there"].records == 1)
        changed = (PeerSetting(url="http://there.example", name="there", ask=True, namespaces=("urn:ex:*",)),)
        async with service(data, sender=network, store="sqlite", peers=changed) as here:
            await eventually(lambda: views(here)["there"].ask)
            assert views(here)["there"].namespaces == ("urn:ex:*",)
            assert views(here)["there"].records == 1
        async with service(data, sender=network, store="sqlite") as here:
            await eventually(lambda: views(here) == {})
            assert len(here.registry.entries) == 0


def test_peers_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret\n")
    file = tmp_path / "waypost.toml"
    file.write_text('[[peers]]\nurl = "https://registry.example"\nask = true\ntoken_file = "token"\n')
    (peer,) = load_settings(config=file, environ={}).peers
    assert (peer.url, peer.ask, peer.token_file) == ("https://registry.example", True, str(tmp_path / "token"))
    file.write_text('[[peers]]\nurl = "https://registry.example"\nvisible = "public"\n')
    with pytest.raises(ConfigurationError, match="visible"):
        load_settings(config=file, environ={})


@pytest.mark.parametrize(
    "setting",
    [
        PeerSetting(url="ftp://registry.example"),
        PeerSetting(url="https://registry.example", kind="gopher"),
        PeerSetting(url="https://registry.example", visibility="all"),
        PeerSetting(url="https://registry.example", kind="mcp", ask=True),
        PeerSetting(url="https://registry.example", token_file="/nonexistent"),
    ],
)
async def test_a_wrong_peer_of_the_settings_stops_the_start(tmp_path: Path, setting: PeerSetting) -> None:
    with pytest.raises(ConfigurationError):
        async with service(tmp_path, peers=(setting,)):
            pass


async def test_a_key_that_the_old_key_introduced_is_pinned(tmp_path: Path) -> None:
    """The operator of the peer rotated its key: nobody has to do anything here."""
    network = Network()
    data = tmp_path / "there"
    async with service(data, anonymous_read=True, base_url="http://there.example", store="sqlite") as there:
        network.benches["there.example"] = there
        await put(there, "urn:ex:a")
        async with service(tmp_path / "here", sender=network) as here:
            peers = here.application.peers
            before = await peers.add(ADMIN, PeerRequest(url="http://there.example", name="there", pull=False))
            puller = peers._pullers["there"]
            await puller.pull_once(wait_seconds=0)
            answer = await there.admin().post("/api/v1/service-keys/identity:rotate")
            assert answer.is_success, answer.text
            await puller.pull_once(wait_seconds=0)
            after = peers.show("there")
            assert after.key != before.key
            assert after.error is None
            trail = (await here.admin().get("/api/v1/audit?action=peer-key")).json()
            assert trail["entries"][0]["object"] == "peer:there"
            await put(there, "urn:ex:b")
            await puller.pull_once(wait_seconds=0)
            assert peers.show("there").records == 2


async def test_a_key_without_an_introduction_is_refused(tmp_path: Path) -> None:
    network = Network()
    async with (
        service(tmp_path / "there", anonymous_read=True, base_url="http://there.example") as there,
        service(tmp_path / "other", anonymous_read=True, base_url="http://there.example") as other,
        service(tmp_path / "here", sender=network) as here,
    ):
        network.benches["there.example"] = there
        await here.application.peers.add(ADMIN, PeerRequest(url="http://there.example", name="there", pull=False))
        network.benches["there.example"] = other
        with pytest.raises(PeerProblem, match="key has changed"):
            await here.application.peers._pullers["there"].pull_once(wait_seconds=0)


async def test_more_records_than_allowed_pause_a_peer(tmp_path: Path) -> None:
    """FED-19: with a reason; others go on."""
    network = Network()
    async with (
        service(tmp_path / "there", anonymous_read=True, base_url="http://there.example") as there,
        service(tmp_path / "here", sender=network) as here,
    ):
        network.benches["there.example"] = there
        for number in range(5):
            await put(there, f"urn:ex:{number}")
        body = {"url": "http://there.example", "name": "there", "max_records": 3}
        assert (await here.admin().post("/api/v1/peers", json=body)).status_code == 201
        await eventually(lambda: views(here)["there"].state == "paused")
        assert "more than 3 records" in (views(here)["there"].error or "")
        found = (await here.admin().get("/api/v1/doctor")).json()["findings"]
        assert any("peer there is paused" in each["message"] for each in found)
        metrics = (await here.admin().get("/metrics")).text
        assert 'waypost_peer_state{peer="there",state="paused"} 1.0' in metrics
        assert 'waypost_peer_records{peer="there"} 0.0' in metrics
        assert "waypost_peers 1.0" in metrics


async def test_a_revocation_takes_a_copy_away_and_keeps_it_away(tmp_path: Path) -> None:
    """FED-20: at once, and whatever the peer sends later. Removing the peer takes the rest."""
    uuid = "urn:uuid:3f1f5a1e-9c1e-4f5b-8a58-0d6f5c1b2a77"
    network = Network()
    async with (
        service(tmp_path / "there", anonymous_read=True, base_url="http://there.example") as there,
        service(tmp_path / "here", sender=network) as here,
    ):
        network.benches["there.example"] = there
        await put(there, uuid)
        await put(there, "urn:ex:other")
        peers = here.application.peers
        await peers.add(ADMIN, PeerRequest(url="http://there.example", name="there", pull=False))
        puller = peers._pullers["there"]
        await puller.pull_once(wait_seconds=0)
        assert len(here.registry.entries) == 2
        revoked = {"agent_id": uuid, "reason": "stolen"}
        assert (await here.admin().post("/api/v1/keys:revoke", json=revoked)).is_success
        assert here.registry.entries.ids() == ["urn:ex:other"]
        changed = profile(uuid, description="Again.", version="2")
        assert (await there.as_("alice").post("/api/v1/agents", json=changed)).is_success
        await puller.pull_once(wait_seconds=0)
        assert here.registry.entries.ids() == ["urn:ex:other"]
        assert "revoked" in puller.view().parked_reasons
        assert await peers.remove(ADMIN, "there") == 1
        assert len(here.registry.entries) == 0
        assert await here.registry.notes("peer") == []


async def test_kept_records_of_a_removed_peer_stay(tmp_path: Path) -> None:
    network = Network()
    async with (
        service(tmp_path / "there", anonymous_read=True, base_url="http://there.example") as there,
        service(tmp_path / "here", sender=network) as here,
    ):
        network.benches["there.example"] = there
        await put(there, "urn:ex:a")
        await here.application.peers.add(ADMIN, PeerRequest(url="http://there.example", name="there", pull=False))
        await here.application.peers._pullers["there"].pull_once(wait_seconds=0)
        assert (await here.admin().delete("/api/v1/peers/there?keep=true")).status_code == 204
        assert here.registry.entries.ids() == ["urn:ex:a"]

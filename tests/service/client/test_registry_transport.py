"""A registry as a transport, and mDNS pointers to a registry."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from support.announce import AGENT_ID, announcement, key
from support.server import running_server
from waypost.client.identity import TrustFile
from waypost.client.registry_transport import http_address, pointer_fetcher, pointer_url, registry_transport
from waypost.errors import Unavailable
from waypost.model.json import parse_object
from waypost.settings import load_connection_settings
from waypost.transports.http import HttpTransport
from waypost.transports.websocket import WebSocketTransport
from waypost.trust.announce.trust_store import AgentPin, PinnedKey


@pytest.mark.parametrize(
    ("given", "plain", "is_socket"),
    [
        ("https://a.example", "https://a.example", False),
        ("wss://a.example", "https://a.example", True),
        ("WS://127.0.0.1:8440/ws", "http://127.0.0.1:8440", True),
        ("wss://a.example/waypost/ws/", "https://a.example/waypost", True),
        (None, None, False),
    ],
)
def test_the_address_scheme_selects_the_transport(given: str | None, plain: str | None, is_socket: bool) -> None:
    assert http_address(given) == (plain, is_socket)


async def test_the_address_scheme_selects_http_or_websocket() -> None:
    plain, socket = registry_transport("http://127.0.0.1:1"), registry_transport("ws://127.0.0.1:1")
    assert isinstance(plain, HttpTransport)
    assert isinstance(socket, WebSocketTransport)
    assert (plain.source, socket.source) == ("http://127.0.0.1:1", "ws://127.0.0.1:1/ws")
    await plain.close()
    await socket.close()


async def test_a_pointer_is_followed_to_a_registry_that_was_named_and_to_no_other() -> None:
    with running_server("--store", "memory", "--trust-mode", "tofu") as server:
        address = load_connection_settings({"server": server.url, "token": server.admin_token})
        held = registry_transport(server.url, server.admin_token)
        sent = announcement(key("a"), seq=1, at=time.time())
        assert (await held.announce(sent, 60)).accepted
        await held.close()
        asked: list[str] = []

        async def elsewhere(url: str) -> bytes:
            asked.append(url)
            raise Unavailable("No.")

        fetch = pointer_fetcher([address], elsewhere)
        found = parse_object(await fetch(pointer_url(address)(AGENT_ID)))
        assert found["signature"] == sent["signature"]
        for url in ("https://a.example/agents/x", f"{server.url}.example/agents/x", f"{server.url}/metrics"):
            with pytest.raises(Unavailable):
                await fetch(url)
        assert len(asked) == 3, "the token goes nowhere else"
        with pytest.raises(Unavailable):
            await fetch(pointer_url(address)("7b0c6a52-41f1-4c66-9a0e-0f5d2ce0a511"))
    with pytest.raises(Unavailable):
        await asyncio.wait_for(pointer_fetcher([])("https://a.example/agents/x"), 60)


def test_saved_pins_do_not_include_sequence_numbers(tmp_path: Path) -> None:
    bound = PinnedKey(
        key_id="k", kind="ed25519", spki=b"x", state="active", first_seen=1.0, via="tofu", seq=9, digest="d"
    )
    pin = AgentPin(agent_id=AGENT_ID, keys=(bound,), digest="d")
    first = TrustFile(tmp_path / "trust.json")
    first.bind(pin)
    assert not (tmp_path / "trust.json").exists()
    first.save()
    again = TrustFile(tmp_path / "trust.json")
    assert again.pin_of(AGENT_ID) == pin
    told = again.keys_of(AGENT_ID)
    assert told is not None
    assert (told.keys[0].key_id, told.keys[0].seq, told.keys[0].digest, told.digest) == ("k", None, None, None)
    assert again.keys_of("unknown") is None


def test_a_trust_file_evicts_the_oldest_unconfirmed_keys() -> None:
    kept = TrustFile(most=3)
    kept.bind(AgentPin(agent_id="named", provisioned=True))
    for number in range(4):
        kept.bind(AgentPin(agent_id=str(number)))
    assert [kept.pin_of(name) is not None for name in ("named", "0", "1", "2", "3")] == [True, False, False, True, True]

"""How an announcement is shortened to fit, by the kind of its key."""

from __future__ import annotations

import pytest

from support.announce import agent
from support.signing import NOW, key_of
from waypost import limits
from waypost.model.json import JsonObject, dump_json
from waypost.protocols.announce.packets import SignAgent, compact_agent, fit_announcement
from waypost.trust.announce.signed_announcement import parse_signed_announcement, sign_announcement


def signer(kind: str) -> SignAgent:
    return lambda said: sign_announcement(said, key_of(kind), now=NOW)


def holds(message: JsonObject) -> bool:
    said = parse_signed_announcement(message)
    assert said.key is not None
    assert said.signature is not None
    return said.find_canonical_form(said.key, said.signature) is not None


BULKY = agent(metadata={"description": "d" * 200, "__os": "linux"})


@pytest.mark.parametrize("kind", ["ed25519", "p-256"])
def test_small_keys_fit_a_datagram_once_the_agent_is_compact(kind: str) -> None:
    fitted = fit_announcement(BULKY, signer(kind), "udp")
    assert fitted.packaging == "compact"
    assert len(dump_json(fitted.message)) <= limits.DATAGRAM_BYTES
    assert "agent_name" not in fitted.message["agent"]
    assert set(fitted.message["agent"]["metadata"]) == {"__seq", "__iat"}
    assert holds(fitted.message)


def test_an_announcement_that_fits_is_sent_whole() -> None:
    fitted = fit_announcement({**agent(), "agent_name": "a"}, lambda said: sign_announcement(said, key_of()), "udp")
    assert fitted.packaging == "whole"
    assert fitted.message["agent"]["agent_name"] == "a"


@pytest.mark.parametrize("carrier", ["udp", "mdns"])
def test_rsa_goes_in_pieces(carrier: str) -> None:
    """An announcement signed with RSA never fits 512 bytes."""
    fitted = fit_announcement(agent(), signer("rsa"), carrier)  # type: ignore[arg-type]
    assert fitted.packaging == "pieces"
    assert holds(fitted.message)


def test_an_announcement_too_large_for_a_record_is_split_in_its_compact_form() -> None:
    fitted = fit_announcement(agent(metadata={"description": "d" * 2000}), signer("rsa"), "mdns")
    assert fitted.packaging == "pieces"
    assert "agent_name" not in fitted.message["agent"]


def test_an_announcement_too_large_for_mdns_becomes_a_pointer_if_a_url_exists() -> None:
    many = agent(capabilities={f"capability-{number}": "1.0" for number in range(60)})
    assert fit_announcement(many, signer("ed25519"), "mdns", can_point=True).packaging == "pointer"
    assert fit_announcement(many, signer("ed25519"), "mdns").packaging == "none"
    assert fit_announcement(many, signer("ed25519"), "udp", can_point=True).packaging == "pieces"


def test_a_compact_agent_keeps_everything_that_it_is_found_by() -> None:
    small = compact_agent({**BULKY, "x": 1, "metadata": {"__seq": 1, "__iat": "i", "__os": "linux"}})
    assert small["metadata"] == {"__seq": 1, "__iat": "i"}
    assert {"agent_id", "capabilities", "transport", "x"} <= set(small)
    assert "metadata" not in compact_agent(agent())

"""Checks of DNS for AI discovery. Nearly all of it is in the DNS; over HTTP only the bounds on documents can be seen."""

from __future__ import annotations

from waypost.conformance.prober import Prober
from waypost.conformance.suite import Suite, expect, not_offered

_DESCRIPTORS = ("/.well-known/agent.json", "/.well-known/agent-card.json")
_INDEX = "/.well-known/ai-catalog.json"
_DESCRIPTOR_BYTES = 256_000


async def recognise(probe: Prober) -> str:
    """A descriptor that a DNS record could point at is served."""
    for path in (*_DESCRIPTORS, _INDEX):
        answer = await probe.get(probe.target.path + path)
        if answer.status == 200 and answer.media_type.endswith("json"):
            return f"{path} can be named by DNS records."
    raise not_offered("No descriptor is served that DNS records could name.")


suite = Suite("dns-aid", ("aid",), recognise)


@suite.check("AID-26")
async def sizes(probe: Prober) -> None:
    for path in _DESCRIPTORS:
        answer = await probe.get(probe.target.path + path)
        if answer.status == 200:
            size = len(answer.body)
            expect(size <= _DESCRIPTOR_BYTES, f"{path} has {size} bytes; consumers read at most {_DESCRIPTOR_BYTES}.")


_DNS = "In the DNS: `waypost resolve DOMAIN` and `waypost dns check` judge it."
_CLIENTS = "About clients."

suite.cannot_observe(
    {
        **{f"AID-{number}": _DNS for number in (2, 3, 4, 6, 7, 8, 9, 11, 12, 13, 15, 16, 18, 19)},
        **{f"AID-{number}": _CLIENTS for number in (1, 10, 14, 17, 20, 21, 22, 23, 24, 25)},
        "AID-5": "The format of the index is open.",
    }
)

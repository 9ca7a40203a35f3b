"""The cached outline of an entry equals the entry, for any record."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings

from support.examples import examples
from support.records import ENCODE, records
from waypost.model.record import AgentRecord
from waypost.protocols.ard.codec import catalog_entry, encode_without_residue
from waypost.protocols.dialects import ARD

AT_HAND = ("identifier", "displayName", "type", "tags", "capabilities", "version", "updatedAt")


@settings(
    max_examples=examples(100), deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
@given(records())
def test_the_outline_of_an_entry_agrees_with_the_entry(record: AgentRecord) -> None:
    short = encode_without_residue(record, ENCODE)
    if short is not None:
        entry = catalog_entry(ARD.encode(record, ENCODE).document)
        assert {name: short.get(name) for name in AT_HAND} == {name: entry.get(name) for name in AT_HAND}

"""The bytes of an audit entry are its canonical form."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from waypost.model.events import AuditRecord, leaf_bytes, read_leaf
from waypost.registry.audit_trail import audit_leaf
from waypost.registry.ports import AuditEntry
from waypost.trust.document_signatures import canonicalize

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
entries = st.builds(
    AuditEntry,
    at=st.floats(0, 4e9),
    action=texts,
    subject=texts,
    object=texts,
    outcome=texts,
    via=texts,
    credential=texts,
    address=texts,
    etag=texts,
    detail=texts,
)


@given(entry=entries, number=st.integers(1, 2**53 - 1))
def test_a_leaf_is_canonical_json_and_comes_back_equal(entry: AuditEntry, number: int) -> None:
    leaf = audit_leaf(entry, number)
    assert leaf == canonicalize(json.loads(leaf))
    record = read_leaf(leaf)
    assert (record.number, record.subject, record.detail) == (number, entry.subject, entry.detail)
    assert leaf_bytes(record) == leaf


def test_members_without_a_value_are_left_out() -> None:
    record = AuditRecord(number=1, at="2026-01-01T00:00:00.000Z", action="expire", subject="")
    assert leaf_bytes(record) == b'{"action":"expire","at":"2026-01-01T00:00:00.000Z","number":1,"subject":""}'

"""The sample agents: number, variety, valid in their dialect and readable in all others."""

from __future__ import annotations

from collections import Counter

import pytest
from jsonschema import Draft202012Validator

from support.records import CODECS, DECODE, ENCODE
from waypost.model.json import parse_object
from waypost.protocols.dialects import decode_document
from waypost.samples import Sample, load

SAMPLES = load()
EVERY_SAMPLE = [pytest.param(sample, id=f"{sample.dialect}-{sample.name}") for sample in SAMPLES]
WRITTEN = ("profile", "rtfs", "announce", "adp", "a2a", "ard", "mcp", "oasf")


def test_there_are_about_forty_and_at_least_four_of_each_dialect() -> None:
    count = Counter(sample.dialect for sample in SAMPLES)
    assert set(count) == set(WRITTEN)
    assert min(count.values()) >= 4
    assert 38 <= len(SAMPLES) <= 48


def test_no_two_samples_are_the_same_agent() -> None:
    ids = [decode_document(sample.data, sample.dialect, DECODE)[2].record.id for sample in SAMPLES]
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize("sample", EVERY_SAMPLE)
def test_a_sample_is_recognised_and_read_without_help(sample: Sample) -> None:
    dialect, _, decoded = decode_document(sample.data, None, DECODE)
    assert dialect == sample.dialect
    assert decoded.record.bindings
    assert decoded.record.tags
    assert len(decoded.record.description) >= 40


@pytest.mark.parametrize("sample", EVERY_SAMPLE)
def test_a_sample_can_be_read_in_every_dialect(sample: Sample) -> None:
    record = decode_document(sample.data, sample.dialect, DECODE)[2].record
    for codec in CODECS.values():
        Draft202012Validator(codec.schema()).validate(codec.encode(record, ENCODE).document)


@pytest.mark.parametrize("sample", [param for param in EVERY_SAMPLE if param.values[0].data.lstrip()[:1] == b"{"])
def test_a_sample_fits_the_schema_of_its_own_dialect(sample: Sample) -> None:
    document = parse_object(sample.data)
    Draft202012Validator(CODECS[sample.dialect].schema()).validate(document.get("agent_card", document))


@pytest.mark.parametrize("sample", EVERY_SAMPLE)
def test_sample_agents_use_reserved_domains_only(sample: Sample) -> None:
    record = decode_document(sample.data, sample.dialect, DECODE)[2].record
    for binding in record.bindings:
        assert "example" in binding.endpoint

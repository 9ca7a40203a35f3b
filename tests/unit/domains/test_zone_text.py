"""Zones in different text formats."""

from __future__ import annotations

import re

import pytest

from support.zone_plans import FINGERPRINT, plan, zone_of
from waypost.domains.zone import ZONE_FORMATS, format_zone, group_records, make_zone, response_bytes


@pytest.mark.parametrize("form", ZONE_FORMATS)
def test_every_format_names_every_record_set(form: str) -> None:
    zone = make_zone(plan(), private_keys=form == "bind")
    text = format_zone(zone, form)
    for name, kind in group_records(zone.records):
        assert re.search(rf"{re.escape(name)}\.? .*{kind}|name *= \"{re.escape(name)}\"\n *type *= \"{kind}\"", text)
    assert FINGERPRINT in text


def test_terraform_output_escapes_interpolation() -> None:
    zone = make_zone(plan(capabilities_url=None, metadata_url="https://alice.example.com/${x}%{y}"), private_keys=False)
    text = format_zone(zone, "terraform")
    assert "$${x}%%{y}" in text
    assert 'alpn=\\"a2a,h2\\"' in text
    assert text.count("{") == text.count("}")


def test_a_long_text_is_several_strings_of_one_record() -> None:
    zone = zone_of(metadata_url="https://alice.example.com/" + "x" * 300)
    (record,) = [one for one in zone.records if one.type == "TXT"]
    assert record.text.count('" "') == 1
    assert '""' in format_zone(make_zone(plan(metadata_url="https://a.example/" + "x" * 300)), "terraform")


def test_the_size_of_an_answer_counts_every_record() -> None:
    zone = zone_of()
    held = group_records(zone.records)["alice.example.com", "SVCB"]
    assert response_bytes(held) == 12 + 4 + 19 + 1 + 12 + len(held[0].data)
    assert response_bytes(()) == 0

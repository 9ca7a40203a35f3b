"""Any bytes of a record are parsed or malformed, and written records are parsed again."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from waypost.errors import InvalidDocument, InvalidParameter
from waypost.protocols.adp.txt_record import parse_adp_txt, select_adp_txt
from waypost.protocols.dns_aid import svcb
from waypost.protocols.dns_aid.svcb import ServiceBinding, encode_params, parse_svcb, to_presentation, write_svcb
from waypost.protocols.dns_aid.txt_records import parse_aid, select_aid
from waypost.protocols.dns_rdata import parse_srv, parse_tlsa, read_strings, read_text, write_text, write_tlsa

DATA = st.binary(max_size=300)
LABELS = st.lists(st.sampled_from(("a", "_agents", "xn--a", "host-1", "0" * 63)), max_size=3).map(".".join)
PARAMS = st.dictionaries(st.integers(7, 65534), st.binary(max_size=40), max_size=8)


@pytest.mark.parametrize("parse", [parse_svcb, parse_srv, parse_tlsa, read_strings, read_text])
@given(data=DATA)
@example(data=b"")
def test_any_bytes_are_a_record_or_malformed(parse: Callable[[bytes], Any], data: bytes) -> None:
    with suppress(InvalidDocument):
        parse(data)


@given(priority=st.integers(1, 65535), data=DATA)
def test_any_parameters_after_a_good_name_are_read_or_malformed(priority: int, data: bytes) -> None:
    try:
        found = parse_svcb(priority.to_bytes(2, "big") + b"\5alice\7example\0" + data)
    except InvalidDocument:
        return
    assert parse_svcb(write_svcb(found)) == found
    assert found.alpn is not None
    assert all(found.text(key) is None or '"' not in str(found.text(key)) for key in svcb.AGENT_KEYS)


@given(priority=st.integers(1, 65535), target=LABELS, params=PARAMS)
def test_a_written_svcb_record_parses_to_the_same_binding(priority: int, target: str, params: dict[int, bytes]) -> None:
    binding = ServiceBinding(priority=priority, target=target, params=params)
    assert parse_svcb(write_svcb(binding)) == binding
    assert "\n" not in to_presentation(binding)


@given(value=st.text(max_size=60))
def test_no_value_carries_another_parameter(value: str) -> None:
    try:
        params = encode_params({svcb.CAP: value})
    except (InvalidParameter, UnicodeEncodeError):
        return
    shown = to_presentation(ServiceBinding(priority=1, target="", params=params))
    assert shown.count('"') == 2
    assert '\\"' not in shown


@given(
    texts=st.lists(st.text(max_size=80), max_size=4),
    prefix=st.sampled_from(["", "v=ADP1.1; pk=", "v=aid2;u=", "V = aDp"]),
)
def test_any_texts_at_the_name_of_an_agent_are_read_or_refused(texts: list[str], prefix: str) -> None:
    records = [write_text((prefix + text).encode("utf-8", "replace").decode()) for text in texts]
    for select in (select_adp_txt, select_aid):
        with suppress(InvalidDocument):
            select(records)
    for parse in (parse_adp_txt, parse_aid):
        for text in texts:
            with suppress(InvalidDocument):
                parse(prefix + text)


@given(data=st.binary(min_size=3, max_size=80))
def test_a_tlsa_record_keeps_its_bytes(data: bytes) -> None:
    assert write_tlsa(parse_tlsa(data)) == data

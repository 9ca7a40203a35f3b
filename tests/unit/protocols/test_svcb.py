"""SVCB records: the vectors of RFC 9460, and malformed records."""

from __future__ import annotations

import re
import struct

import dns.name
import dns.rdata
import dns.rdataclass
import dns.rdatatype
import pytest

from support.shared import require_shared
from waypost.errors import InvalidDocument, InvalidParameter
from waypost.protocols.dns_aid import svcb
from waypost.protocols.dns_aid.svcb import (
    ServiceBinding,
    encode_params,
    key_number,
    parse_svcb,
    to_presentation,
    write_svcb,
)


def wire_of(text: str) -> bytes:
    """As another implementation reads a zone file."""
    found = dns.rdata.from_text(
        dns.rdataclass.IN, dns.rdatatype.SVCB, text, origin=dns.name.root, relativize=False
    ).to_wire()
    assert found is not None
    return found


def generic_vectors() -> list[bytes]:
    text = re.sub(r";[^\n]*", "", require_shared("vectors/svcb/dnspython/svcb_test_vectors.generic").read_text("utf-8"))
    return [bytes.fromhex(re.sub(r"\s", "", found)) for found in re.findall(r"\\#\s+\d+\s+\(?([0-9a-fA-F\s]+)", text)]


def text_vectors() -> list[str]:
    text = re.sub(r";[^\n]*", "", require_shared("vectors/svcb/dnspython/svcb_test_vectors.text").read_text("utf-8"))
    joined = re.sub(r"\(([^)]*)\)", lambda found: " ".join(found[1].split()), text)
    return [line.strip() for line in joined.splitlines() if line.strip()]


def service(*params: tuple[int, bytes], priority: int = 1) -> bytes:
    """The rdata with these parameters, in the order given."""
    return priority.to_bytes(2, "big") + b"\0" + b"".join(struct.pack("!HH", key, len(v)) + v for key, v in params)


def test_there_are_as_many_vectors_as_in_the_appendix() -> None:
    assert len(generic_vectors()) == len(text_vectors()) == 10


@pytest.mark.parametrize("index", range(10))
def test_a_vector_is_read_written_and_shown_as_the_appendix_has_it(index: int) -> None:
    wire = generic_vectors()[index]
    binding = parse_svcb(wire)
    assert write_svcb(binding) == wire == wire_of(text_vectors()[index])
    assert wire_of(to_presentation(binding)) == wire


@pytest.mark.parametrize("line", ["s01", "s03", "s08", "s09"])
def test_svcb_parameters_accepted_by_unbound_are_parsed_and_ignored_in_alias_mode(line: str) -> None:
    zone = require_shared("vectors/svcb/unbound/svcb.success-cases.zone").read_text("utf-8")
    found = re.search(rf"^{line}\s+(?:SVCB|HTTPS)\s+0 \. (.*)$", zone, re.MULTILINE)
    assert found is not None
    wire = wire_of(f"1 . {found[1].strip('() ')}")
    assert write_svcb(parse_svcb(wire)) == wire
    assert parse_svcb(b"\0\0" + wire[2:]) == ServiceBinding(priority=0, target="")


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"", "too short"),
        (b"\0\1", "too short"),
        (b"\0\1\3fo", "is truncated"),
        (b"\0\1\xc0\x0c", "compressed"),
        (service() + b"\0\3\0", "is truncated"),
        (service() + b"\0\3\0\4\0\0", "is truncated"),
        (service((3, b"\0\x35"), (3, b"\0\x35")), "repeated"),
        (service((3, b"\0\x35"), (1, b"\2h2")), "order"),
        (service((3, b"\0")), "port"),
        (service((3, b"\0\0\0")), "port"),
        (service((1, b"")), "alpn"),
        (service((1, b"\5h2")), "alpn"),
        (service((1, b"\0")), "alpn"),
        (service((2, b"")), "requires alpn"),
        (service((1, b"\2h2"), (2, b"x")), "has a value"),
        (service((4, b"")), "hint"),
        (service((4, b"abc")), "hint"),
        (service((6, b"a" * 15)), "hint"),
        (service((0, b"")), "mandatory"),
        (service((0, b"\0")), "mandatory"),
        (service((0, b"\0\0")), "itself"),
        (service((0, b"\0\1")), "mandatory and missing"),
        (service((0, b"\0\1\0\1"), (1, b"\2h2")), "repeats"),
        (service((0, b"\0\3\0\1"), (1, b"\2h2"), (3, b"\0\x35")), "order"),
        (service((65535, b"")), "not a valid key"),
        (service(*((key, b"a") for key in range(100, 165))), "more than 64"),
    ],
)
def test_svcb_data_that_violates_the_rfc_is_malformed(data: bytes, what: str) -> None:
    with pytest.raises(InvalidDocument, match=what):
        parse_svcb(data)


def test_sixty_four_parameters_are_read() -> None:
    assert len(parse_svcb(service(*((key, b"a") for key in range(100, 164)))).params) == 64


def test_a_name_that_never_ends_is_malformed() -> None:
    with pytest.raises(InvalidDocument):
        parse_svcb(b"\0\1" + b"\x3f" + b"a" * 63 + (b"\x3f" + b"a" * 63) * 4 + b"\0")


def test_a_label_with_a_dot_is_not_two_labels() -> None:
    assert parse_svcb(b"\0\1\3a.b\3com\0").target == "a\\046b.com"


def test_the_values_of_a_record_of_an_agent() -> None:
    binding = parse_svcb(
        wire_of(
            '1 host.provider.net. mandatory=alpn,port alpn="mcp,h2" port=8443 ipv4hint=192.0.2.1,192.0.2.2 '
            'ipv6hint=2001:db8::1 key65400="https://a.example/cap.json" key65402="mcp=1.0" key65409="agent-card.json"'
        )
    )
    assert (binding.priority, binding.target, binding.port) == (1, "host.provider.net", 8443)
    assert binding.alpn == ("mcp", "h2")
    assert binding.hints == ("192.0.2.1", "192.0.2.2", "2001:db8::1")
    assert binding.text(svcb.CAP) == "https://a.example/cap.json"
    assert binding.text(svcb.WELL_KNOWN) == "agent-card.json"
    assert binding.protocol() == "mcp"
    assert binding.unknown_mandatory == ()


def test_an_unknown_mandatory_key_is_reported() -> None:
    binding = parse_svcb(wire_of('1 . mandatory=key667 key667="x"'))
    assert binding.unknown_mandatory == ("key667",)


def test_a_value_that_is_no_plain_text_is_as_good_as_not_there() -> None:
    for value in (b"\xff\xfe", b'a"b', b"a\\b", b"a\nb"):
        assert parse_svcb(service((svcb.CAP, value))).text(svcb.CAP) is None


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("alpn", 1),
        ("cap", 65400),
        ("cap-sha256", 65401),
        ("capsha256", 65401),
        ("well-known", 65409),
        ("pk", 65410),
        ("key667", 667),
        ("key65404", 65404),
    ],
)
def test_a_key_goes_by_its_name_and_by_its_number(name: str, number: int) -> None:
    assert key_number(name) == number


@pytest.mark.parametrize("name", ["", "bop", "key", "key65535", "key99999", "key012", "KEY1"])
def test_an_invalid_svcb_key_is_refused(name: str) -> None:
    with pytest.raises(InvalidParameter):
        key_number(name)


def test_a_written_svcb_record_is_read_by_dnspython() -> None:
    params = encode_params(
        {
            svcb.ALPN: ["a2a", "h2"],
            svcb.PORT: 443,
            svcb.MANDATORY: ["port", "alpn"],
            svcb.IPV6HINT: ["2001:db8::1"],
            svcb.BAP: "a2a",
            svcb.WELL_KNOWN: "agent.json",
        }
    )
    binding = ServiceBinding(priority=1, target="host.provider.net", params=params)
    assert parse_svcb(write_svcb(binding)) == binding
    text = to_presentation(binding)
    assert 'key65402="a2a"' in text
    assert 'bap="a2a"' in to_presentation(binding, names=True)
    assert wire_of(text) == write_svcb(binding)


@pytest.mark.parametrize("value", ['a" key65402="evil', "a\\", "a\nb", "a\x00", "\x7f"])
def test_a_value_that_could_end_early_is_not_written(value: str) -> None:
    with pytest.raises(InvalidParameter):
        encode_params({svcb.CAP: value})


@pytest.mark.parametrize(
    ("key", "value"), [(svcb.PORT, 65536), (svcb.PORT, 0), (svcb.ALPN, ["a" * 256]), (svcb.ALPN, [""])]
)
def test_values_out_of_bounds_are_not_written(key: int, value: int | list[str]) -> None:
    with pytest.raises(InvalidParameter):
        encode_params({key: value})

"""TXT records at `_agent.{domain}`: ADP and AID are distinguished, ambiguous ones refused."""

from __future__ import annotations

import pytest

from waypost.errors import InvalidDocument, InvalidParameter
from waypost.protocols.adp.txt_record import AdpTxt, parse_adp_txt, select_adp_txt, write_adp_txt
from waypost.protocols.dns_aid.txt_records import parse_aid, read_aid_json, select_aid
from waypost.protocols.dns_rdata import SrvRecord, parse_srv, read_strings, read_text, select_srv, write_srv, write_text

PK = "ed25519:Vkdap1RjR0wChd9dvyvKtz2mUTWIOem3dIGy6rEHcIw"
WK = "https://alice.example.com/.well-known/agent.json"
GOOD = f"v=ADP1.1; pk={PK}; wk={WK}"
AID2 = "v=aid2;p=mcp;u=https://api.example.com/mcp"


def records(*texts: str) -> list[bytes]:
    return [write_text(text) for text in texts]


@pytest.mark.parametrize("version", ["ADP1", "ADP1.0", "ADP1.1"])
def test_the_record_of_each_version_is_read(version: str) -> None:
    found = parse_adp_txt(f"v={version}; pk={PK}; wk={WK}; alpn=a2a; port=8443; bap=a2a; later=x")
    expected = AdpTxt(version=version, fingerprint=PK, metadata_url=WK, alpn="a2a", port=8443, protocol="a2a")
    assert found == expected
    assert parse_adp_txt(write_adp_txt(found)) == found


@pytest.mark.parametrize(
    "text",
    [
        f"v=ADP2; pk={PK}; wk={WK}",
        f"v=adp1.1; pk={PK}; wk={WK}",
        f"v=ADP1.1; wk={WK}",
        f"v=ADP1.1; pk={PK}",
        f"v=ADP1.1; pk={PK}=; wk={WK}",
        f"v=ADP1.1; pk=ed25519:dGhpcyBpcyBhIHRlc3Q; wk={WK}",
        f"v=ADP1.1; pk=rsa:{PK[8:]}; wk={WK}",
        f"v=ADP1.1; pk={PK}; wk=http://alice.example.com/",
        f"v=ADP1.1; pk={PK}; wk=https://user@alice.example.com/",
        f"v=ADP1.1; pk={PK}; wk=https://[/",
        f"v=ADP1.1; pk={PK}; pk={PK}; wk={WK}",
        f"v=ADP1.1; pk={PK}; wk={WK}; port=0",
        f"v=ADP1.1; pk={PK}; wk={WK}; port=99999",
        f"v=ADP1.1; pk={PK}; wk={WK}; garbage",
    ],
)
def test_a_record_that_is_broken_is_refused_and_never_looks_absent(text: str) -> None:
    with pytest.raises(InvalidDocument):
        select_adp_txt(records(text))


def test_strings_are_joined_inside_one_record_and_others_at_the_name_are_left_alone() -> None:
    long = f"v=ADP1.1; pk={PK}; wk=https://alice.example.com/{'a' * 400}"
    assert len(read_strings(write_text(long))) == 2
    found, _ = select_adp_txt(records(AID2, long, "v=spf1 -all"))
    assert found is not None
    assert found.metadata_url.endswith("a" * 400)


def test_two_adp_txt_records_are_ambiguous() -> None:
    with pytest.raises(InvalidDocument, match="only one is allowed"):
        select_adp_txt(records(GOOD, GOOD.replace("alice", "mallory")))


def test_a_value_over_two_records_is_joined_only_where_the_order_is_plain() -> None:
    first, rest = f"v=ADP1.1; pk={PK}; wk=https://alice.example.com/{'a' * 300}"[:255], "tail"
    found, _ = select_adp_txt(records(rest, first))
    assert found is not None
    assert found.metadata_url.endswith("atail")
    with pytest.raises(InvalidDocument, match="order is unknown"):
        select_adp_txt(records(first, "b", "c"))


def test_a_record_that_is_whole_is_not_joined_with_a_stranger() -> None:
    found, _ = select_adp_txt(records(GOOD, "some other text"))
    assert found is not None
    assert found.metadata_url == WK


def test_invalid_text_is_skipped_and_reported() -> None:
    found, passed = select_adp_txt([b"\2\xff\xfe", *records(GOOD), b"\x09abc"])
    assert found is not None
    assert len(passed) == 2


def test_without_a_record_of_adp_there_is_none() -> None:
    assert select_adp_txt(records(AID2)) == (None, [])
    assert select_adp_txt([]) == (None, [])


@pytest.mark.parametrize("value", ["a;b", 'a"b', "a\\b", "a\nb"])
def test_a_value_that_could_end_early_is_not_written(value: str) -> None:
    with pytest.raises(InvalidParameter):
        write_adp_txt(AdpTxt(version="ADP1.1", fingerprint=PK, metadata_url=WK, alpn=value))


def test_a_long_text_is_never_broken_inside_a_character() -> None:
    text = "é" * 200
    assert read_text(write_text(text)) == text
    assert all(part.decode() for part in read_strings(write_text(text)))


# --- AID ------------------------------------------------------------------------------------------


@pytest.mark.req("AIDTXT-1")
def test_keys_of_aid_are_long_or_short_in_any_case() -> None:
    short = parse_aid("V=aid2;P=MCP;u=https://api.example.com/mcp;a=oauth2_code;s=Gateway;x=later")
    long = parse_aid("version=aid2;proto=mcp;uri=https://api.example.com/mcp;auth=oauth2_code;desc=Gateway")
    assert short == long
    assert read_aid_json({"v": "aid2", "u": "https://api.example.com/mcp", "p": "mcp", "x": 1}).proto == "mcp"


@pytest.mark.req("AIDTXT-3")
def test_aid2_is_preferred_and_two_of_one_version_are_no_answer() -> None:
    found = select_aid(records("v=aid1;p=mcp;u=https://old.example.com", AID2, GOOD))
    assert found is not None
    assert found.version == "aid2"
    with pytest.raises(InvalidDocument, match="only one is allowed"):
        select_aid(records(AID2, AID2.replace("api", "other")))
    assert select_aid(records(GOOD)) is None


@pytest.mark.req("AIDTXT-2")
@pytest.mark.parametrize(
    "text",
    [
        "v=aid2;p=mcp",
        "v=aid2;p=telepathy;u=https://api.example.com",
        "v=aid2;p=mcp;u=http://api.example.com",
        "v=aid2;p=websocket;u=https://api.example.com",
        "v=aid2;p=mcp;proto=mcp;u=https://api.example.com",
        "v=aid2;p=mcp;u=https://api.example.com;a=magic",
        "v=aid2;p=mcp;u=https://api.example.com;s=" + "a" * 61,
        "v=aid2;p=mcp;u=https://api.example.com;i=k1;k=" + "A" * 43,
        "v=aid2;p=mcp;u=https://api.example.com;k=short",
        "v=aid1;p=mcp;u=https://api.example.com;k=zAbc",
    ],
)
def test_a_record_of_aid_that_breaks_a_rule_is_refused(text: str) -> None:
    with pytest.raises(InvalidDocument):
        select_aid(records(text))


# --- SRV ------------------------------------------------------------------------------------------


def test_the_first_server_is_the_one_of_lowest_priority_and_largest_weight() -> None:
    servers = [
        SrvRecord(priority=20, weight=9, port=1, target="c.example.com"),
        SrvRecord(priority=10, weight=1, port=2, target="b.example.com"),
        SrvRecord(priority=10, weight=5, port=3, target="a.example.com"),
    ]
    assert select_srv([b"broken", *map(write_srv, servers)]) == servers[2]
    assert select_srv([]) is None
    with pytest.raises(InvalidDocument):
        parse_srv(write_srv(servers[0]) + b"x")

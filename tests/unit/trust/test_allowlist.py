"""Rules of the allow-list (announce.md P-12)."""

from __future__ import annotations

import pytest

from waypost import limits
from waypost.errors import InvalidParameter
from waypost.trust.announce.trust_store import AllowList, Applicant, find_agent_id, parse_rule

ID = "3cde1b52-1fc2-4f7b-8d8c-5e3e6f5c9c1d"
KEY = f"sha256:{'a' * 64}"


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        (ID.upper(), ID),
        (f"urn:uuid:{ID}", ID),
        (f"  {ID} ", ID),
        (f"key:{KEY}", f"key:{KEY}"),
        (KEY.upper(), f"key:{KEY}"),
        ("san:Example.COM", "san:example.com"),
        ("*", "*"),
    ],
)
def test_a_rule_has_one_spelling(text: str, rule: str) -> None:
    assert parse_rule(text) == rule


@pytest.mark.parametrize(
    "text",
    [
        "",
        "data-processor",
        "capability:metrics",
        f"{ID}x",
        "key:sha256:12",
        "key:md5:" + "a" * 32,
        "san:",
        "**",
        "3cde*",
        "san:" + "a" * limits.RULE_CHARS,
    ],
)
def test_an_invalid_allow_rule_is_refused_with_the_valid_forms(text: str) -> None:
    with pytest.raises(InvalidParameter) as refused:
        parse_rule(text)
    assert "key:sha256" in (refused.value.hint or "")


def test_an_agent_id_is_a_uuid() -> None:
    assert find_agent_id(ID.upper()) == ID
    assert find_agent_id("../../etc/passwd") is None


def test_an_empty_allow_list_admits_no_agent() -> None:
    assert AllowList().find_rule(Applicant(agent_id=ID, key_id=KEY)) is None


def test_the_narrowest_rule_is_named() -> None:
    rules = AllowList(["*", ID, f"key:{KEY}"])
    assert rules.find_rule(Applicant(agent_id=ID, key_id=KEY)) == ID
    rules.remove(ID)
    assert rules.find_rule(Applicant(agent_id=ID, key_id=KEY)) == f"key:{KEY}"
    rules.remove(f"key:{KEY}")
    assert rules.find_rule(Applicant(agent_id=ID, key_id=KEY)) == "*"
    rules.remove("*")
    assert rules.find_rule(Applicant(agent_id=ID, key_id=KEY)) is None


@pytest.mark.parametrize(
    ("name", "fits"),
    [
        ("agents.example.com", True),
        ("example.com", True),
        ("EXAMPLE.com", True),
        ("badexample.com", False),
        ("example.com.evil.net", False),
        ("spiffe://x/example.com", True),
    ],
)
def test_a_suffix_fits_names_that_end_there_and_not_in_the_middle_of_a_word(name: str, fits: bool) -> None:
    found = AllowList(["san:example.com"]).find_rule(Applicant(agent_id=ID, names=(name,)))
    assert (found is not None) == fits


def test_names_count_only_where_a_certificate_was_checked() -> None:
    assert AllowList(["san:example.com"]).find_rule(Applicant(agent_id=ID)) is None

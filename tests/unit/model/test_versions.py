"""Versions and version ranges: the table of rtfs.md §6, precedence of SemVer 2.0, bounds and errors."""

import itertools

import pytest

from waypost.errors import InvalidParameter
from waypost.model.versions import compare_versions, find_version, parse_range

ASCENDING = [
    "0.0.0-0",
    "0.0.0",
    "0.0.1",
    "0.1.0",
    "0.10.0",
    "1.0.0-alpha",
    "1.0.0-alpha.1",
    "1.0.0-alpha.beta",
    "1.0.0-beta",
    "1.0.0-beta.2",
    "1.0.0-beta.11",
    "1.0.0-rc.1",
    "1.0.0",
    "1.0.1",
    "1.2.0",
    "1.10.0",
    "2.0.0-0",
    "2.0.0",
    "10.0.0",
]


@pytest.mark.parametrize(("lower", "higher"), list(itertools.pairwise(ASCENDING)))
def test_versions_are_ordered_by_precedence(lower: str, higher: str) -> None:
    assert compare_versions(lower, higher) == -1
    assert compare_versions(higher, lower) == 1


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("1.2", "1.2.0"),
        ("v1.2.3", "1.2.3"),
        ("1", "1.0.0"),
        ("1.2.3+build.7", "1.2.3+other"),
        ("1.2-rc.1", "1.2.0-rc.1"),
    ],
)
def test_loose_forms_and_builds_are_equal_in_precedence(left: str, right: str) -> None:
    assert compare_versions(left, right) == 0


@pytest.mark.parametrize(
    "text", ["", "latest", "1.2.3.4", "01.2.3", "1.2.3-01", "1.2.3-", "1..2", "2024-01-01T00:00", "9" * 20]
)
def test_an_invalid_version_is_not_compared(text: str) -> None:
    assert find_version(text) is None
    assert compare_versions(text, "1.0.0") is None
    assert compare_versions("1.0.0", text) is None


def test_an_absent_version_is_compared_with_nothing() -> None:
    assert compare_versions(None, "1.0.0") is None


ALLOWED = [
    ("1.2.3", "1.2.3"),
    ("=1.2.3", "1.2.3"),
    ("==1.2.3", "1.2.3+build"),
    ("= 1.2.3", "v1.2.3"),
    (">=1.2.0 <2.0.0", "1.9.9"),
    (">=1.0 <2.0", "1.0"),
    (">=1.2.0, <2.0.0", "1.2.0"),
    (">=1.2.0,<2.0.0", "1.2.0"),
    ("1.2", "1.2.9"),
    ("1.2.x", "1.2.0"),
    ("1.2.*", "1.2.0"),
    ("~1.2", "1.2.7"),
    ("1", "1.99.0"),
    ("1.x", "1.0.0"),
    ("1.X.X", "1.4.0"),
    ("~1", "1.5.0"),
    ("~1.2.3", "1.2.3"),
    ("~1.2.3", "1.2.99"),
    ("~ 1.2.3", "1.2.99"),
    ("^1.2.3", "1.9.0"),
    ("^1.2", "1.2.0"),
    ("^0.2.3", "0.2.9"),
    ("^0.0.3", "0.0.3"),
    ("^0.0", "0.0.9"),
    ("^0.x", "0.9.9"),
    ("^0", "0.0.0"),
    ("^0.0.0", "0.0.0"),
    (">1.2", "1.3.0"),
    (">1", "2.0.0"),
    (">=1.2", "1.2.0"),
    ("<=1.2", "1.2.99"),
    ("<1.2", "1.1.99"),
    ("<=1.2.3", "1.2.3"),
    ("1.2 - 2.3", "1.2.0"),
    ("1.2 - 2.3", "2.3.99"),
    ("1.2.3 - 2.3.4", "2.3.4"),
    ("* - 2", "2.9.9"),
    ("1 - *", "9.0.0"),
    ("*", "0.0.0"),
    ("", "12.1.0"),
    ("x", "1.0.0"),
    (">=*", "1.0.0"),
    ("<=*", "1.0.0"),
    ("~*", "3.0.0"),
    ("^*", "3.0.0"),
    ("1.x || 3.x", "3.1.4"),
    ("1.x||3.x", "1.1.4"),
    ("|| 3.x", "7.0.0"),
    (">=1.2.3-beta.2", "1.2.3-beta.3"),
    (">=1.2.3-beta.2", "1.2.3"),
    ("^1.2.3-alpha", "1.2.3-pre"),
    ("^1.2.3-alpha", "1.3.0"),
    ("~1.2.3-beta", "1.2.3-beta.4"),
    ("1.2.3-rc.1", "1.2.3-rc.1"),
    (">1.2.3-alpha <1.2.3-beta", "1.2.3-alpha.7"),
    ("v1.2.3", "1.2.3"),
    (">=v1.2", "1.2.0"),
]

REFUSED = [
    ("1.2.3", "1.2.4"),
    ("=1.2.3", "1.2.3-rc"),
    (">=1.2.0 <2.0.0", "2.0.0"),
    (">=1.2.0 <2.0.0", "1.1.9"),
    (">=1.2.0 <2.0.0", "2.0.0-alpha"),
    ("1.2", "1.3.0"),
    ("~1.2", "1.3.0-alpha"),
    ("1", "2.0.0-0"),
    ("~1.2.3", "1.3.0"),
    ("~1.2.3", "1.2.2"),
    ("^1.2.3", "2.0.0"),
    ("^1.2.3", "1.2.2"),
    ("^0.2.3", "0.3.0"),
    ("^0.0.3", "0.0.4"),
    ("^0.0", "0.1.0"),
    ("^0", "1.0.0"),
    ("^0.0.0", "0.0.1"),
    (">1.2", "1.2.99"),
    (">1", "1.9.9"),
    ("<=1.2", "1.3.0"),
    ("<1.2", "1.2.0-alpha"),
    ("1.2 - 2.3", "2.4.0"),
    ("1.2.3 - 2.3.4", "2.3.5"),
    ("1.2 - 2.3", "2.4.0-0"),
    ("*", "1.0.0-alpha"),
    (">*", "1.0.0"),
    ("<*", "0.0.0"),
    ("<*", "0.0.0-0"),
    ("1.x || 3.x", "2.0.0"),
    (">=1.2.3-beta.2", "1.2.4-beta.3"),
    (">=1.2.3-beta.2", "1.2.3-beta.1"),
    ("^1.2.3-alpha", "2.0.0-alpha"),
    (">=1.0.0", "latest"),
    (">=1.0.0", ""),
]


@pytest.mark.parametrize(("constraint", "version"), ALLOWED)
def test_a_range_allows_what_it_describes(constraint: str, version: str) -> None:
    assert parse_range(constraint).allows(version)


@pytest.mark.parametrize(("constraint", "version"), REFUSED)
def test_a_range_refuses_what_it_does_not_describe(constraint: str, version: str) -> None:
    assert not parse_range(constraint).allows(version)


@pytest.mark.parametrize(
    ("constraint", "column"),
    [
        ("!=1.2.3", 1),
        (">=1.2.3 !=1.3.0", 9),
        ("latest", 1),
        ("1.2.3.4", 1),
        ("01.2.3", 1),
        (">=", 1),
        ("1.2.3 | 2", 7),
        ("1.x || >>2", 8),
        ("1.2.3,,2", 7),
        ("1.2.3,", 6),
        ("1.2-rc", 1),
        ("1.2.3 -2", 7),
        ("~>1.2", 1),
        ("1.0.0 – 2.0.0", 7),
    ],
)
def test_an_unreadable_range_is_refused_with_its_column(constraint: str, column: int) -> None:
    with pytest.raises(InvalidParameter) as refused:
        parse_range(constraint)
    assert refused.value.details["column"] == column
    assert f"column {column}" in refused.value.message


def test_a_range_has_at_most_256_characters() -> None:
    parse_range("1.2.3" + " " * 251)
    with pytest.raises(InvalidParameter, match="256"):
        parse_range("1.2.3" + " " * 252)


def test_a_range_has_at_most_16_alternatives() -> None:
    parse_range("||".join(["1"] * 16))
    with pytest.raises(InvalidParameter, match="16"):
        parse_range("||".join(["1"] * 17))


def test_a_range_names_at_most_32_versions() -> None:
    parse_range("||".join(["1 - 2"] * 16))
    parse_range(" ".join([">=1"] * 32))
    for text in (" ".join([">=1"] * 33), "||".join(["1 - 2"] * 15 + [">=1 <2 <3"])):
        with pytest.raises(InvalidParameter, match="32"):
            parse_range(text)


def test_a_number_in_a_range_fits_a_double() -> None:
    assert parse_range(f"{2**53 - 1}.0.0").allows(f"{2**53 - 1}.0.0")
    with pytest.raises(InvalidParameter, match="2\\^53"):
        parse_range(f">=1 <{2**53}")

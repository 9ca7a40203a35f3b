"""Every requirement is accounted for: it has a check, or a reason why no request can show it."""

from __future__ import annotations

import pytest

import requirements
from waypost.conformance.rules import load_rules
from waypost.conformance.runner import SUITES, choose_suites
from waypost.errors import InvalidParameter

SPECIFICATIONS = {spec.stem: spec for spec in requirements.read_specifications()}


def test_there_is_a_suite_for_every_specification() -> None:
    assert {suite.name for suite in SUITES} == set(SPECIFICATIONS) == set(load_rules())


@pytest.mark.parametrize("suite", SUITES, ids=lambda suite: suite.name)
def test_each_requirement_is_checked_or_has_a_reason(suite) -> None:
    checked = {check.requirement for check in suite.checks}
    listed = {row.id for row in SPECIFICATIONS[suite.name].requirements}
    assert checked | set(suite.unobservable) == listed
    assert checked & set(suite.unobservable) == set()
    assert all(reason.strip() for reason in suite.unobservable.values())


@pytest.mark.parametrize("suite", SUITES, ids=lambda suite: suite.name)
def test_the_rules_of_the_package_are_those_of_the_list(suite) -> None:
    expected = [(row.id, row.level, row.text) for row in SPECIFICATIONS[suite.name].requirements]
    assert [(rule.id, rule.level, rule.text) for rule in load_rules()[suite.name].rules] == expected


def test_a_specification_is_chosen_by_its_name_or_the_prefix_of_its_ids() -> None:
    names = [suite.name for suite in choose_suites(["AF", "Pro", "ann", "aid", "a2a", "MCP", "rtfs"])]
    assert names == ["agentframework", "profile", "rtfs", "announce", "dns-aid", "neighbours"]
    assert choose_suites([]) == SUITES


def test_an_unknown_specification_is_an_error_that_lists_the_known_ones() -> None:
    with pytest.raises(InvalidParameter, match="no specification 'zz'") as caught:
        choose_suites(["zz"])
    assert "agentframework" in caught.value.hint

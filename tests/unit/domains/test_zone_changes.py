"""Changes of a zone leave the records of others untouched."""

from __future__ import annotations

import pytest

from waypost.domains.zone import RecordSet, compare_record_sets, merge_record_sets, plan_changes, plan_withdrawal


def held(name: str, kind: str, *data: str, ttl: int = 60) -> RecordSet:
    return RecordSet(name=name, type=kind, ttl=ttl, data=tuple(sorted(data)))


ADP = '"v=ADP1.1; pk=x"'
OLD = '"v=ADP1.1; pk=y"'
AID = '"v=aid2;u=https://a.example/mcp;p=mcp"'


def test_existing_records_are_not_changed() -> None:
    wanted = held("a.example", "SVCB", "1 .")
    assert plan_changes([wanted], {wanted.key: wanted}) == []


def test_missing_records_are_added_and_different_ones_replaced() -> None:
    svcb, txt = held("a.example", "SVCB", "1 ."), held("_agent.a.example", "TXT", ADP)
    changes = plan_changes([svcb, txt], {svcb.key: None, txt.key: held("_agent.a.example", "TXT", OLD)})
    assert [(change.type, change.before is None) for change in changes] == [("SVCB", True), ("TXT", False)]
    assert changes[1].after == txt


def test_another_ttl_is_a_change() -> None:
    wanted = held("a.example", "SVCB", "1 .", ttl=300)
    assert len(plan_changes([wanted], {wanted.key: held("a.example", "SVCB", "1 .", ttl=60)})) == 1


def test_a_text_of_aid_beside_ours_stays() -> None:
    wanted = held("_agent.a.example", "TXT", ADP)
    assert merge_record_sets(wanted, held("_agent.a.example", "TXT", OLD, AID)).data == tuple(sorted((ADP, AID)))
    assert compare_record_sets(wanted, held("_agent.a.example", "TXT", ADP, AID)) == "same"
    (change,) = plan_withdrawal([wanted], {wanted.key: held("_agent.a.example", "TXT", ADP, AID)}, "a.example")
    assert change.after is not None
    assert change.after.data == (AID,)


def test_the_other_agents_of_an_organisation_stay_in_its_lists() -> None:
    aliases = held("_agents.example", "SVCB", "0 a.example.")
    assert merge_record_sets(aliases, held("_agents.example", "SVCB", "0 b.example.")).data == (
        "0 a.example.",
        "0 b.example.",
    )
    index = held("_index._agents.example", "TXT", '"agents=a:a2a"')
    live = held("_index._agents.example", "TXT", '"agents=a:mcp,b:mcp"', '"something else"')
    assert merge_record_sets(index, live).data == ('"agents=a:a2a,b:mcp"', '"something else"')


def test_a_withdrawn_agent_leaves_siblings_and_provider_host_untouched() -> None:
    there = [
        held("a.example", "SVCB", "1 host.example."),
        held("_443._tcp.host.example", "TLSA", "3 1 1 00"),
        held("_agents.example", "SVCB", "0 a.example.", "0 b.example."),
        held("a._agents.example", "SVCB", "0 a.example."),
        held("b._agents.example", "SVCB", "0 b.example."),
        held("_index._agents.example", "SVCB", "1 host.example."),
        held("_index._agents.example", "TXT", '"agents=a:a2a,b:a2a"'),
    ]
    changes = plan_withdrawal(there, {each.key: each for each in there}, "a.example")
    after = {(change.name, change.type): change.after.data if change.after else None for change in changes}
    assert after == {
        ("a.example", "SVCB"): None,
        ("_agents.example", "SVCB"): ("0 b.example.",),
        ("a._agents.example", "SVCB"): None,
        ("_index._agents.example", "TXT"): ('"agents=b:a2a"',),
    }


def test_a_long_list_is_written_in_strings_that_fit() -> None:
    names = ",".join(f"agent{number:03d}:a2a" for number in range(40))
    index = held("_index._agents.example", "TXT", '"agents=zed:a2a"')
    (data,) = merge_record_sets(index, held("_index._agents.example", "TXT", f'"agents={names}"')).data
    strings = data[1:-1].split('" "')
    assert len(strings) == 3
    assert all(len(text) <= 255 for text in strings)
    assert "".join(strings).endswith("zed:a2a")


def test_records_of_an_earlier_update_are_removed() -> None:
    old = held("_8443._tcp.a.example", "TLSA", "3 1 1 00")
    (change,) = plan_withdrawal([old], {old.key: old}, "a.example")
    assert (change.before, change.after) == (old, None)
    assert change.reversed().after == old
    assert plan_withdrawal([old], {old.key: None}, "a.example") == []


@pytest.mark.parametrize(
    ("live", "state"),
    [
        (None, "missing"),
        (held("a.example", "A", "192.0.2.1", ttl=5), "same"),
        (held("a.example", "A", "192.0.2.2"), "differs"),
        (held("a.example", "A", "192.0.2.1", "192.0.2.2"), "extra"),
    ],
)
def test_a_set_is_judged_by_its_data(live: RecordSet | None, state: str) -> None:
    assert compare_record_sets(held("a.example", "A", "192.0.2.1"), live) == state

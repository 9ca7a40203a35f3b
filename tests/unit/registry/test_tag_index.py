from __future__ import annotations

import random

import pytest

from waypost.registry.catalog.tag_index import TagIndex

PUBLIC = ("public",)


@pytest.fixture
def index() -> TagIndex:
    index = TagIndex()
    index.put("hr", ("hr", "onboarding"), ("https", "a2a"), "active", PUBLIC)
    index.put("pay", ("hr", "payroll"), ("mcp",), "testing", ("internal",))
    index.put("secret", ("hr",), ("https",), "active", ("private:alice", "private:bob"))
    index.put("old", ("onboarding",), ("https",), "inactive", PUBLIC)
    return index


def chosen(index: TagIndex, **filters: object) -> set[str]:
    return set(index.ids_of(index.select(**filters)))  # type: ignore[arg-type]


def test_no_filter_selects_everything(index: TagIndex) -> None:
    assert chosen(index) == {"hr", "pay", "secret", "old"}


def test_every_required_tag_must_be_present(index: TagIndex) -> None:
    assert chosen(index, required=("hr",)) == {"hr", "pay", "secret"}
    assert chosen(index, required=("hr", "onboarding")) == {"hr"}
    assert chosen(index, required=("hr", "unknown")) == set()


def test_an_excluded_tag_removes(index: TagIndex) -> None:
    assert chosen(index, excluded=("payroll", "onboarding")) == {"secret"}
    assert chosen(index, required=("hr",), excluded=("unknown",)) == {"hr", "pay", "secret"}


def test_any_protocol_and_any_status_is_enough(index: TagIndex) -> None:
    assert chosen(index, protocols=("a2a", "mcp")) == {"hr", "pay"}
    assert chosen(index, statuses=("active", "testing")) == {"hr", "pay", "secret"}
    assert chosen(index, protocols=("gopher",)) == set()


def test_an_audience_sees_only_its_scopes(index: TagIndex) -> None:
    assert chosen(index, audience=frozenset({"public"})) == {"hr", "old"}
    assert chosen(index, audience=frozenset({"public", "internal", "private:bob"})) == {"hr", "old", "pay", "secret"}
    assert chosen(index, audience=frozenset()) == set()


def test_a_second_put_replaces_all_traits(index: TagIndex) -> None:
    ordinal = index.ordinal("hr")
    assert index.put("hr", ("legal",), ("mcp",), "suspended", ("private:alice",)) == ordinal
    assert "hr" not in chosen(index, required=("hr",)) | chosen(index, protocols=("a2a",)) | chosen(
        index, audience=frozenset(PUBLIC)
    )
    assert chosen(index, required=("legal",), statuses=("suspended",), protocols=("mcp",)) == {"hr"}


def test_a_removed_agent_is_gone_and_its_ordinal_is_used_again(index: TagIndex) -> None:
    freed = index.ordinal("hr")
    index.remove("hr")
    index.remove("never-here")
    assert "hr" not in index
    assert chosen(index, required=("onboarding",)) == {"old"}
    assert index.put("new", (), (), "active", PUBLIC) == freed
    assert chosen(index, required=("onboarding",)) == {"old"}
    assert index.tags_of(freed) == ()
    assert len(index) == 4


def test_changing_a_selection_does_not_change_the_index(index: TagIndex) -> None:
    for filters in ({}, {"required": ("hr",)}, {"protocols": ("mcp",)}, {"audience": frozenset(PUBLIC)}):
        before = chosen(index, **filters)
        index.select(**filters).clear()  # type: ignore[arg-type]
        assert chosen(index, **filters) == before


def test_an_unused_ordinal_has_no_id(index: TagIndex) -> None:
    ordinal = index.ordinal("hr")
    assert ordinal is not None
    assert index.id_of(ordinal) == "hr"
    index.remove("hr")
    with pytest.raises(KeyError):
        index.id_of(ordinal)


def test_it_agrees_with_a_plain_scan_after_many_random_changes() -> None:
    random.seed(7)
    index, model = TagIndex(), {}
    tags, protocols, statuses, scopes = "abcdef", "xyz", ("active", "testing"), ("public", "internal", "private:a")
    for _ in range(3000):
        agent_id = f"agent-{random.randrange(200)}"
        if random.random() < 0.3:
            index.remove(agent_id)
            model.pop(agent_id, None)
            continue
        row = (
            tuple(random.sample(tags, random.randrange(4))),
            tuple(random.sample(protocols, random.randrange(3))),
            random.choice(statuses),
            (random.choice(scopes),),
        )
        index.put(agent_id, *row)
        model[agent_id] = row
    assert len(index) == len(model)
    for _ in range(200):
        required = tuple(random.sample(tags, random.randrange(3)))
        excluded = tuple(random.sample(tags, random.randrange(2)))
        wanted = tuple(random.sample(protocols, random.randrange(3)))
        audience = random.choice((None, frozenset({"public"}), frozenset({"internal", "private:a"})))
        expected = {
            agent_id
            for agent_id, (its_tags, its_protocols, _, its_scopes) in model.items()
            if set(required) <= set(its_tags)
            and not set(excluded) & set(its_tags)
            and (not wanted or set(wanted) & set(its_protocols))
            and (audience is None or audience & set(its_scopes))
        }
        assert chosen(index, required=required, excluded=excluded, protocols=wanted, audience=audience) == expected

"""rtfs.md §5–6: discover."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from support.rtfs import Rpc, card
from support.service import NOW, Bench, service
from waypost.errors import RateLimited
from waypost.model.principal import ANONYMOUS
from waypost.model.times import to_rfc3339
from waypost.server.api.rtfs.api import RtfsCaller, RtfsMethods
from waypost.server.api.rtfs.search import CardBudget

TRANSLATOR = card(
    "translator",
    name="Polyglot",
    version="2.3.0",
    description="Translates documents.",
    capabilities=[
        {"capability_id": "translate-v1.4", "description": "French and German.", "type": "task", "price": 3},
        {"capability_id": "detect@2.0.1", "description": "Detects the language.", "type": "tool", "price": 1},
    ],
    communication={
        "endpoints": [
            {"protocol": "json-rpc", "uri": "https://t.example/rpc", "details": {"region": "eu-west"}},
            {"protocol": "websocket", "uri": "wss://t.example/ws"},
        ]
    },
    discovery_tags=["NLP", "french", "language"],
    metadata={"owner": "Lingua", "sla.tier": "gold", "max_tokens": 4096, "latency": {"p95": 120}, "beta": False},
)
RESIZER = card(
    "resizer",
    name="Image Resizer",
    version="0.9.0-rc.1",
    description="Resizes images, also for documents.",
    capabilities=[
        {"capability_id": "vendor/resize", "description": "JPG and PNG.", "version": "1.5.0", "type": "task"}
    ],
    communication={"endpoints": [{"protocol": "grpc", "uri": "grpc://r.example:50051"}]},
    discovery_tags=["images", ":nlp"],
    metadata={"owner": "pixel", "latency": {"p95": 40}},
)
PLAIN = card("plain", version=None, discovery_tags=None, capabilities=None, metadata=None, description="Does little.")


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with service(tmp_path) as started:
        rpc = Rpc(started.as_("alice"))
        for document in (TRANSLATOR, RESIZER, PLAIN):
            await rpc.register(document)
        yield started


@pytest.fixture
def rpc(bench: Bench) -> Rpc:
    return Rpc(bench.as_("alice"))


@pytest.mark.req("RTFS-46")
async def test_cards_come_back_as_they_were_registered(rpc: Rpc) -> None:
    (found,) = (await rpc.call("discover", agent_id="translator"))["agents"]
    assert {name: value for name, value in found.items() if name != "registry"} == TRANSLATOR


@pytest.mark.req("RTFS-46")
async def test_criteria_are_joined_by_and(rpc: Rpc) -> None:
    assert await rpc.found(discovery_tags=["nlp"]) == ["resizer", "translator"]
    assert await rpc.found(discovery_tags=["nlp"], discovery_query={"owner": "pixel"}) == ["resizer"]
    assert await rpc.found(discovery_tags=["nlp"], discovery_query={"owner": "pixel"}, agent_id="translator") == []


@pytest.mark.req("RTFS-46")
async def test_nothing_found_is_an_empty_list(rpc: Rpc) -> None:
    assert await rpc.call("discover", agent_id="nobody") == {"agents": [], "total": 0}


@pytest.mark.req("RTFS-47")
@pytest.mark.parametrize(
    "params", [{}, {"limit": 5}, {"discovery_tags": []}, {"discovery_query": {}}, {"agent_id": None}]
)
async def test_a_search_needs_a_criterion(rpc: Rpc, params: dict[str, Any]) -> None:
    assert (await rpc.answer("rtfs.registry.discover", params))["error"]["code"] == -32602


@pytest.mark.req("RTFS-47")
async def test_a_registry_may_be_set_to_be_browsed(bench: Bench) -> None:
    browsable = RtfsMethods(bench.registry, anonymous_read=True, list_all=True)
    caller = RtfsCaller(principal=ANONYMOUS, budget=CardBudget())
    result = await browsable.get("rtfs.registry.discover")({"limit": 2}, caller)
    assert [agent["agent_id"] for agent in result["agents"]] == ["plain", "resizer"]
    assert result["total"] == 3


@pytest.mark.req("RTFS-51")
async def test_one_request_looks_at_a_bounded_number_of_cards(bench: Bench) -> None:
    methods = RtfsMethods(bench.registry, anonymous_read=True, list_all=True)
    caller = RtfsCaller(principal=ANONYMOUS, budget=CardBudget(cards=5))
    await methods.get("rtfs.registry.discover")({}, caller)
    with pytest.raises(RateLimited, match="matches at most"):
        await methods.get("rtfs.registry.discover")({}, caller)


@pytest.mark.req("RTFS-48")
@pytest.mark.parametrize(
    ("capability_id", "found"),
    [
        ("translate-v1.4", ["translator"]),
        ("translate", ["translator"]),
        ("detect", ["translator"]),
        ("detect@2.0.1", ["translator"]),
        ("translate-v1.5", []),
        ("Translate", []),
        ("trans", []),
        ("translator/translate-v1.4", ["translator"]),
        ("resizer/translate-v1.4", []),
        ("vendor/resize", ["resizer"]),
        ("resizer/vendor/resize", ["resizer"]),
        ("*", ["resizer", "translator"]),
        ("trans*", ["translator"]),
        ("*res*", ["resizer"]),
        ("v*r/r*e", ["resizer"]),
        ("*-v1*", ["translator"]),
        ("vendor/*", ["resizer"]),
        ("*" * 200 + "x", []),
    ],
)
async def test_a_capability_is_named_exactly_qualified_by_glob_or_without_its_version(
    rpc: Rpc, capability_id: str, found: list[str]
) -> None:
    assert await rpc.found(capability_id=capability_id) == found


@pytest.mark.req("RTFS-48")
async def test_an_agent_id_is_exact(rpc: Rpc) -> None:
    assert await rpc.found(agent_id="translator") == ["translator"]
    for other in ("Translator", "trans*", "translator/"):
        assert await rpc.found(agent_id=other) == []
    for bad in (1, "", ["translator"]):
        assert await rpc.code("discover", agent_id=bad) == -32602


@pytest.mark.req("RTFS-48")
async def test_a_capability_is_found_from_the_moment_it_is_registered_until_it_is_gone(rpc: Rpc) -> None:
    assert await rpc.found(capability_id="new-one") == []
    await rpc.register(card("late", capabilities=[{"capability_id": "new-one-v2"}]))
    assert await rpc.found(capability_id="new-one") == ["late"]
    await rpc.register(card("late", capabilities=[{"capability_id": "other"}]))
    assert await rpc.found(capability_id="new-one*") == []
    await rpc.call("deregister", agent_id="late")
    assert await rpc.found(capability_id="other") == []


@pytest.mark.req("RTFS-49")
@pytest.mark.parametrize(
    ("tags", "mode", "found"),
    [
        (["nlp", "french"], None, ["translator"]),
        ([":NLP", "French"], "all", ["translator"]),
        (["french", "images"], None, []),
        (["french", "images"], "any", ["resizer", "translator"]),
        (["unheard-of"], "any", []),
        (["translate"], None, []),
    ],
)
async def test_all_tags_or_any_of_them(rpc: Rpc, tags: list[str], mode: str | None, found: list[str]) -> None:
    params: dict[str, Any] = {} if mode is None else {"tags_mode": mode}
    assert await rpc.found(discovery_tags=tags, **params) == found


@pytest.mark.req("RTFS-49")
async def test_tags_are_texts(rpc: Rpc) -> None:
    for bad in ("nlp", [1], [None], [""], [":"], {}, ["x"] * 65):
        assert await rpc.code("discover", discovery_tags=bad) == -32602
    assert await rpc.code("discover", discovery_tags=["nlp"], tags_mode="some") == -32602


@pytest.mark.req("RTFS-49")
async def test_a_card_is_found_by_each_of_sixty_four_tags(rpc: Rpc) -> None:
    await rpc.register(card("tagged", discovery_tags=[f"tag-{at}" for at in range(64)]))
    for at in (0, 31, 32, 63):
        assert await rpc.found(discovery_tags=[f"tag-{at}"]) == ["tagged"]


@pytest.mark.req("RTFS-50")
@pytest.mark.parametrize(
    ("query", "found"),
    [
        ({"text_search": "documents"}, ["resizer", "translator"]),
        ({"text-search": "IMAGES documents"}, ["resizer"]),
        ({"text_search": "documents nonsense"}, []),
        ({"text_search": "jpg"}, ["resizer"]),
        ({"text_search": "french"}, ["translator"]),
        ({"metadata.owner": "lingua"}, ["translator"]),
        ({"owner": "LINGUA"}, ["translator"]),
        ({"name": "polyglot"}, ["translator"]),
        ({"type": "tool"}, ["translator"]),
        ({"capabilities.type": "task"}, ["resizer", "translator"]),
        ({"capabilities.type": "tool", "capabilities.price": 3}, ["translator"]),
        ({"capabilities": {"type": "tool", "price": 3}}, []),
        ({"capabilities": {"type": "tool", "price": 1}}, ["translator"]),
        ({"protocol": "grpc"}, ["resizer"]),
        ({"communication.endpoints.details.region": "EU-West"}, ["translator"]),
        ({"sla.tier": "gold"}, []),
        ({"metadata.sla.tier": "gold"}, ["translator"]),
        ({"metadata": {"sla.tier": "gold", "beta": False}}, ["translator"]),
        ({"max-tokens": 4096}, ["translator"]),
        ({"max_tokens": 4095}, []),
        ({"price": [7, 3]}, ["translator"]),
        ({"price": 3.0}, ["translator"]),
        ({"price": "3"}, []),
        ({"beta": False}, ["translator"]),
        ({"beta": 0}, []),
        ({"min_price": 2}, ["translator"]),
        ({"min_price": 4}, []),
        ({"max_price": 1}, ["translator"]),
        ({"metadata.latency.max_p95": 100}, ["resizer"]),
        ({"min_metadata.latency.p95": 100}, ["translator"]),
        ({"latency": {"max_p95": 50}}, ["resizer"]),
        ({"description_contains": "DOC"}, ["resizer", "translator"]),
        ({"name-contains": "image"}, ["resizer"]),
        ({"discovery_tags": "French"}, ["translator"]),
        ({"discovery_tags_contains": "lang"}, ["translator"]),
        ({"metadata": None}, ["plain"]),
        ({"owner": None}, ["plain"]),
        ({"owner": [None, "pixel"]}, ["plain", "resizer"]),
        ({"no.such.path": "x"}, []),
        ({"no_such_path": "x"}, []),
        ({"protocol_preference": "grpc"}, ["resizer", "plain", "translator"]),
        ({"protocol_preference": ["websocket", "GRPC"]}, ["translator", "resizer", "plain"]),
    ],
)
async def test_a_query_is_a_conjunction_over_the_card(rpc: Rpc, query: dict[str, Any], found: list[str]) -> None:
    assert await rpc.found(discovery_query=query) == found


def _nested(depth: int) -> dict[str, Any]:
    value: Any = 1
    for _ in range(depth):
        value = {"k": value}
    return {"k": value}


@pytest.mark.req("RTFS-50")
@pytest.mark.parametrize(
    ("query", "code"),
    [
        ([], -32602),
        ("text", -32602),
        ({f"k{at}": 1 for at in range(33)}, -32602),
        (_nested(8), -32602),
        ({"text_search": ""}, -32602),
        ({"text_search": ["a"]}, -32602),
        ({"min_price": "3"}, -32602),
        ({"name_contains": 3}, -32602),
        ({"protocol_preference": 3}, -32602),
        ({"$gt": 3}, -32004),
        ({"price": {"$gt": 3}}, -32004),
        ({"": 3}, -32004),
    ],
)
async def test_an_invalid_discovery_query_is_refused(rpc: Rpc, query: Any, code: int) -> None:
    assert await rpc.code("discover", discovery_query=query) == code


@pytest.mark.req("RTFS-50")
async def test_a_query_may_have_32_keys_and_7_levels_below_it(rpc: Rpc) -> None:
    assert await rpc.found(discovery_query={f"k{at}": 1 for at in range(32)}) == []
    assert await rpc.found(discovery_query=_nested(6)) == []


@pytest.mark.req("RTFS-51")
async def test_the_limit_defaults_to_20_and_is_cut_at_100(rpc: Rpc) -> None:
    await rpc.post(
        [
            {"jsonrpc": "2.0", "method": "rtfs.registry.register", "params": {"agent_card": card(f"many-{at:03}")}}
            for at in range(100)
        ]
    )
    for at in range(100, 110):
        await rpc.register(card(f"many-{at:03}"))
    assert len(await rpc.found(discovery_tags=["weather"])) == 20
    assert len(await rpc.found(discovery_tags=["weather"], limit=1)) == 1
    assert len(await rpc.found(discovery_tags=["weather"], limit=1000)) == 100
    for bad in (0, -1, 1.5, "5", True):
        assert await rpc.code("discover", discovery_tags=["weather"], limit=bad) == -32602


@pytest.mark.req("RTFS-51")
async def test_pages_follow_each_other_without_gap_or_repeat(rpc: Rpc) -> None:
    names = [f"page-{at:02}" for at in range(23)]
    for name in reversed(names):
        await rpc.register(card(name))
    seen: list[str] = []
    cursor: dict[str, Any] = {}
    while True:
        result = await rpc.call("discover", discovery_tags=["weather"], limit=10, **cursor)
        assert result["total"] == 23
        seen += [agent["agent_id"] for agent in result["agents"]]
        if "next_cursor" not in result:
            assert "has_more" not in result
            break
        assert result["has_more"] is True
        cursor = {"cursor": result["next_cursor"]}
    assert seen == names


@pytest.mark.req("RTFS-51")
async def test_a_cursor_fits_only_its_own_search_and_caller(bench: Bench, rpc: Rpc) -> None:
    cursor = (await rpc.call("discover", discovery_tags=["nlp"], limit=1))["next_cursor"]
    assert await rpc.found(discovery_tags=["nlp"], limit=1, cursor=cursor) == ["translator"]
    assert await rpc.code("discover", discovery_tags=["images"], cursor=cursor) == -32602
    assert await Rpc(bench.as_("bob")).code("discover", discovery_tags=["nlp"], cursor=cursor) == -32602
    for bad in ("made-up", 7, ""):
        assert await rpc.code("discover", discovery_tags=["nlp"], cursor=bad) == -32602


@pytest.mark.req("RTFS-51")
async def test_the_order_is_text_score_then_protocol_then_id(rpc: Rpc) -> None:
    await rpc.register(card("b", name="Weather", discovery_tags=None))
    await rpc.register(card("a", name="Weather", discovery_tags=None))
    await rpc.register(
        card("c", name="Weather", communication={"endpoints": [{"protocol": "grpc", "uri": "grpc://c:1"}]})
    )
    await rpc.register(card("aa", name="Other", discovery_tags=None))
    found = await rpc.found(discovery_query={"text_search": "weather", "protocol_preference": "grpc"})
    assert found == ["c", "a", "b", "aa"]


@pytest.mark.req("RTFS-52")
async def test_facts_of_the_registry_are_separate_from_the_card(rpc: Rpc) -> None:
    (found,) = (await rpc.call("discover", agent_id="translator"))["agents"]
    assert found["registry"] == {
        "health": "unknown",
        "registered_at": to_rfc3339(NOW),
        "expires_at": to_rfc3339(NOW + 3600),
    }
    (found,) = (await rpc.call("discover", discovery_query={"text_search": "polyglot"}))["agents"]
    assert found["registry"]["score"] == 1.0


@pytest.mark.req("RTFS-53")
@pytest.mark.parametrize(
    ("criteria", "found"),
    [
        ({"version_constraint": ">=2.0.0 <3.0.0"}, ["translator"]),
        ({"version_constraint": ">=2.0 <3.0"}, ["translator"]),
        ({"version_constraint": "*"}, ["translator"]),
        ({"version_constraint": ""}, ["translator"]),
        ({"version_constraint": ">=0.9.0-rc.0 <0.9.0"}, ["resizer"]),
        ({"capability_id": "translate", "version_constraint": "^1.2"}, ["translator"]),
        ({"capability_id": "translate", "version_constraint": "^2"}, []),
        ({"capability_id": "detect", "version_constraint": "2.0.x"}, ["translator"]),
        ({"capability_id": "vendor/resize", "version_constraint": "~1.5"}, ["resizer"]),
        ({"capability_id": "vendor/resize", "version_constraint": "0.9.0-rc.1"}, []),
        ({"capability_id": "*", "version_constraint": "1.x || 2.x"}, ["resizer", "translator"]),
        ({"agent_id": "plain", "version_constraint": "*"}, []),
    ],
)
async def test_a_version_is_that_of_the_capability_else_that_of_the_card(
    rpc: Rpc, criteria: dict[str, Any], found: list[str]
) -> None:
    assert await rpc.found(**criteria) == found


@pytest.mark.req("RTFS-53")
@pytest.mark.parametrize("constraint", ["!=1.0.0", "latest", ">=", "1.2.3.4", "1" * 257, "||".join("1" * 17), 1, ["1"]])
async def test_an_unreadable_version_constraint_is_refused(rpc: Rpc, constraint: Any) -> None:
    assert await rpc.code("discover", agent_id="x", version_constraint=constraint) == -32602


@pytest.mark.req("RTFS-46")
async def test_hidden_agents_leave_no_trace_in_any_query(bench: Bench, rpc: Rpc) -> None:
    await rpc.register(card("secret", metadata={"visibility": "private"}))
    other = Rpc(bench.as_("bob"))
    for criteria in (
        {"agent_id": "secret"},
        {"capability_id": "get-weather"},
        {"capability_id": "get*"},
        {"discovery_tags": ["weather"]},
        {"discovery_query": {"text_search": "weather"}},
        {"discovery_query": {"name": "Agent secret"}},
        {"version_constraint": "1.0.0"},
    ):
        assert await rpc.found(**criteria) == ["secret"]
        assert await other.call("discover", **criteria) == {"agents": [], "total": 0}

"""Checks of the RTFS registry protocol (JSON-RPC 2.0), RTFS-1 to RTFS-63."""

from __future__ import annotations

import secrets
import time
from typing import Any

from waypost import limits
from waypost.conformance.answer import ProbeAnswer, expect_object, expect_text, objects_in, shorten
from waypost.conformance.prober import Prober
from waypost.conformance.suite import Suite, Untestable, expect, no_data, not_offered
from waypost.model.times import find_instant

_PLACE = "rtfs.path"
_DISCOVER = "rtfs.registry.discover"
_REGISTER = "rtfs.registry.register"
_HEARTBEAT = "rtfs.registry.heartbeat"
_DEREGISTER = "rtfs.registry.deregister"
_NOBODY = {"capability_id": "conformance/none"}
_PARSE_ERROR, _INVALID_REQUEST, _UNKNOWN_METHOD, _INVALID_PARAMS = -32700, -32600, -32601, -32602
_REGISTRATION_FAILED, _NOT_FOUND = -32001, -32002
_SKEW_SECONDS = 120.0


async def recognise(probe: Prober) -> str:
    """A discover call is answered by JSON-RPC, at the path of the URL or at `/rtfs` below it."""
    refused = ""
    for path in dict.fromkeys((f"{probe.target.path}/rtfs", probe.target.path or "/")):
        answer = await probe.post(path, _call(_DISCOVER, _NOBODY))
        if answer.error or b'"jsonrpc"' in answer.body:
            probe.places[_PLACE] = path
            return f"{path} answers JSON-RPC."
        if answer.status in (401, 403) and not refused and path.endswith("/rtfs"):
            refused = path
    probe.places[_PLACE] = f"{probe.target.path}/rtfs"
    if refused:
        return f"{refused} wants credentials."
    raise not_offered(f"Nothing answers JSON-RPC at {probe.target.path}/rtfs.")


suite = Suite("rtfs", (), recognise)


def _call(method: str, params: Any = None, request_id: Any = 1) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": method, "params": {} if params is None else params, "id": request_id}


async def _post(probe: Prober, value: Any, **headers: str) -> ProbeAnswer:
    return await probe.request("POST", str(probe.places[_PLACE]), body=value, headers=headers)


async def _answer(probe: Prober, value: Any) -> dict[str, Any]:
    answer = await _post(probe, value)
    answer.expect_status(200)
    return answer.object()


def _result(response: dict[str, Any], what: str) -> dict[str, Any]:
    error = response.get("error")
    expect("result" in response, f"{what} failed: {shorten(str(error), 200)}")
    return expect_object(response, "result", what)


def _expect_error(response: dict[str, Any], code: int, what: str) -> dict[str, Any]:
    error = expect_object(response, "error", f"the answer to {what}")
    expect(error.get("code") == code, f"{what} gives the error {error.get('code')}, expected {code}.")
    expect(isinstance(error.get("message"), str), f"The error of {what} has no message.")
    return error


async def _discover(probe: Prober, **params: Any) -> dict[str, Any]:
    return _result(await _answer(probe, _call(_DISCOVER, params)), "discover")


async def _cards(probe: Prober, **params: Any) -> list[dict[str, Any]]:
    return objects_in(await _discover(probe, **params), "agents", "the result of discover")


async def _refused(probe: Prober, **params: Any) -> None:
    shown = shorten(str(params), 80)
    _expect_error(await _answer(probe, _call(_DISCOVER, params)), _INVALID_PARAMS, f"discover {shown}")


async def _some_cards(probe: Prober) -> list[dict[str, Any]]:
    cards = await _cards(probe, capability_id="*", limit=5)
    if not cards:
        raise no_data("No agent has a capability.")
    return cards


def _ids(cards: list[dict[str, Any]]) -> list[Any]:
    return [card.get("agent_id") for card in cards]


@suite.check("RTFS-30")
async def json_rpc(probe: Prober) -> None:
    response = await _answer(probe, _call(_DISCOVER, _NOBODY, "conformance"))
    expect(response.get("jsonrpc") == "2.0", "The answer is not marked as JSON-RPC 2.0.")
    expect(response.get("id") == "conformance", "The answer has another id.")
    expect(("result" in response) != ("error" in response), "The answer has not exactly one of result and error.")


@suite.check("RTFS-31")
async def request_ids(probe: Prober) -> None:
    for request_id in (7, "7", "a b", 0):
        response = await _answer(probe, _call(_DISCOVER, _NOBODY, request_id))
        echoed = response.get("id")
        same = echoed == request_id and type(echoed) is type(request_id)
        expect(same, f"The id {request_id!r} came back as {shorten(repr(echoed))}.")
    notification = {"jsonrpc": "2.0", "method": _DISCOVER, "params": _NOBODY}
    answer = await _post(probe, notification)
    answer.expect_status(200, 202, 204)
    expect(not answer.body.strip(), "A notification was answered.")
    wrong = await _answer(probe, _call(_DISCOVER, _NOBODY, {"a": 1}))
    _expect_error(wrong, _INVALID_REQUEST, "an id that is an object")
    expect(wrong.get("id", "absent") is None, "The error for an invalid id has an id.")


@suite.check("RTFS-32")
async def batches(probe: Prober) -> None:
    calls = [_call(_DISCOVER, _NOBODY, 1), 5, _call("conformance.none", {}, 2)]
    answer = await _post(probe, [*calls, {"jsonrpc": "2.0", "method": _DISCOVER, "params": _NOBODY}])
    answer.expect_status(200)
    responses = answer.json()
    expect(
        isinstance(responses, list) and len(responses) == 3,
        "A batch of three calls and a notification gives not three answers.",
    )
    expect(
        {str(row.get("id")) for row in responses if isinstance(row, dict)} == {"1", "2", "None"},
        "Ids of the batch are lost.",
    )
    _expect_error(await _answer(probe, []), _INVALID_REQUEST, "an empty batch")
    silent = await _post(probe, [{"jsonrpc": "2.0", "method": _DISCOVER, "params": _NOBODY}])
    silent.expect_status(204, 202)
    large = await _answer(probe, [_call(_DISCOVER, _NOBODY, number) for number in range(101)])
    _expect_error(large, _INVALID_REQUEST, "a batch of 101 calls")


@suite.check("RTFS-33")
async def named_params(probe: Prober) -> None:
    _expect_error(await _answer(probe, _call(_DISCOVER, ["a"])), _INVALID_PARAMS, "parameters by position")
    result = await _discover(probe, **_NOBODY, conformance_unknown=1)
    warnings = str(result.get("warnings"))
    expect("conformance_unknown" in warnings, "An unknown parameter is not named in `warnings`.")
    _expect_error(await _answer(probe, _call("rpc.discover")), _UNKNOWN_METHOD, "the method rpc.discover")
    _expect_error(await _answer(probe, _call("conformance.none")), _UNKNOWN_METHOD, "an unknown method")


@suite.check("RTFS-34")
async def http_statuses(probe: Prober) -> None:
    answer = await probe.get(str(probe.places[_PLACE]))
    answer.expect_status(405)
    expect("POST" in answer.get_header("allow"), "Allow of the 405 lacks POST.")
    (await _post(probe, b"{}", content_type="text/plain")).expect_status(415)
    for text in (b"{", b'{"id": NaN}', b'{"a": "\xff"}', b"[" * 65 + b"]" * 65):
        response = await _answer(probe, text)
        _expect_error(response, _PARSE_ERROR, f"the text {shorten(str(text), 30)}")
        expect(response.get("id", "absent") is None, "A parse error has an id.")
    twice = b'{"jsonrpc":"2.0","method":"rtfs.registry.discover","method":"rtfs.registry.discover","id":1}'
    _expect_error(await _answer(probe, twice), _INVALID_REQUEST, "a member that appears twice")


@suite.check("RTFS-46")
async def discover(probe: Prober) -> None:
    expect(await _cards(probe, **_NOBODY) == [], "A capability that nobody has finds agents.")
    card = (await _some_cards(probe))[0]
    expect_text(card, "agent_id", where="a card")
    expect(await _cards(probe, agent_id=card["agent_id"], **_NOBODY) == [], "Criteria are not combined by AND.")
    for card in await _some_cards(probe):
        for member in ("agent_id", "name", "description"):
            expect_text(card, member, where=f"the card {shorten(str(card.get('agent_id')))}")
        objects_in(card, "capabilities", f"the card {card['agent_id']}")
        expect_object(card, "communication", f"the card {card['agent_id']}")


@suite.check("RTFS-47")
async def no_criterion(probe: Prober) -> None:
    response = await _answer(probe, _call(_DISCOVER, {"limit": 1}))
    if "result" in response:
        raise Untestable("not_observable", "Browsing without a criterion is allowed (list_all).")
    _expect_error(response, _INVALID_PARAMS, "discover without a criterion")


@suite.check("RTFS-48")
async def by_id(probe: Prober) -> None:
    card = (await _some_cards(probe))[0]
    agent_id = str(card.get("agent_id"))
    expect(
        _ids(await _cards(probe, agent_id=agent_id)) == [agent_id], f"agent_id {agent_id} does not find its card alone."
    )
    expect(await _cards(probe, agent_id=agent_id + "-conformance") == [], "An unknown agent_id finds cards.")
    capability = next(iter(objects_in(card, "capabilities", "the card")), {}).get("capability_id")
    if not isinstance(capability, str) or "*" in capability:
        raise no_data("The first card has no capability id.")
    for pattern in (capability, f"{agent_id}/{capability}", capability[:3] + "*"):
        found = await _cards(probe, capability_id=pattern, agent_id=agent_id)
        expect(_ids(found) == [agent_id], f"capability_id {shorten(pattern)!r} does not find {agent_id}.")


@suite.check("RTFS-49")
async def by_tags(probe: Prober) -> None:
    await _refused(probe, discovery_tags=[1])
    card = next((card for card in await _some_cards(probe) if card.get("discovery_tags")), None)
    if card is None:
        raise no_data("No card in the sample has a discovery tag.")
    tag, agent_id = str(card["discovery_tags"][0]), card["agent_id"]
    found = await _cards(probe, discovery_tags=[f":{tag.upper()}"], agent_id=agent_id)
    expect(_ids(found) == [agent_id], f"The tag {tag!r} does not find its card.")
    both = [tag, "conformance-none"]
    expect(await _cards(probe, discovery_tags=both) == [], "Two tags are not combined by AND.")
    found = await _cards(probe, discovery_tags=both, tags_mode="any", agent_id=agent_id)
    expect(_ids(found) == [agent_id], "tags_mode any does not find the card.")


@suite.check("RTFS-50")
async def by_query(probe: Prober) -> None:
    await _refused(probe, discovery_query="x")
    await _refused(probe, discovery_query={f"k{number}": 1 for number in range(33)})
    card = (await _some_cards(probe))[0]
    agent_id, name = card["agent_id"], str(card.get("name"))
    for query in ({"name": name.upper()}, {"name_contains": name[:4]}, {"agent_id": [agent_id, "other"]}):
        found = await _cards(probe, discovery_query=query, agent_id=agent_id)
        expect(_ids(found) == [agent_id], f"discovery_query {shorten(str(query))} does not find {agent_id}.")
    unknown = {"conformance.none": "x"}
    expect(await _cards(probe, discovery_query=unknown, agent_id=agent_id) == [], "An unknown path matches.")


@suite.check("RTFS-51")
async def limits_and_cursors(probe: Prober) -> None:
    for limit in (0, -1, "5"):
        await _refused(probe, capability_id="*", limit=limit)
    await _some_cards(probe)
    seen: list[Any] = []
    cursor: dict[str, Any] = {}
    for _ in range(limits.CONFORMANCE_PAGES):
        result = await _discover(probe, capability_id="*", limit=2, **cursor)
        cards = objects_in(result, "agents", "the result")
        expect(len(cards) <= 2, "More cards than `limit`.")
        seen += _ids(cards)
        if not result.get("next_cursor"):
            break
        expect(result["next_cursor"] != cursor.get("cursor"), "The cursor leads back to itself.")
        cursor = {"cursor": result["next_cursor"]}
    expect(len(seen) == len(set(map(str, seen))), "Pages repeat a card.")


@suite.check("RTFS-52")
async def registry_members(probe: Prober) -> None:
    shown = [card["registry"] for card in await _some_cards(probe) if "registry" in card]
    if not shown:
        raise not_offered("Cards carry nothing of the registry.")
    for member in shown:
        expect(isinstance(member, dict), "`registry` of a card is no object.")
        expires = member.get("expires_at") if isinstance(member, dict) else None
        expect(expires is None or find_instant(expires) is not None, f"expires_at is {shorten(str(expires))}.")


@suite.check("RTFS-53")
async def version_constraints(probe: Prober) -> None:
    for constraint in ("!=1.0", "1.0 foo", ">=1.x.y"):
        await _refused(probe, capability_id="*", version_constraint=constraint)
    await _some_cards(probe)
    await _cards(probe, capability_id="*", version_constraint=">=1.0 <2.0")


# --- Checks that register --------------------------------------------------------------------------


def _card(**members: Any) -> dict[str, Any]:
    number = secrets.token_hex(6)
    endpoint = {"protocol": "http-rest", "uri": f"https://conformance.invalid/{number}"}
    return {
        "agent_id": f"conformance-{number}",
        "name": "Conformance check",
        "version": "1.4.0",
        "description": "A throw-away agent of a conformance check.",
        "capabilities": [{"capability_id": f"check-{number}-v1.2", "description": "Is checked."}],
        "communication": {"protocols": ["http-rest"], "endpoints": [endpoint]},
        "discovery_tags": [f"conformance-{number}"],
        "metadata": {"conformance": number},
        **members,
    }


async def _write(probe: Prober, method: str, params: dict[str, Any]) -> dict[str, Any]:
    token = probe.places.get(f"rtfs.token.{params.get('agent_id') or params.get('agent_card', {}).get('agent_id')}")
    extra = {} if token is None else {"registration_token": token}
    answer = await probe.write("POST", str(probe.places[_PLACE]), _call(method, params | extra))
    answer.expect_status(200)
    response = answer.object()
    code = (response.get("error") or {}).get("code") if isinstance(response.get("error"), dict) else None
    if code in (-32003, -32008):
        raise Untestable("needs_token", f"{method} wants credentials, or others ({code}).")
    return response


async def _register(probe: Prober, card: dict[str, Any], **params: Any) -> dict[str, Any]:
    agent_id = card["agent_id"]
    if agent_id not in probe.places:
        probe.places[agent_id] = True
        probe.clean_up_by(lambda: _remove(probe, agent_id))
    result = _result(await _write(probe, _REGISTER, {"agent_card": card, **params}), "register")
    if isinstance(result.get("registration_token"), str):
        probe.places[f"rtfs.token.{agent_id}"] = result["registration_token"]
    return result


async def _remove(probe: Prober, agent_id: str) -> str:
    response = await _write(probe, _DEREGISTER, {"agent_id": agent_id})
    code = (response.get("error") or {}).get("code")
    return "" if "result" in response or code == _NOT_FOUND else f"{agent_id} is still registered: {code}."


@suite.check("RTFS-40", write=True)
async def register(probe: Prober) -> None:
    card = _card()
    result = await _register(probe, card, ttl_seconds=120)
    expect(result.get("status") == "registered", f"status is {shorten(str(result.get('status')))!r}.")
    expect(result.get("agent_id") == card["agent_id"], "The result names another agent.")
    expect(find_instant(result.get("expires_at")), "expires_at is no time.")
    found = await _cards(probe, agent_id=card["agent_id"])
    expect(found and found[0].get("capabilities") == card["capabilities"], "The card does not come back as registered.")
    broken = await _write(probe, _REGISTER, {"agent_card": {"name": "Conformance check"}})
    _expect_error(broken, _REGISTRATION_FAILED, "a card without agent_id")


@suite.check("RTFS-41", write=True)
async def lifetimes(probe: Prober) -> None:
    card = _card()
    for wanted, least, most in (
        (5, 5, 60),
        (120, 120, 120),
        (10_000_000, 3600, 86_400),
    ):  # the bounds are the registry's
        result = await _register(probe, card, ttl_seconds=wanted)
        granted = result.get("ttl_seconds")
        expect(
            isinstance(granted, int) and least <= granted <= most,
            f"ttl_seconds {wanted} grants {shorten(str(granted))}.",
        )
        ends = find_instant(result.get("expires_at")) or 0.0
        expect(
            abs(ends - time.time() - int(granted or 0)) < _SKEW_SECONDS,
            "expires_at is not now plus the granted lifetime.",
        )
    for wrong in (0, -5, "60", 1.5):
        response = await _write(probe, _REGISTER, {"agent_card": card, "ttl_seconds": wrong})
        _expect_error(response, _INVALID_PARAMS, f"ttl_seconds {wrong!r}")


@suite.check("RTFS-42", write=True)
async def replacement(probe: Prober) -> None:
    card = _card()
    await _register(probe, card, ttl_seconds=300)
    changed = {**card, "description": "Another text."}
    del changed["discovery_tags"]
    await _register(probe, changed, ttl_seconds=60)
    found = await _cards(probe, agent_id=card["agent_id"])
    expect(found and found[0].get("description") == "Another text.", "Registering again does not replace the card.")
    expect(not found[0].get("discovery_tags"), "The card is merged with the one before, not replaced.")


@suite.check("RTFS-43", write=True)
async def heartbeat(probe: Prober) -> None:
    card = _card()
    before = await _register(probe, card, ttl_seconds=60)
    response = await _write(probe, _HEARTBEAT, {"agent_id": card["agent_id"], "ttl_seconds": 600})
    if (response.get("error") or {}).get("code") == _UNKNOWN_METHOD:
        raise not_offered("There is no heartbeat.")
    result = _result(response, "heartbeat")
    expect(result.get("status") == "refreshed", f"status is {shorten(str(result.get('status')))!r}.")
    later = (find_instant(result.get("expires_at")) or 0) > (find_instant(before.get("expires_at")) or 0)
    expect(later, "The heartbeat does not extend the lifetime.")
    unknown = await _write(probe, _HEARTBEAT, {"agent_id": "conformance-unknown"})
    _expect_error(unknown, _NOT_FOUND, "a heartbeat of an unknown agent")


@suite.check("RTFS-44", write=True)
async def deregister(probe: Prober) -> None:
    card = _card()
    await _register(probe, card, ttl_seconds=60)
    _result(await _write(probe, _DEREGISTER, {"agent_id": card["agent_id"]}), "deregister")
    expect(await _cards(probe, agent_id=card["agent_id"]) == [], "A deregistered agent is still found.")
    again = _result(await _write(probe, _DEREGISTER, {"agent_id": card["agent_id"]}), "deregister, repeated")
    expect(again.get("already") is True, "Repeating deregister is not marked as already done.")
    unknown = await _write(probe, _DEREGISTER, {"agent_id": "conformance-unknown"})
    _expect_error(unknown, _NOT_FOUND, "deregister of an unknown agent")


@suite.check("RTFS-48", write=True)
async def version_suffixes(probe: Prober) -> None:
    card = _card()
    await _register(probe, card, ttl_seconds=60)
    capability = card["capabilities"][0]["capability_id"]
    for pattern in (
        capability,
        capability.removesuffix("-v1.2"),
        capability[:12] + "*",
        f"{card['agent_id']}/{capability}",
    ):
        found = await _cards(probe, capability_id=pattern)
        expect(_ids(found) == [card["agent_id"]], f"capability_id {pattern!r} does not find exactly its agent.")


@suite.check("RTFS-53", write=True)
async def matching_versions(probe: Prober) -> None:
    card = _card()
    await _register(probe, card, ttl_seconds=60)
    agent_id, capability = card["agent_id"], card["capabilities"][0]["capability_id"]
    expected = ((">=1.4.0 <2.0.0", True), ("^1.2", True), ("<1.4", False), ("2.x || 1.4.0", True))
    for constraint, matches in expected:
        found = await _cards(probe, agent_id=agent_id, version_constraint=constraint)
        expect(bool(found) is matches, f"{constraint!r} {'misses' if matches else 'matches'} the version 1.4.0.")
    found = await _cards(probe, capability_id=capability, version_constraint="~1.2")
    expect(_ids(found) == [agent_id], "'~1.2' misses the capability of version 1.2.")


_READER = "About the reader of RTFS text on the side of the agent or client."
_FORM = "About the form (discover-agents …) in a client."

suite.cannot_observe(
    {
        **{f"RTFS-{number}": _READER for number in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 20)},
        **{f"RTFS-{number}": _FORM for number in (60, 61, 62, 63)},
        "RTFS-45": "Needs an agent whose endpoint fails, and hours.",
    }
)

"""Checks of the announce and query protocol over HTTP and WebSocket, ANN-1 to ANN-61."""

from __future__ import annotations

import asyncio
import base64
import binascii
import re
import time
import uuid
from typing import Any, TypeAlias

import rfc8785
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519

from waypost import limits
from waypost.conformance.answer import ProbeAnswer, expect_object, expect_text, shorten
from waypost.conformance.prober import Prober, SocketProbe
from waypost.conformance.suite import Suite, Untestable, Violation, expect, no_data, not_offered
from waypost.errors import WaypostError
from waypost.model.json import parse_json
from waypost.model.times import to_rfc3339

SigningKey: TypeAlias = ed25519.Ed25519PrivateKey | ec.EllipticCurvePrivateKey

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[1-8][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", re.IGNORECASE)
_VERSION = re.compile(r"v\d+\.\d+")
_QUERY, _RESPONSE, _STATUS = 2, 3, 4
_SUBPROTOCOL = "agent-discovery"
_UNKNOWN = "00000000-0000-4000-8000-000000000000"
_NOBODY = {"protocol_version": "v1.0", "query": {"capability": "conformance-none"}}
_TTL_SECONDS = 60
_SHORTEST_TTL_SECONDS = 10


def _path(probe: Prober, rest: str = "") -> str:
    return f"{probe.target.path}/agents{rest}"


async def recognise(probe: Prober) -> str:
    """`GET /agents` is a list with a protocol version, or wants credentials and says so in the protocol's words."""
    answer = await probe.get(_path(probe) + "?limit=1")
    if answer.error or (answer.status == 200 and b'"protocol_version"' in answer.body):
        return f"{_path(probe)} lists announced agents."
    if b'"Err' in answer.body:
        return f"{_path(probe)} answers with the errors of the protocol."
    query = await probe.post(_path(probe), _NOBODY)
    if b'"protocol_version"' in query.body:
        return f"{_path(probe)} answers queries."
    raise not_offered(f"{_path(probe)} does not list announced agents.")


suite = Suite("announce", ("ann",), recognise)


def _error_code(answer: ProbeAnswer) -> str:
    error = answer.object().get("error")
    return str(error.get("code")) if isinstance(error, dict) else str(error)


def _expect_refusal(answer: ProbeAnswer, status: int, code: str) -> None:
    """A refusal as the protocol words it. 401 and 403 are verdicts here, if the protocol asks for them."""
    answer.expect_answer()
    if answer.status != status:
        answer.expect_access()
    expect(answer.status == status, f"{answer.name} answered {answer.status}, expected {status}.")
    found = _error_code(answer)
    expect(found == code, f"{answer.name} answered with the error {shorten(found)}, expected {code}.")


async def _listed(probe: Prober, query: str = "?limit=200") -> list[dict[str, Any]]:
    answer = await probe.get(_path(probe) + query)
    answer.expect_status(200)
    return answer.objects("agents")


async def _some(probe: Prober) -> list[dict[str, Any]]:
    responses = [row for row in await _listed(probe) if isinstance(row.get("agent"), dict)]
    if not responses:
        raise no_data("The list shows no agent.")
    return responses


async def _asked(probe: Prober, query: dict[str, Any]) -> list[dict[str, Any]]:
    answer = await probe.post(_path(probe), {"protocol_version": "v1.0", "query": query})
    answer.expect_status(200)
    return answer.objects("agents")


def _agent_id(response: dict[str, Any]) -> str:
    agent = response.get("agent")
    return str(agent.get("agent_id")) if isinstance(agent, dict) else ""


@suite.check("ANN-1")
async def ids(probe: Prober) -> None:
    found = [_agent_id(response) for response in await _some(probe)]
    for agent_id in found:
        expect(_UUID.fullmatch(agent_id), f"The agent_id {shorten(agent_id)!r} is no UUID.")
    expect(len({agent_id.lower() for agent_id in found}) == len(found), "An agent_id is listed twice.")


@suite.check("ANN-5")
async def kinds_by_shape(probe: Prober) -> None:
    answer = await probe.post(_path(probe), _NOBODY)
    answer.expect_status(200)
    expect(answer.objects("agents") == [], "A capability that nobody has finds agents.")


@suite.check("ANN-6")
async def queries(probe: Prober) -> None:
    expect(await _asked(probe, {"capability": "conformance-none"}) == [], "An unknown capability finds agents.")
    response = next((row for row in await _some(probe) if row["agent"].get("capabilities")), None)
    if response is None:
        raise no_data("No agent has a capability.")
    capability, agent_id = next(iter(response["agent"]["capabilities"])), _agent_id(response)
    for row in await _asked(probe, {"capability": capability}):
        held = row.get("agent", {}).get("capabilities") or {}
        expect(capability in held, f"The query for {shorten(capability)!r} finds {_agent_id(row)}, which lacks it.")
    found = [_agent_id(row) for row in await _asked(probe, {"capability": "*", "agent_id": agent_id})]
    expect(found == [agent_id], f"The query for the agent {agent_id} does not find it alone.")
    both = {"capability": "conformance-none", "agent_id": agent_id}
    expect(await _asked(probe, both) == [], "capability and agent_id are not combined by AND.")


@suite.check("ANN-7")
async def responses(probe: Prober) -> None:
    for response in await _some(probe):
        where = f"the response for {_agent_id(response)}"
        expect(_VERSION.fullmatch(str(response.get("protocol_version"))), f"{where} has no protocol_version.")
        expect(response.get("matched") is True, f"`matched` of {where} is not true.")
        agent = expect_object(response, "agent", where)
        expect_object(agent, "capabilities", where)
        expect_text(expect_object(agent, "transport", where), "type", "endpoint", where=f"transport of {where}")


@suite.check("ANN-3", "ANN-10", "ANN-11")
async def listed_signatures(probe: Prober) -> None:
    signed = [row for row in await _some(probe) if isinstance(row.get("signature"), str)]
    judged = [_verify(row["agent"], row["signature"]) for row in signed]
    if not any(result is not None for result in judged):
        raise no_data("No agent in the list has an Ed25519 or ECDSA signature.")
    for row, result in zip(signed, judged, strict=True):
        expect(result is not False, f"The signature of {_agent_id(row)} does not verify over its canonical JSON.")


def _verify(agent: dict[str, Any], signature: str) -> bool | None:
    """Whether a signature verifies with the key of the agent; None if the key is of another kind."""
    try:
        key = serialization.load_pem_public_key(str(agent.get("public_key")).encode())
        data, content = base64.b64decode(signature + "==", altchars=None), rfc8785.dumps(agent)
    except (ValueError, binascii.Error, rfc8785.CanonicalizationError):
        return None
    try:
        if isinstance(key, ed25519.Ed25519PublicKey):
            key.verify(data, content)
        elif isinstance(key, ec.EllipticCurvePublicKey) and key.curve.name == "secp256r1" and len(data) != 64:
            key.verify(data, content, ec.ECDSA(hashes.SHA256()))
        else:
            return None
    except InvalidSignature:
        return False
    return True


@suite.check("ANN-23")
async def revocations(probe: Prober) -> None:
    answer = await probe.get(_path(probe, "/revocations"))
    if answer.status == 404:
        raise not_offered("No list of revoked keys is served.")
    answer.expect_status(200)
    revoked = {str(row.get("agent_id")) for row in answer.objects("revoked") if row.get("agent_id")}
    listed = {_agent_id(row) for row in await _listed(probe)}
    expect(not revoked & listed, "A revoked agent is listed.")


@suite.check("ANN-34")
async def lists(probe: Prober) -> None:
    _expect_refusal(await probe.get(_path(probe, f"/{_UNKNOWN}")), 404, "ErrNotFound")
    answer = await probe.get(_path(probe) + "?limit=1")
    answer.expect_status(200)
    tag = answer.header("etag")
    if tag is not None:
        (await probe.get(_path(probe) + "?limit=1", if_none_match=tag)).expect_status(304)
    await _walk(probe)
    response = (await _some(probe))[0]
    one = await probe.get(_path(probe, f"/{_agent_id(response)}"))
    one.expect_status(200)
    expect(one.object().get("agent") == response["agent"], "One agent differs from its entry in the list.")


async def _walk(probe: Prober) -> None:
    """Pages do not repeat agents, and cursors do not lead back."""
    seen: list[str] = []
    cursors: set[str] = set()
    query = "?limit=2"
    for _ in range(limits.CONFORMANCE_PAGES):
        answer = await probe.get(_path(probe) + query)
        answer.expect_status(200)
        rows = answer.objects("agents")
        expect(len(rows) <= 2, "More agents than `limit`.")
        seen += map(_agent_id, rows)
        cursor = answer.object().get("next_cursor")
        if not cursor:
            break
        expect(cursor not in cursors, "A cursor leads back to a page that was read.")
        cursors.add(cursor)
        query = f"?limit=2&cursor={cursor}"
    expect(len(seen) == len(set(seen)), "Pages repeat an agent.")


@suite.check("ANN-50")
async def other_major(probe: Prober) -> None:
    answer = await probe.post(_path(probe), {**_NOBODY, "protocol_version": "v9.0"})
    _expect_refusal(answer, 400, "ErrUnsupportedVersion")
    supported = str(answer.object().get("supported") or answer.object().get("protocol_version"))
    expect("v1." in supported, "The refusal does not name the own version.")


@suite.check("ANN-51")
async def other_minor(probe: Prober) -> None:
    answer = await probe.post(_path(probe), {**_NOBODY, "protocol_version": "v1.7"})
    answer.expect_status(200)
    for version in ("1.0", "v1"):
        refused = await probe.post(_path(probe), {**_NOBODY, "protocol_version": version})
        _expect_refusal(refused, 400, "ErrMalformedPayload")


@suite.check("ANN-36")
async def websocket(probe: Prober) -> None:
    async with probe.socket(f"{probe.target.path}/ws", subprotocol=_SUBPROTOCOL) as socket:
        if socket.status == 404:
            raise not_offered("There is no WebSocket at /ws.")
        socket.require_open()
        expect(socket.connection.subprotocol == _SUBPROTOCOL, "The subprotocol agent-discovery is not confirmed.")
        await _send(socket, _QUERY, {**_NOBODY, "query_id": "q-none"})
        status = await _next(socket, _STATUS)
        expect(
            status.get("status") == "done" and status.get("count") == 0,
            "A query without a match does not end with count 0.",
        )
        await _send(socket, _QUERY, {"protocol_version": "v1.0", "query": {"capability": "*"}, "query_id": "q-all"})
        await _read_responses(socket)


async def _read_responses(socket: SocketProbe) -> None:
    for _ in range(limits.CONFORMANCE_MESSAGES - 1):
        kind, message = await _receive(socket)
        if kind == _STATUS:
            expect(message.get("status") == "done", f"The query ends with {shorten(str(message), 200)}.")
            return
        expect(kind == _RESPONSE, f"A message of the type {kind} answers a query.")
        expect(message.get("matched") is True, "A response does not match.")
        expect(message.get("query_id") == "q-all", "A response names another query.")


async def _send(socket: SocketProbe, kind: int, message: dict[str, Any]) -> None:
    await socket.send(bytes([kind]) + rfc8785.dumps(message))


async def _receive(socket: SocketProbe) -> tuple[int, dict[str, Any]]:
    data = await socket.receive()
    if socket.close_code in (4401, 4403):
        raise Untestable("needs_token", f"The WebSocket was closed with {socket.close_code}: credentials are needed.")
    expect(data is not None, f"The WebSocket gave no answer ({socket.error or socket.close_code}).")
    expect(isinstance(data, bytes) and data, "The answer is a text frame, or empty.")
    content = data if isinstance(data, bytes) else b""
    try:
        message = parse_json(content[1:], max_bytes=limits.MIB, any_length=True)
    except WaypostError as error:
        raise Violation(f"The message after the type byte is not JSON: {shorten(error.message)}") from None
    expect(isinstance(message, dict), "The message is no object.")
    return content[0], message


async def _next(socket: SocketProbe, wanted: int) -> dict[str, Any]:
    kind, message = await _receive(socket)
    if message.get("code") in ("ErrAuth", "ErrForbidden"):
        raise Untestable("needs_token", "The WebSocket wants credentials, or others.")
    expect(kind == wanted, f"A message of the type {kind} came, expected {wanted}.")
    return message


@suite.check("ANN-37")
async def heartbeats(probe: Prober) -> None:
    async with probe.socket(f"{probe.target.path}/ws", subprotocol=_SUBPROTOCOL) as socket:
        if socket.status == 404:
            raise not_offered("There is no WebSocket at /ws.")
        socket.require_open()
        expect(await socket.ping(), "A ping was not answered.")
        await socket.send(bytes([_QUERY]) + b"{")
        data = await socket.receive()
        if data is None:
            expect(socket.close_code in (4400, 4401, 4403), f"A malformed message closed with {socket.close_code}.")
        else:
            expect(b"Err" in (data if isinstance(data, bytes) else data.encode()), "A malformed message gave no error.")


@suite.check("ANN-60")
async def credentials(probe: Prober) -> None:
    if probe.target.scheme == "http" and not probe.target.is_loopback:
        raise Violation("Announcements travel without TLS.")
    answer = await probe.get(_path(probe) + "?limit=1", anonymous=True)
    answer.expect_answer()
    if answer.status == 401:
        challenge = answer.header("www-authenticate") or ""
        expect("bearer" in challenge.lower(), "The 401 has no WWW-Authenticate: Bearer.")
    elif probe.target.is_loopback:
        raise Untestable("needs_tls", "A service on this machine that everybody may read.")
    else:
        expect(answer.status == 403, f"A reader without credentials was answered {answer.status}.")


# --- Checks that announce --------------------------------------------------------------------------


def _make_key() -> SigningKey:
    return ed25519.Ed25519PrivateKey.generate()


def _pem(key: SigningKey) -> str:
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return key.public_key().public_bytes(serialization.Encoding.PEM, form).decode()


def _sign(key: SigningKey, agent: dict[str, Any]) -> str:
    content = rfc8785.dumps(agent)
    if isinstance(key, ed25519.Ed25519PrivateKey):
        return base64.b64encode(key.sign(content)).decode()
    return base64.b64encode(key.sign(content, ec.ECDSA(hashes.SHA256()))).decode()


def _agent(key: SigningKey, **members: Any) -> dict[str, Any]:
    agent_id = str(members.pop("agent_id", uuid.uuid4()))
    return {
        "agent_id": agent_id,
        "agent_name": f"conformance-{agent_id[:8]}",
        "capabilities": {f"conformance-{agent_id[:8]}": "1.0"},
        "public_key": _pem(key),
        "transport": {"type": "http", "endpoint": f"https://conformance.invalid/{agent_id}"},
        "metadata": {"__seq": time.time_ns() // 1_000_000, "__iat": to_rfc3339(time.time())},
        **members,
    }


def _announcement(key: SigningKey, agent: dict[str, Any], **members: Any) -> dict[str, Any]:
    message = {"protocol_version": "v1.0", "agent": agent, "ttl": _TTL_SECONDS, "signature": _sign(key, agent)}
    return {name: value for name, value in (message | members).items() if value is not None}


async def _post(probe: Prober, message: dict[str, Any] | bytes, agent_id: str) -> ProbeAnswer:
    """Announce. Whatever the answer is, the agent is removed at the end."""
    if agent_id not in probe.places:
        probe.places[agent_id] = True
        probe.clean_up_by(lambda: _remove(probe, agent_id))
    return await probe.write("POST", _path(probe), message)


async def _remove(probe: Prober, agent_id: str) -> str:
    answer = await probe.write("DELETE", _path(probe, f"/{agent_id}"))
    return "" if answer.status in (200, 204, 404, 410) else f"{answer.name} answered {answer.status or answer.error}."


async def _announce(probe: Prober, key: SigningKey, agent: dict[str, Any], **members: Any) -> ProbeAnswer:
    answer = await _post(probe, _announcement(key, agent, **members), agent["agent_id"])
    if answer.status == 403:
        raise Untestable("needs_token", "The allow-list does not admit the agent: give the token of an admin.")
    answer.expect_status(200, 201)
    return answer


async def _refused(probe: Prober, message: dict[str, Any] | bytes, agent_id: str, *, status: int, code: str) -> None:
    await _admitted(probe)
    _expect_refusal(await _post(probe, message, agent_id), status, code)


async def _admitted(probe: Prober) -> None:
    """A correct announcement is accepted: only then a refusal tells something. Judged once."""
    if "announce.admitted" not in probe.places:
        key = _make_key()
        await _announce(probe, key, _agent(key))
        probe.places["announce.admitted"] = True


@suite.check("ANN-1", write=True)
async def malformed_ids(probe: Prober) -> None:
    key = _make_key()
    agent = _agent(key, agent_id="conformance")
    await _refused(probe, _announcement(key, agent), "conformance", status=400, code="ErrMalformedPayload")


@suite.check("ANN-2", write=True)
async def capabilities_are_required(probe: Prober) -> None:
    key = _make_key()
    agent = _agent(key)
    del agent["capabilities"]
    await _refused(probe, _announcement(key, agent), agent["agent_id"], status=400, code="ErrMalformedPayload")


@suite.check("ANN-3", write=True)
async def broken_signatures(probe: Prober) -> None:
    key = _make_key()
    agent = _agent(key)
    message = _announcement(key, agent, signature=_sign(_make_key(), agent))
    await _refused(probe, message, agent["agent_id"], status=401, code="ErrAuth")


@suite.check("ANN-4", write=True)
async def unknown_members(probe: Prober) -> None:
    key = _make_key()
    agent = _agent(key, conformance={"deep": [1, "é"]})
    await _announce(probe, key, agent)
    answer = await probe.get(_path(probe, f"/{agent['agent_id']}"), fresh=True)
    answer.expect_status(200)
    expect(answer.object().get("agent") == agent, "Unknown members of the agent are lost.")
    other = _agent(key)
    text = rfc8785.dumps(_announcement(key, other)).replace(b'"agent":', b'"agent":{},"agent":', 1)
    await _refused(probe, text, other["agent_id"], status=400, code="ErrMalformedPayload")


@suite.check("ANN-7", write=True)
async def signatures_are_repeated(probe: Prober) -> None:
    key = _make_key()
    agent = _agent(key)
    message = _announcement(key, agent)
    await _announce(probe, key, agent)
    answer = await probe.get(_path(probe, f"/{agent['agent_id']}"), fresh=True)
    answer.expect_status(200)
    response = answer.object()
    expect(response.get("agent") == agent, "The agent comes back altered.")
    expect(response.get("signature") == message["signature"], "The signature does not come back verbatim.")


@suite.check("ANN-8", write=True)
async def unsigned_members_are_advisory(probe: Prober) -> None:
    key = _make_key()
    await _announce(probe, key, _agent(key), timestamp="1970-01-01T00:00:00Z", schema_version=1)


@suite.check("ANN-10", write=True)
async def unsigned_announcements(probe: Prober) -> None:
    key = _make_key()
    agent = _agent(key)
    await _refused(probe, _announcement(key, agent, signature=None), agent["agent_id"], status=401, code="ErrAuth")


@suite.check("ANN-11", write=True)
async def canonical_json(probe: Prober) -> None:
    key = _make_key()
    metadata = {
        "__seq": time.time_ns() // 1_000_000,
        "__iat": to_rfc3339(time.time()),
        "load": 1.5,
        "é": "\u20ac\n",
        "B": 1,
        "a": 2,
    }
    await _announce(probe, key, _agent(key, metadata=metadata))


@suite.check("ANN-12", write=True)
async def key_decides_algorithm(probe: Prober) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    await _announce(probe, key, _agent(key), alg="none")


@suite.check("ANN-13", write=True)
async def size_first(probe: Prober) -> None:
    await _admitted(probe)
    text = b'{"protocol_version":"v1.0","agent":' + b" " * 20_000 + b"{"
    _expect_refusal(await _post(probe, text, _UNKNOWN), 413, "ErrTooLarge")


@suite.check("ANN-20", "ANN-35", write=True)
async def pinned_keys(probe: Prober) -> None:
    first, second = _make_key(), _make_key()
    agent = _agent(first)
    await _announce(probe, first, agent)
    again = _agent(first, agent_id=agent["agent_id"], capabilities={"conformance-again": "1.0"})
    again["metadata"]["__seq"] = agent["metadata"]["__seq"] + 1
    await _announce(probe, first, again)
    stolen = _agent(second, agent_id=agent["agent_id"])
    stolen["metadata"]["__seq"] = agent["metadata"]["__seq"] + 2
    message = _announcement(second, stolen)
    await _refused(probe, message, agent["agent_id"], status=409, code="ErrDuplicateID")


@suite.check("ANN-22", write=True)
async def rotation(probe: Prober) -> None:
    first, second = _make_key(), _make_key()
    agent = _agent(first)
    await _announce(probe, first, agent)
    rotated = _agent(second, agent_id=agent["agent_id"])
    rotated["metadata"]["__seq"] = agent["metadata"]["__seq"] + 1
    await _announce(probe, second, rotated, previous_signature=_sign(first, rotated))


@suite.check("ANN-33", write=True)
async def coalesced(probe: Prober) -> None:
    key = _make_key()
    agent = _agent(key)
    await _announce(probe, key, agent)
    again = await _announce(probe, key, agent)
    if again.body.strip():
        expect(again.object().get("coalesced") in (True, None), "An identical announcement is not coalesced.")
    found = [_agent_id(row) for row in await _asked(probe, {"capability": next(iter(agent["capabilities"]))})]
    expect(found == [agent["agent_id"]], f"One agent, announced twice, is found {len(found)} times.")


@suite.check("ANN-41", write=True)
async def lifetime(probe: Prober) -> None:
    key = _make_key()
    agent = _agent(key)
    await _announce(probe, key, agent, ttl=_SHORTEST_TTL_SECONDS)
    path = _path(probe, f"/{agent['agent_id']}")
    (await probe.get(path, fresh=True)).expect_status(200)
    for _ in range(int(limits.CONFORMANCE_EXPIRY_SECONDS)):
        await asyncio.sleep(1)
        if (await probe.get(path, fresh=True)).status in (404, 410):
            return
    raise Violation(f"An agent with a ttl of 10 s is still listed after {limits.CONFORMANCE_EXPIRY_SECONDS:g} s.")


@suite.check("ANN-60", write=True)
async def writes_need_credentials(probe: Prober) -> None:
    key = _make_key()
    agent = _agent(key)
    agent_id = agent["agent_id"]
    probe.clean_up_by(lambda: _remove(probe, agent_id))
    answer = await probe.write("POST", _path(probe), _announcement(key, agent), anonymous=True)
    answer.expect_answer()
    reading = await probe.get(_path(probe) + "?limit=1", anonymous=True)
    if answer.status == reading.status == 200 and probe.target.is_loopback:
        raise Untestable("needs_tls", "A service on this machine without authentication.")
    expect(answer.status in (401, 403), f"An announcement without credentials was answered {answer.status}.")


@suite.check("ANN-36", write=True)
async def announce_by_websocket(probe: Prober) -> None:
    await _admitted(probe)
    key = _make_key()
    agent = _agent(key)
    agent_id = agent["agent_id"]
    probe.clean_up_by(lambda: _remove(probe, agent_id))
    async with probe.socket(f"{probe.target.path}/ws", subprotocol=_SUBPROTOCOL) as socket:
        if socket.status == 404:
            raise not_offered("There is no WebSocket at /ws.")
        socket.require_open()
        await _send(socket, 1, _announcement(key, agent))
        status = await _next(socket, _STATUS)
        expect(status.get("status") == "done", f"The announcement ends with {shorten(str(status), 200)}.")
    answer = await probe.get(_path(probe, f"/{agent_id}"), fresh=True)
    answer.expect_status(200)
    expect(answer.object().get("agent") == agent, "The agent comes back altered.")


_LAN = "Not over HTTP: `waypost browse` and `waypost announce` speak it."

suite.cannot_observe(
    {
        "ANN-21": "Needs an identity that the allow-list does not admit.",
        "ANN-30": _LAN,
        "ANN-31": _LAN,
        "ANN-32": _LAN,
        "ANN-38": "A bus, not HTTP.",
        "ANN-39": _LAN,
        "ANN-40": "About clients.",
        "ANN-61": "What else a listener serves depends on its deployment.",
    }
)

"""Checks of the Agent Discovery Protocol: the metadata document, the page, AGP and the HTTP endpoints, ADP-1 to ADP-57."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import json
import re
import secrets
import ssl
import time
import uuid
from html.parser import HTMLParser
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from waypost import limits
from waypost.conformance.answer import ProbeAnswer, expect_object, expect_text, expect_texts, objects_in, shorten
from waypost.conformance.prober import Prober, SocketProbe
from waypost.conformance.suite import Suite, Untestable, Violation, expect, not_offered
from waypost.errors import WaypostError
from waypost.model.json import parse_json
from waypost.model.times import to_rfc3339

_WELL_KNOWN = "/.well-known/agent.json"
_MEDIA_TYPE = "application/vnd.adp+json"
_PREFIX = "ed25519:"
_FINGERPRINT = re.compile(r"ed25519:[A-Za-z0-9_-]{43}")
_SIGNATURE = re.compile(r"ed25519:[A-Za-z0-9_-]{86}")
_SELF = "agent:conformance.invalid"
_STALE_SECONDS = 400.0
_AHEAD_SECONDS = 120.0
_TASK_SECONDS = 10
_LD_JSON = "application/ld+json"


async def recognise(probe: Prober) -> str:
    """The well-known document says that it is ADP."""
    answer = await probe.get(probe.target.path + _WELL_KNOWN)
    if answer.error or (answer.status == 200 and (b"ADP/" in answer.body or answer.media_type == _MEDIA_TYPE)):
        return f"{_WELL_KNOWN} answers."
    raise not_offered(f"{_WELL_KNOWN} is no ADP document.")


suite = Suite("adp", (), recognise)


async def _answer(probe: Prober) -> ProbeAnswer:
    answer = await probe.get(probe.target.path + _WELL_KNOWN)
    answer.expect_status(200)
    return answer


async def _document(probe: Prober) -> dict[str, Any]:
    return (await _answer(probe)).object()


async def _identity(probe: Prober) -> dict[str, Any]:
    return expect_object(await _document(probe), "identity", "the document")


async def _endpoint(probe: Prober, name: str) -> str:
    """The path of an endpoint at this origin."""
    url = expect_object(await _document(probe), "endpoints", "the document").get(name)
    if not isinstance(url, str):
        raise not_offered(f"The document names no {name} endpoint.")
    path = probe.target.find_path(url)
    if path is None:
        raise Untestable("not_observable", f"endpoints.{name} is at another origin: {shorten(url)}.")
    return path


@suite.check("ADP-21")
async def served(probe: Prober) -> None:
    await _document(probe)


@suite.check("ADP-22")
async def media_type(probe: Prober) -> None:
    found = (await _answer(probe)).media_type
    expect(found in (_MEDIA_TYPE, "application/json"), f"The document is served as {shorten(found)}.")


@suite.check("ADP-24")
async def required_members(probe: Prober) -> None:
    document = await _document(probe)
    protocol = document.get("protocol")
    expect(protocol in ("ADP/1.1", "ADP/1.0"), f"`protocol` is {shorten(str(protocol))!r}.")
    for member in ("identity", "endpoints"):
        expect_object(document, member, "the document")
    objects_in(document, "capabilities", "the document")


@suite.check("ADP-25")
async def identity(probe: Prober) -> None:
    found = await _identity(probe)
    expect_text(found, "id", "domain", "name", where="identity")
    expect_object(found, "publicKey", "identity")
    expect(
        found["id"] == f"agent:{found['domain']}", f"identity.id is {shorten(found['id'])}, not agent: and the domain."
    )


@suite.check("ADP-26")
async def public_key(probe: Prober) -> None:
    key = expect_object(await _identity(probe), "publicKey", "identity")
    expect(key.get("algorithm") == "ed25519", f"algorithm is {shorten(str(key.get('algorithm')))!r}.")
    fingerprint = str(key.get("fingerprint"))
    expect(_FINGERPRINT.fullmatch(fingerprint), f"The fingerprint {shorten(fingerprint)} is not of 43 characters.")
    if key.get("full") is not None:
        expect(_fingerprint(_raw_key(key["full"])) == fingerprint, "The full key does not hash to the fingerprint.")


def _raw_key(full: Any) -> bytes:
    """The 32 bytes of a key in one of its three spellings: PEM, raw or SPKI in base64url."""
    text = str(full)
    try:
        if "BEGIN" in text:
            key = serialization.load_pem_public_key(text.encode())
        else:
            data = base64.urlsafe_b64decode(text.removeprefix(_PREFIX) + "==")
            key = (
                Ed25519PublicKey.from_public_bytes(data) if len(data) == 32 else serialization.load_der_public_key(data)
            )
    except (ValueError, binascii.Error):
        raise Violation("publicKey.full cannot be read as a key.") from None
    expect(isinstance(key, Ed25519PublicKey), "publicKey.full is no Ed25519 key.")
    return key.public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw) if key else b""


def _fingerprint(raw: bytes) -> str:
    return _PREFIX + base64.urlsafe_b64encode(hashlib.sha256(raw).digest()).decode().rstrip("=")


@suite.check("ADP-27")
async def endpoints(probe: Prober) -> None:
    found = expect_object(await _document(probe), "endpoints", "the document")
    expect_text(found, "wellKnown", where="endpoints")
    for name, url in found.items():
        expect(isinstance(url, str) and "://" in url, f"endpoints.{shorten(name)} is no URL.")
    path = probe.target.find_path(found["wellKnown"])
    if path is not None:
        expect(path == probe.target.path + _WELL_KNOWN, f"endpoints.wellKnown is {shorten(found['wellKnown'])}.")


@suite.check("ADP-28")
async def capabilities(probe: Prober) -> None:
    for row in objects_in(await _document(probe), "capabilities", "the document"):
        expect_text(row, "id", "name", where="a capability")
        for member in ("input", "output", "interfaces", "languages"):
            if member in row:
                expect_texts(row, member, f"the capability {row['id']}")


@suite.check("ADP-29")
async def security(probe: Prober) -> None:
    document = await _document(probe)
    if "security" not in document:
        raise not_offered("The document has no `security`.")
    found = expect_object(document, "security", "the document")
    expect(found.get("tlsRequired") is True, "security.tlsRequired is not true.")
    expect("pubkey" in expect_texts(found, "authMethods", "security"), "security.authMethods lacks pubkey.")


class _PageReader(HTMLParser):
    """Collects what ADP looks for in a page."""

    def __init__(self) -> None:
        super().__init__()
        self.elements: set[str] = set()
        self.meta: dict[str, str] = {}
        self.scripts: list[str] = []
        self._is_in_script = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.elements.add(tag)
        if tag == "meta" and "name" in values:
            self.meta[values["name"]] = values.get("content", "")
        if tag == "script" and values.get("type") == _LD_JSON:
            self._is_in_script = True
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self._is_in_script = self._is_in_script and tag != "script"

    def handle_data(self, data: str) -> None:
        if self._is_in_script:
            self.scripts[-1] += data


async def _page(probe: Prober) -> _PageReader:
    answer = await probe.get(f"{probe.target.path}/", accept="text/html")
    answer.expect_status(200)
    expect(answer.media_type == "text/html", f"{answer.name} answered as {answer.media_type}.")
    reader = _PageReader()
    reader.feed(answer.body.decode("utf-8", "replace"))
    return reader


@suite.check("ADP-32")
async def page(probe: Prober) -> None:
    await _page(probe)


@suite.check("ADP-33")
async def page_metadata(probe: Prober) -> None:
    document = await _document(probe)
    for script in (await _page(probe)).scripts:
        try:
            found = parse_json(script.encode("utf-8", "replace"), max_bytes=limits.CONFORMANCE_ANSWER_BYTES)
        except WaypostError:
            continue
        if isinstance(found, dict) and str(found.get("protocol", "")).startswith("ADP/"):
            for member in ("protocol", "identity", "endpoints", "capabilities"):
                expect(found.get(member) == document.get(member), f"`{member}` on the page differs from the document.")
            return
    raise Violation("The page has no script of the type application/ld+json with the metadata.")


@suite.check("ADP-34")
async def page_meta(probe: Prober) -> None:
    meta = (await _page(probe)).meta
    expect(meta.get("agent-id") == (await _identity(probe)).get("id"), "The meta tag agent-id is not the id.")
    expect(str(meta.get("agent-protocol")).startswith("ADP/"), "There is no meta tag agent-protocol.")


@suite.check("ADP-35")
async def page_elements(probe: Prober) -> None:
    expect("agent-card" in (await _page(probe)).elements, "The page has no element agent-card.")


# --- AGP -------------------------------------------------------------------------------------------


def _message(
    key: Ed25519PrivateKey, to: str, kind: str, content: str, *, at: float | None = None, **members: str
) -> str:
    message = {
        "id": str(uuid.uuid4()),
        "from": _SELF,
        "to": to,
        "type": kind,
        "timestamp": to_rfc3339(time.time() if at is None else at),
        **members,
    }
    data = _signing_input(message, content)
    message["signature"] = _PREFIX + base64.urlsafe_b64encode(key.sign(data)).decode().rstrip("=")
    return json.dumps(message | {"body": {"content": content, "contentType": "application/json"}})


def _signing_input(message: dict[str, Any], content: str) -> bytes:
    return "\n".join(
        [*(str(message.get(name)) for name in ("id", "from", "to", "type", "timestamp")), content]
    ).encode()


def _hello(key: Ed25519PrivateKey, nonce: str) -> str:
    raw = key.public_key().public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
    fields = {
        "action": "hello",
        "protocol": "ADP/1.1",
        "agent": _SELF,
        "fingerprint": _fingerprint(raw),
        "nonce": nonce,
    }
    return json.dumps(fields)


async def _converse(probe: Prober, first: str) -> tuple[dict[str, Any] | None, SocketProbe]:
    """Send one message on a new connection; return the answer, and the socket with its close code."""
    path = await _endpoint(probe, "chat")
    async with probe.socket(path, subprotocol="adp-v1") as socket:
        socket.require_open()
        await socket.send(first)
        frame = await socket.receive()
        if frame is None:
            return None, socket
        content = frame if isinstance(frame, bytes) else frame.encode()
        try:
            message = parse_json(content, max_bytes=limits.MIB)
        except WaypostError as error:
            raise Violation(f"The first message is not JSON: {shorten(error.message)}") from None
        expect(isinstance(message, dict), "The first message is no object.")
        return message, socket


async def _greet(probe: Prober) -> tuple[dict[str, Any], str]:
    """The answer to a hello of an agent that nobody knows, and the nonce that was sent."""
    if "adp.greeting" not in probe.places:
        key, nonce = Ed25519PrivateKey.generate(), secrets.token_urlsafe(18)
        agent = str((await _identity(probe)).get("id"))
        message, socket = await _converse(probe, _message(key, agent, "system", _hello(key, nonce)))
        if message is None:
            closed = f"The hello was answered by closing ({socket.close_code or socket.error})."
            expect(socket.close_code is not None, f"The hello got no answer: {socket.error}.")
            raise Untestable("needs_token", closed)
        probe.places["adp.greeting"] = (message, nonce, probe.last_answer())
        return message, nonce
    greeting: dict[str, Any]
    greeting, sent, evidence = probe.places["adp.greeting"]
    probe.record(evidence)
    return greeting, str(sent)


def _content(message: dict[str, Any]) -> dict[str, Any]:
    body = message.get("body")
    text = body.get("content") if isinstance(body, dict) else None
    try:
        value = parse_json(str(text).encode(), max_bytes=limits.MIB)
    except WaypostError:
        return {}
    return value if isinstance(value, dict) else {}


@suite.check("ADP-36")
async def chat(probe: Prober) -> None:
    async with probe.socket(await _endpoint(probe, "chat"), subprotocol="adp-v1") as socket:
        socket.require_open()


@suite.check("ADP-37")
async def secure_chat(probe: Prober) -> None:
    url = expect_object(await _document(probe), "endpoints", "the document").get("chat")
    if not isinstance(url, str):
        raise not_offered("The document names no chat endpoint.")
    if url.startswith("ws:") and probe.target.is_loopback:
        raise Untestable("needs_tls", "A plain HTTP address on this machine.")
    expect(url.startswith("wss:"), f"endpoints.chat is {shorten(url)}.")


@suite.check("ADP-38")
async def hello_comes_first(probe: Prober) -> None:
    key = Ed25519PrivateKey.generate()
    agent = str((await _identity(probe)).get("id"))
    message, socket = await _converse(probe, _message(key, agent, "chat", "Good morning."))
    is_refused = message is None or _content(message).get("action") == "error"
    expect(is_refused, "A chat message before the hello was not refused.")
    expect(
        message is not None or socket.close_code is not None,
        f"A message before the hello got no answer: {socket.error}.",
    )


@suite.check("ADP-39")
async def hello_is_answered(probe: Prober) -> None:
    message, nonce = await _greet(probe)
    content = _content(message)
    if content.get("action") == "error":
        raise Untestable("needs_token", f"The service refuses an agent that it does not know ({content.get('code')}).")
    expect(content.get("action") == "hello" or message.get("type") == "hello", "A hello is not answered by a hello.")
    stated = expect_object(await _identity(probe), "publicKey", "identity").get("fingerprint")
    expect(content.get("fingerprint") == stated, "The hello has another fingerprint than the document.")
    expect(content.get("echo") in (nonce, None), "The hello echoes another nonce.")


@suite.check("ADP-40")
async def unknown_peers(probe: Prober) -> None:
    content = _content((await _greet(probe))[0])
    if content.get("action") != "error":
        raise Untestable(
            "not_observable",
            "The service greets an agent whose key it cannot know; the trust that it gives is not shown.",
        )
    known = ("unknown_peer", "fingerprint_mismatch", "not_authorized")
    expect(content.get("code") in known, f"An unknown agent is refused with {shorten(str(content.get('code')))!r}.")


@suite.check("ADP-41", "ADP-42", "ADP-43")
async def signed_messages(probe: Prober) -> None:
    message, _ = await _greet(probe)
    signature = message.get("signature")
    expect(
        isinstance(signature, str) and _SIGNATURE.fullmatch(signature), f"The signature is {shorten(str(signature))}."
    )
    body = expect_object(message, "body", "the message")
    raw = _raw_key(expect_object(await _identity(probe), "publicKey", "identity").get("full"))
    data = base64.urlsafe_b64decode(str(signature).removeprefix(_PREFIX) + "==")
    try:
        Ed25519PublicKey.from_public_bytes(raw).verify(data, _signing_input(message, str(body.get("content", ""))))
    except InvalidSignature:
        raise Violation("The signature does not verify with the key of the document.") from None


@suite.check("ADP-49")
async def freshness(probe: Prober) -> None:
    agent = str((await _identity(probe)).get("id"))
    for offset in (-_STALE_SECONDS, _AHEAD_SECONDS):
        key = Ed25519PrivateKey.generate()
        text = _message(key, agent, "system", _hello(key, secrets.token_urlsafe(18)), at=time.time() + offset)
        message, _ = await _converse(probe, text)
        if message is None:
            continue
        content = _content(message)
        expect(content.get("action") == "error", f"A message of {offset:+.0f} s was accepted.")
        if content.get("code") in ("unknown_peer", "not_authorized"):
            raise Untestable("needs_token", "Unknown agents are refused before their time is looked at.")
        expect(
            content.get("code") == "stale_timestamp",
            f"A message of {offset:+.0f} s is refused with {content.get('code')!r}.",
        )


@suite.check("ADP-52")
async def tls13(probe: Prober) -> None:
    if probe.target.scheme != "https":
        raise _without_tls(probe)
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    try:
        async with asyncio.timeout(probe.options.request_seconds):
            _, writer = await asyncio.open_connection(
                probe.target.host, probe.target.port, ssl=context, server_hostname=probe.target.host
            )
    except (ssl.SSLError, ConnectionError):
        return
    except TimeoutError:
        raise Untestable("bound", "The TLS handshake took too long.") from None
    writer.transport.abort()
    raise Violation("The service accepts TLS 1.2.")


@suite.check("ADP-53")
async def certificate(probe: Prober) -> None:
    if probe.target.scheme != "https":
        raise _without_tls(probe)
    (await _answer(probe)).expect_status(200)  # the client verified the certificate and its chain


def _without_tls(probe: Prober) -> Untestable | Violation:
    if probe.target.is_loopback:
        return Untestable("needs_tls", "A plain HTTP address on this machine.")
    return Violation("The service is reached without TLS.")


@suite.check("ADP-57")
async def version_of_document(probe: Prober) -> None:
    protocol = (await _document(probe)).get("protocol")
    expect(
        protocol in ("ADP/1.0", "ADP/1.1"), f"Readers of versions 1.0 and 1.1 do not know {shorten(str(protocol))!r}."
    )


# --- Tasks and swarms ------------------------------------------------------------------------------


async def _send_task(probe: Prober) -> ProbeAnswer:
    path = await _endpoint(probe, "tasks")
    offered = [str(row.get("id")) for row in objects_in(await _document(probe), "capabilities", "the document")]
    for task in dict.fromkeys(["echo", *offered[:3]]):
        answer = await probe.write("POST", path, {"task": task, "input": {"query": "conformance check", "limit": 1}})
        if answer.status == 202:
            return answer
    answer.expect_status(202)
    return answer


@suite.check("ADP-44", write=True)
async def takes_tasks(probe: Prober) -> None:
    await _send_task(probe)
    broken = await probe.write("POST", await _endpoint(probe, "tasks"), b"{")
    expect(400 <= (broken.status or 0) < 500, f"A broken task was answered {broken.status}.")


@suite.check("ADP-45", write=True)
async def task_status(probe: Prober) -> None:
    answer = await _send_task(probe)
    place = answer.header("location") or str(answer.object().get("statusUrl"))
    path = probe.target.find_path(place)
    expect(path is not None, f"The status URL is {shorten(place)}.")
    for _ in range(_TASK_SECONDS):
        status = await probe.get(path or "/", fresh=True)
        status.expect_status(200)
        if status.object().get("status") in ("succeeded", "failed", "cancelled"):
            return
        await asyncio.sleep(0.5)
    expect(status.object().get("status") in ("accepted", "running"), "The status of the task has no known word.")


@suite.check("ADP-47", write=True)
async def joins_swarms(probe: Prober) -> None:
    path = await _endpoint(probe, "swarm")
    task = f"conformance-{secrets.token_hex(6)}"
    answer = await probe.write("POST", path, {"agent": _SELF, "task": task, "role": "participant"})
    if answer.status == 200 and "swarmId" in answer.object():
        swarm = str(answer.object()["swarmId"])
        probe.clean_up_by(lambda: _leave(probe, path.removesuffix("/join"), swarm))
    answer.expect_status(200, 201, 202)


async def _leave(probe: Prober, path: str, swarm: str) -> str:
    """The draft knows no way to leave; where there is none, the membership stays until it ends by itself."""
    answer = await probe.write("POST", f"{path}/{swarm}:leave", {"agent": _SELF})
    return "" if answer.status in (200, 204) else f"{_SELF} is still a member of the swarm {shorten(swarm)}."


_DNS = "Published in the DNS: `waypost resolve` and `waypost dns check` judge it."
_CLIENTS = "About clients."

suite.cannot_observe(
    {
        **{f"ADP-{number}": _DNS for number in (1, 2, 3, 5, 6, 7, 8, 9, 10, 11, 13, 15, 16, 17)},
        **{f"ADP-{number}": _CLIENTS for number in (4, 12, 14, 18, 19, 20, 23, 30, 31, 48, 51, 54)},
        "ADP-46": "Needs an address that the service can reach for the callback.",
        "ADP-50": "Needs a session as an agent that the service knows.",
        "ADP-55": "A choice of the operator.",
        "ADP-56": "Needs an invitation, which only the owner of an agent can make.",
    }
)

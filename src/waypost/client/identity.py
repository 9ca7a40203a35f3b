"""The identity of an announcing agent on this machine: key files, agent_ids, sequence numbers, and the keys of others.

A document of any dialect becomes an `agent` object (announce.md §13). Its agent_id is generated once and stored; it is not
derived from anything.
"""

from __future__ import annotations

import os
import secrets
import time
import uuid
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Protocol

import httpx2
import msgspec

from waypost import limits
from waypost.errors import ConfigurationError, InvalidDocument, InvalidRequest
from waypost.files import create_private, write_atomic
from waypost.messaging.request_signatures import AGENT_URI_PREFIX, parse_agent_uri, sign_request
from waypost.model.json import JsonObject, dump_json, parse_object
from waypost.protocols.announce.codec import ANNOUNCE
from waypost.protocols.codec import DecodeContext, EncodeContext
from waypost.protocols.dialects import decode_document
from waypost.trust.announce.trust_store import AgentPin
from waypost.trust.keys.private_key import SEED_BYTES, PrivateKey, load_private_key, new_private_key

KEY_FILE = "keys/announce.pem"
CHAT_KEY_FILE = "keys/chat.pem"  # of a user who talks to agents
_KEY_ONLY_SUFFIX = ".key.invalid"  # reserved (RFC 2606): a speaker without a domain is identified by its key

ANNOUNCED_FOLDER = "announced"

IDS_FILE = "ids.json"

_STAMPS = ("__seq", "__iat", "__state")


# --- Key files -----------------------------------------------------------------------------------


def make_key(kind: str) -> PrivateKey:
    """A new private key.

    Args:
        kind: The algorithm, such as ed25519.
    """
    return new_private_key(kind, secrets.token_bytes(SEED_BYTES.get(kind, 0)))


def read_key(path: Path) -> PrivateKey:
    """The private key in a PEM file.

    Args:
        path: The file.
    """
    return load_private_key(read_text(path, hint="Create one with `waypost keys new`.").encode(), str(path))


def read_text(path: Path, hint: str | None = None) -> str:
    """The text of a file. Raises InvalidRequest if it cannot be read.

    Args:
        path: The file.
        hint: What to do if it cannot be read.
    """
    try:
        with path.open("rb") as file:
            return file.read(limits.DOCUMENT_BYTES).decode("utf-8")
    except OSError as error:
        raise InvalidRequest(f"The file {path} cannot be read: {error.strerror}.", path=str(path), hint=hint) from None
    except UnicodeDecodeError:
        raise InvalidRequest(f"The file {path} is not a text.", path=str(path), hint="Name a PEM file.") from None


def write_key(path: Path, key: PrivateKey) -> None:
    """Write a private key to a new file, mode 0600.

    Args:
        path: The file; it must not exist.
        key: The key.
    """
    try:
        create_private(path, key.key_file())
    except FileExistsError:
        raise ConfigurationError(
            f"{path} exists already.", path=str(path), hint="`waypost keys rotate` replaces it; --out names another."
        ) from None
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be written: {error.strerror}.", path=str(path)) from None


def replace_key(path: Path, key: PrivateKey, previous: PrivateKey) -> Path:
    """Replace the key in a file, and return the file to which the old key was moved. Neither is missing at any time.

    Args:
        path: The file of the key.
        key: The new key.
        previous: The old key.
    """
    backup = previous_key_path(path, previous)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    write_key(temporary, key)
    try:
        backup.unlink(missing_ok=True)
        os.link(path, backup)
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise ConfigurationError(f"{path} cannot be replaced: {error.strerror}.", path=str(path)) from None
    return backup


def previous_key_path(path: Path, previous: PrivateKey) -> Path:
    """The file for a key that was replaced, named by its fingerprint.

    Args:
        path: The file of the current key.
        previous: The old key.
    """
    return path.with_name(f"{path.stem}.{previous.public.key_id.removeprefix('sha256:')[:12]}{path.suffix}")


# --- Identities ----------------------------------------------------------------------------------


class SequenceSource(Protocol):
    """Gives the sequence numbers of announcements (P-16)."""

    def next(self, now: float) -> int:
        """A number above every one before it.

        Args:
            now: The time.
        """
        ...


class MemorySequence:
    """Sequence numbers in memory: Unix milliseconds, or one more than the last number."""

    def __init__(self, last: int = 0) -> None:
        """Start a sequence.

        Args:
            last: The last number that was used.
        """
        self.last = last

    def next(self, now: float) -> int:
        """A number above every one before it.

        Args:
            now: The time.
        """
        self.last = max(self.last + 1, int(now * 1000))
        return self.last


class SequenceFile:
    """Sequence numbers in a file. A number is stored before it is used, so that a crash does not repeat it."""

    def __init__(self, path: Path) -> None:
        """Use a file for a sequence.

        Args:
            path: The file; it is created with the first number.
        """
        self._path = path
        self._sequence: MemorySequence | None = None

    def next(self, now: float) -> int:
        """A number above every one before it.

        Args:
            now: The time.
        """
        if self._sequence is None:
            self._sequence = MemorySequence(_read_number(self._path))
        number = self._sequence.next(now)
        write_atomic(self._path, str(number).encode())
        return number


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """What an announcer needs: the agent, its key, and its sequence numbers."""

    agent: JsonObject
    key: PrivateKey
    sequence: SequenceSource
    previous: PrivateKey | None = None  # the key before, while the rotation is announced (P-13)


def load_identity(document: bytes, data: Path, *, key: Path | None = None, now: float | None = None) -> Identity:
    """The identity of an agent on this machine. Key and agent_id are created if they are missing.

    Args:
        document: A document of any dialect.
        data: The data folder.
        key: The file of the key. Default: a key in the data folder.
        now: The time.
    """
    path = key or data / KEY_FILE
    now = time.time() if now is None else now
    agent = read_agent(document, data / ANNOUNCED_FOLDER / IDS_FILE, now)
    agent_id = str(agent["agent_id"]).lower()
    if not path.exists() and key is None:
        write_key(path, make_key("ed25519"))
    return Identity(
        agent=agent,
        key=read_key(path),
        previous=_find_previous_key(path, now),
        sequence=SequenceFile(data / ANNOUNCED_FOLDER / f"{agent_id}.seq"),
    )


def read_agent(document: bytes, ids: Path, now: float) -> JsonObject:
    """The `agent` object for a document: its own, or one made from its record.

    Args:
        document: A document of any dialect.
        ids: The file with the agent_ids of this machine.
        now: The time.
    """
    document = _with_agent_id(document, ids)
    dialect, parsed, decoded = decode_document(document, None, DecodeContext(now=now))
    if dialect == ANNOUNCE.name and parsed is not None:
        agent = parsed if "agent_id" in parsed else parsed["agent"]
    else:
        agent_id = _agent_id(ids, decoded.record.id)
        agent = ANNOUNCE.encode(decoded.record, EncodeContext(now=now, announce_id=agent_id)).document
    if not isinstance(agent, dict):
        raise InvalidDocument("agent must be an object.", path="$.agent", hint="Send {…}.")
    metadata = {name: value for name, value in (agent.get("metadata") or {}).items() if name not in _STAMPS}
    members = {name: value for name, value in agent.items() if name != "metadata" and value is not None}
    return {**members, "metadata": metadata} if metadata else members


def _with_agent_id(document: bytes, ids: Path) -> bytes:
    """Add an agent_id to a bare agent without one: always the same for its name, or else for its endpoint."""
    message = parse_object(document)
    agent = message.get("agent", message)
    if not isinstance(agent, dict) or "agent_id" in agent or not _is_bare_agent(agent):
        return document
    name = agent.get("agent_name") or agent["transport"]["endpoint"]
    identified = {"agent_id": _agent_id(ids, f"agent:{name}"), **agent}
    return dump_json({**message, "agent": identified} if "agent" in message else identified)


def _is_bare_agent(agent: JsonObject) -> bool:
    transport = agent.get("transport")
    has_transport = isinstance(transport, dict) and isinstance(transport.get("endpoint"), str) and "type" in transport
    return has_transport and isinstance(agent.get("capabilities"), dict)


def _agent_id(ids: Path, record_id: str) -> str:
    """The stored agent_id of a record, or a new one."""
    known = parse_object(ids.read_bytes()) if ids.exists() else {}
    if not isinstance(known.get(record_id), str):
        known[record_id] = str(uuid.uuid4())
        write_atomic(ids, msgspec.json.encode(known))
    return str(known[record_id])


def _find_previous_key(path: Path, now: float) -> PrivateKey | None:
    """The key that `waypost keys rotate` replaced, for as long as a rotation is announced."""
    if now - path.stat().st_mtime > limits.ROTATION_ANNOUNCED_SECONDS:
        return None
    backups = sorted(path.parent.glob(f"{path.stem}.????????????{path.suffix}"), key=lambda file: file.stat().st_mtime)
    return read_key(backups[-1]) if backups else None


def _read_number(path: Path) -> int:
    try:
        return int(path.read_text("ascii"))
    except FileNotFoundError:
        return 0
    except (OSError, ValueError):
        raise ConfigurationError(
            f"The sequence in {path} cannot be read.",
            path=str(path),
            hint="Remove the file: the next number comes from the clock, which is ahead of the last one.",
        ) from None


# --- Keys of other agents ------------------------------------------------------------------------


class TrustFile:
    """The keys that are bound to other agents, in one file: trust on first use."""

    def __init__(self, path: Path | None = None, *, most: int = limits.TRUST_FILE_PINS) -> None:
        """Load the keys.

        Args:
            path: The file. Without one, the keys are forgotten with the process.
            most: The largest number of agents.
        """
        self._path = path
        self._most = most
        self._pins: dict[str, AgentPin] = {} if path is None else _read_pins(path)
        self._is_changed = False

    def pin_of(self, agent_id: str) -> AgentPin | None:
        """The keys of an agent, with the last sequence number of each.

        Args:
            agent_id: The agent.
        """
        return self._pins.get(agent_id)

    def keys_of(self, agent_id: str) -> AgentPin | None:
        """The keys of an agent without sequence numbers: another transport may be behind.

        Args:
            agent_id: The agent.
        """
        pin = self._pins.get(agent_id)
        if pin is None:
            return None
        keys = tuple(msgspec.structs.replace(key, seq=None, digest=None) for key in pin.keys)
        return msgspec.structs.replace(pin, keys=keys, digest=None, digests=())

    def bind(self, pin: AgentPin) -> bool:
        """Bind keys to an agent until the next `save`. True if they changed.

        Args:
            pin: The agent and its keys.
        """
        before = self._pins.pop(pin.agent_id, None)
        self._pins[pin.agent_id] = pin
        is_changed = before is None or _key_states(before) != _key_states(pin)
        self._is_changed |= is_changed
        if before is None and len(self._pins) > self._most:
            self._remove_oldest()
        return is_changed

    def _remove_oldest(self) -> None:
        """Remove the oldest agent that was bound by first use only."""
        for agent_id, pin in self._pins.items():
            if not pin.provisioned:
                del self._pins[agent_id]
                return

    def save(self) -> None:
        """Write the file if keys changed. Separate from `bind`, because many agents may appear at once."""
        if self._path is not None and self._is_changed:
            self._is_changed = False
            write_atomic(self._path, msgspec.json.encode(list(self._pins.values())))


def _key_states(pin: AgentPin) -> list[tuple[str, str]]:
    return [(key.key_id, key.state) for key in pin.keys]


def _read_pins(path: Path) -> dict[str, AgentPin]:
    if not path.exists():
        return {}
    try:
        pins = msgspec.json.decode(path.read_bytes(), type=list[AgentPin])
    except (OSError, msgspec.DecodeError) as error:
        raise ConfigurationError(
            f"The trust store {path} cannot be read: {error}.",
            path="trust",
            hint="Name a file that a Finder wrote, or one that does not exist yet.",
        ) from None
    return {pin.agent_id: pin for pin in pins}


class AgentSigner(httpx2.Auth):
    """Signs each request as an agent."""

    requires_request_body = True

    def __init__(
        self, agent: str, key: PrivateKey, to: str | None = None, *, now: Callable[[], float] = time.time
    ) -> None:
        """Sign requests as an agent.

        Args:
            agent: The Agent URI of the sender.
            key: Its private key.
            to: The addressee of requests that name none with `agent=`. Default: the agent of the server's host name.
            now: The clock.
        """
        self.agent = parse_agent_uri(agent, "agent")
        self._key = key
        self._to = to
        self._now = now

    def auth_flow(self, request: httpx2.Request) -> Generator[httpx2.Request, httpx2.Response, None]:
        """Add the signature headers to a request."""
        to = request.url.params.get("agent") or self._to or f"{AGENT_URI_PREFIX}{request.url.host}"
        signed = (str(uuid.uuid4()), self.agent, to)
        path = request.url.raw_path.partition(b"?")[0].decode("ascii")
        request.headers.update(sign_request(self._key, signed, request.method, path, self._now(), request.content))
        request.headers.pop("Authorization", None)
        yield request


def load_chat_key(data: Path) -> PrivateKey:
    """The key with which a user talks to agents over AGP. It is created on first use.

    Args:
        data: The data folder.
    """
    path = data / CHAT_KEY_FILE
    if not path.exists():
        write_key(path, make_key("ed25519"))
    return read_key(path)


def key_only_agent(key: PrivateKey) -> str:
    """The Agent URI of a speaker who has no domain: agents that know the key recognise it.

    Args:
        key: The private key.
    """
    return f"agent:{key.public.key_id.removeprefix('sha256:')[:16]}{_KEY_ONLY_SUFFIX}"

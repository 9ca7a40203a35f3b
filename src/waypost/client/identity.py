"""Private keys in files of this machine: made whole, for their owner alone, and never over one that is there."""

from __future__ import annotations

import os
import secrets
import time
import uuid
from pathlib import Path
from typing import Protocol

import msgspec

from waypost import limits
from waypost.errors import ConfigurationError, InvalidDocument, InvalidRequest
from waypost.model.json import JsonObject, dump_json, parse_object
from waypost.private_files import create_private, write_atomic
from waypost.protocols.announce.codec import ANNOUNCE
from waypost.protocols.codec import DecodeContext, EncodeContext
from waypost.protocols.dialects import decode_document
from waypost.trust.announce.key_pins import AgentPin
from waypost.trust.keys.private_key import SEED_BYTES, PrivateKey, load_private_key, new_private_key


def make_key(kind: str) -> PrivateKey:
    return new_private_key(kind, secrets.token_bytes(SEED_BYTES.get(kind, 0)))


def read_key(path: Path) -> PrivateKey:
    return load_private_key(read_text(path, hint="Make one with `waypost keys new`.").encode(), str(path))


def read_text(path: Path, hint: str | None = None) -> str:
    try:
        with path.open("rb") as file:
            return file.read(limits.DOCUMENT_BYTES).decode("utf-8")
    except OSError as error:
        raise InvalidRequest(f"The file {path} cannot be read: {error.strerror}.", path=str(path), hint=hint) from None
    except UnicodeDecodeError:
        raise InvalidRequest(f"The file {path} is not a text.", path=str(path), hint="Name a PEM file.") from None


def write_key(path: Path, key: PrivateKey) -> None:
    """Write a new file, mode 0600."""
    try:
        create_private(path, key.pem())
    except FileExistsError:
        raise ConfigurationError(
            f"{path} is there already.", path=str(path), hint="`waypost keys rotate` replaces it; --out names another."
        ) from None
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be written: {error.strerror}.", path=str(path)) from None


def replace_key(path: Path, key: PrivateKey, previous: PrivateKey) -> Path:
    """Put a new key in the place of the old one, which is kept beside it. Neither is ever missing."""
    kept = previous_key_path(path, previous)
    fresh = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    write_key(fresh, key)
    try:
        kept.unlink(missing_ok=True)
        os.link(path, kept)
        fresh.replace(path)
    except OSError as error:
        fresh.unlink(missing_ok=True)
        raise ConfigurationError(f"{path} cannot be replaced: {error.strerror}.", path=str(path)) from None
    return kept


def previous_key_path(path: Path, previous: PrivateKey) -> Path:
    """Where a key that was replaced is kept: its name tells it."""
    return path.with_name(f"{path.stem}.{previous.public.key_id.removeprefix('sha256:')[:12]}{path.suffix}")


# ---- Who an announcing agent is, kept on this machine: its key, its agent_id, and the sequence that only grows (P-16).
#
# A document of any dialect becomes an `agent` object here. An agent_id is drawn once for each agent and kept; it is never
# derived from anything (announce.md §13).

KEY_FILE = "keys/announce.pem"

ANNOUNCED_FOLDER = "announced"

IDS_FILE = "ids.json"

_STAMPS = ("__seq", "__iat", "__state")


class SequenceSource(Protocol):
    def next(self, now: float) -> int:
        """A number above every one before it."""
        ...


class MemorySequence:
    """In memory, for whoever keeps it elsewhere."""

    def __init__(self, last: int = 0) -> None:
        self.last = last

    def next(self, now: float) -> int:
        self.last = max(self.last + 1, int(now * 1000))
        return self.last


class SequenceFile:
    """Unix milliseconds, or one more than last time: kept before it is used, so that a crash repeats none."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._counted: MemorySequence | None = None

    def next(self, now: float) -> int:
        if self._counted is None:
            self._counted = MemorySequence(_read_number(self._path))
        number = self._counted.next(now)
        write_atomic(self._path, str(number).encode())
        return number


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """What an announcer needs of this machine."""

    agent: JsonObject
    key: PrivateKey
    sequence: SequenceSource
    previous: PrivateKey | None = None  # the key before it, while the rotation is told (P-13)


def load_identity(document: bytes, data: Path, *, key: Path | None = None, now: float | None = None) -> Identity:
    """The agent in a document of any dialect, with the key of this machine; what is missing is made."""
    path = key or data / KEY_FILE
    now = time.time() if now is None else now
    agent = read_agent(document, data / ANNOUNCED_FOLDER / IDS_FILE, now)
    agent_id = str(agent["agent_id"]).lower()
    if not path.exists() and key is None:
        write_key(path, make_key("ed25519"))
    return Identity(
        agent=agent,
        key=read_key(path),
        previous=_find_previous(path, now),
        sequence=SequenceFile(data / ANNOUNCED_FOLDER / f"{agent_id}.seq"),
    )


def read_agent(document: bytes, ids: Path, now: float) -> JsonObject:
    """The `agent` object of a document: as it is, or made of the record behind it."""
    document = _with_agent_id(document, ids)
    dialect, parsed, decoded = decode_document(document, None, DecodeContext(now=now))
    if dialect == ANNOUNCE.name and parsed is not None:
        agent = parsed if "agent_id" in parsed else parsed["agent"]
    else:
        agent_id = _agent_id(ids, decoded.record.id)
        agent = ANNOUNCE.encode(decoded.record, EncodeContext(now=now, announce_id=agent_id)).document
    if not isinstance(agent, dict):
        raise InvalidDocument("This is not an agent.", path="$.agent", hint="Write it as an object.")
    metadata = {name: value for name, value in (agent.get("metadata") or {}).items() if name not in _STAMPS}
    bare = {name: value for name, value in agent.items() if name != "metadata" and value is not None}
    return {**bare, "metadata": metadata} if metadata else bare


def _with_agent_id(document: bytes, ids: Path) -> bytes:
    """A bare agent that names no agent_id is given one, the same each time: that of its name, or else of its endpoint."""
    told = parse_object(document)
    agent = told.get("agent", told)
    if not isinstance(agent, dict) or "agent_id" in agent or not _is_bare(agent):
        return document
    name = agent.get("agent_name") or agent["transport"]["endpoint"]
    known = {"agent_id": _agent_id(ids, f"agent:{name}"), **agent}
    return dump_json({**told, "agent": known} if "agent" in told else known)


def _is_bare(agent: JsonObject) -> bool:
    transport = agent.get("transport")
    is_there = isinstance(transport, dict) and isinstance(transport.get("endpoint"), str) and "type" in transport
    return is_there and isinstance(agent.get("capabilities"), dict)


def _agent_id(ids: Path, record_id: str) -> str:
    """The UUID that was drawn for a record, or a new one."""
    known = parse_object(ids.read_bytes()) if ids.exists() else {}
    if not isinstance(known.get(record_id), str):
        known[record_id] = str(uuid.uuid4())
        write_atomic(ids, msgspec.json.encode(known))
    return str(known[record_id])


def _find_previous(path: Path, now: float) -> PrivateKey | None:
    """The key that `waypost keys rotate` put aside, for a week."""
    if now - path.stat().st_mtime > limits.ROTATION_ANNOUNCED_SECONDS:
        return None
    kept = sorted(path.parent.glob(f"{path.stem}.????????????{path.suffix}"), key=lambda file: file.stat().st_mtime)
    return read_key(kept[-1]) if kept else None


def _read_number(path: Path) -> int:
    try:
        return int(path.read_text("ascii"))
    except FileNotFoundError:
        return 0
    except (OSError, ValueError):
        raise ConfigurationError(
            f"The sequence in {path} cannot be read.",
            path=str(path),
            hint="Remove the file: the clock is ahead of what it held.",
        ) from None


# ---- The trust store of a client: which key is bound to which agent, in one file of its owner. Bound on first use, kept.


class TrustFile:
    """Without a path it lives as long as the process."""

    def __init__(self, path: Path | None = None, *, most: int = limits.TRUST_FILE_PINS) -> None:
        self._path = path
        self._most = most
        self._pins: dict[str, AgentPin] = {} if path is None else _read(path)
        self._is_changed = False

    def pin_of(self, agent_id: str) -> AgentPin | None:
        return self._pins.get(agent_id)

    def keys_of(self, agent_id: str) -> AgentPin | None:
        """The pin without how far its announcements have come: on another carrier they may be behind."""
        pin = self._pins.get(agent_id)
        if pin is None:
            return None
        keys = tuple(msgspec.structs.replace(key, seq=None, digest=None) for key in pin.keys)
        return msgspec.structs.replace(pin, keys=keys, digest=None, digests=())

    def take(self, pin: AgentPin) -> None:
        """A listener bound a key. It is written with the next `keep`: in a crowd each one alone would be too much."""
        self.bind(pin)

    def bind(self, pin: AgentPin) -> bool:
        """Whether the keys of an agent changed; what else a pin remembers waits for `keep`."""
        before = self._pins.pop(pin.agent_id, None)
        self._pins[pin.agent_id] = pin
        is_changed = before is None or _keys(before) != _keys(pin)
        self._is_changed |= is_changed
        if before is None and len(self._pins) > self._most:
            self._forget_oldest()
        return is_changed

    def _forget_oldest(self) -> None:
        """Of those that were bound by first use alone, the one that was bound longest ago."""
        for agent_id, pin in self._pins.items():
            if not pin.provisioned:
                del self._pins[agent_id]
                return

    def keep(self) -> None:
        """Write what changed."""
        if self._path is not None and self._is_changed:
            self._is_changed = False
            write_atomic(self._path, msgspec.json.encode(list(self._pins.values())))


def _keys(pin: AgentPin) -> list[tuple[str, str]]:
    return [(key.key_id, key.state) for key in pin.keys]


def _read(path: Path) -> dict[str, AgentPin]:
    if not path.exists():
        return {}
    try:
        pins = msgspec.json.decode(path.read_bytes(), type=list[AgentPin])
    except (OSError, msgspec.DecodeError) as error:
        raise ConfigurationError(
            f"The trust store {path} cannot be read: {error}.",
            path="trust",
            hint="Name the file that a Finder wrote, or one that is not there yet.",
        ) from None
    return {pin.agent_id: pin for pin in pins}

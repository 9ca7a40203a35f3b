"""Who an announcing agent is, kept on this machine: its key, its agent_id, and the sequence that only grows (P-16).

A document of any dialect becomes an `agent` object here. An agent_id is drawn once for each agent and kept; it is never
derived from anything (announce.md §13).
"""

from __future__ import annotations

import time
import uuid
from pathlib import Path
from typing import Protocol

import msgspec

from waypost import limits
from waypost.client.key_files import keep_key, make_key, read_key
from waypost.dialects import decode_document
from waypost.dialects.announce import ANNOUNCE
from waypost.dialects.codec import DecodeContext, EncodeContext
from waypost.errors import ConfigurationError, InvalidDocument
from waypost.model.json import JsonObject, dump_json, parse_object
from waypost.private_files import write_whole
from waypost.trust.signing import PrivateKey

KEY_FILE = "keys/announce.pem"
FOLDER = "announced"
IDS_FILE = "ids.json"
_STAMPS = ("__seq", "__iat", "__state")


class Sequence(Protocol):
    def next(self, now: float) -> int:
        """A number above every one before it."""
        ...


class CountedSequence:
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
        self._counted: CountedSequence | None = None

    def next(self, now: float) -> int:
        if self._counted is None:
            self._counted = CountedSequence(_read_number(self._path))
        number = self._counted.next(now)
        write_whole(self._path, str(number).encode())
        return number


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """What an announcer needs of this machine."""

    agent: JsonObject
    key: PrivateKey
    sequence: Sequence
    previous: PrivateKey | None = None  # the key before it, while the rotation is told (P-13)


def load_identity(document: bytes, data: Path, *, key: Path | None = None, now: float | None = None) -> Identity:
    """The agent in a document of any dialect, with the key of this machine; what is missing is made."""
    path = key or data / KEY_FILE
    now = time.time() if now is None else now
    agent = read_agent(document, data / FOLDER / IDS_FILE, now)
    agent_id = str(agent["agent_id"]).lower()
    if not path.exists() and key is None:
        keep_key(path, make_key("ed25519"))
    return Identity(
        agent=agent,
        key=read_key(path),
        previous=_find_previous(path, now),
        sequence=SequenceFile(data / FOLDER / f"{agent_id}.seq"),
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
        write_whole(ids, msgspec.json.encode(known))
    return str(known[record_id])


def _find_previous(path: Path, now: float) -> PrivateKey | None:
    """The key that `waypost keys rotate` put aside, for a week."""
    if now - path.stat().st_mtime > limits.ROTATION_TOLD_SECONDS:
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

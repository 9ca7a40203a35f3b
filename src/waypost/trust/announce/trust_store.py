"""Who may announce and with which keys: the allow-list, and the trust store's row for each announced id."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Literal

import msgspec

from waypost import limits
from waypost.errors import InvalidParameter
from waypost.model.names import find_uuid

# An allow-list rule is an agent id, a key, a name in a certificate, or `*` (announce.md P-12). Names and capabilities are
# self-asserted, so there are no rules for them. An empty list admits no agent; `admission.py` decides what follows.

ANYONE = "*"

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[1-8][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}\Z")

_KEY = re.compile(r"key:sha256:[0-9a-f]{64}\Z")

_SAN = re.compile(r"san:[a-z0-9._:/@-]+\Z")

_FORMS = "A rule is an agent_id, key:sha256:<64 hex digits>, san:<suffix> or *."


def find_agent_id(text: str) -> str | None:
    """Return the UUID in the form of RFC 9562; None if the text is not a UUID of a known version."""
    found = find_uuid(text.strip())
    return found if found is not None and _UUID.match(found) else None


def parse_rule(text: str, path: str = "rule") -> str:
    """Return the rule in its canonical spelling."""
    folded = text.strip().lower()
    if len(folded) > limits.RULE_CHARS:
        raise InvalidParameter(
            f"The rule has {len(folded)} characters; at most {limits.RULE_CHARS} are allowed.", path=path, hint=_FORMS
        )
    if folded == ANYONE or _KEY.match(folded) or _SAN.match(folded):
        return folded
    if folded.startswith("sha256:") and _KEY.match(f"key:{folded}"):
        return f"key:{folded}"
    agent_id = find_agent_id(folded)
    if agent_id is None:
        raise InvalidParameter(f"{text[:64]!r} is not a rule of the allow-list.", path=path, hint=_FORMS)
    return agent_id


class Applicant(msgspec.Struct, frozen=True, kw_only=True):
    """What rules are matched against."""

    agent_id: str  # lower case
    key_id: str | None = None
    names: tuple[str, ...] = ()  # SANs of a certificate whose chain was verified; empty otherwise


class AllowList:
    """A set of rules. Matching takes constant time in the number of rules without `san:`."""

    def __init__(self, rules: Iterable[str] = ()) -> None:
        self._rules: set[str] = set()
        self._suffixes: set[str] = set()
        for rule in rules:
            self.add(rule)

    def add(self, rule: str) -> None:
        (self._suffixes if rule.startswith("san:") else self._rules).add(rule)

    def remove(self, rule: str) -> None:
        self._rules.discard(rule)
        self._suffixes.discard(rule)

    def __contains__(self, rule: str) -> bool:
        return rule in self._rules or rule in self._suffixes

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._rules | self._suffixes))

    def __len__(self) -> int:
        return len(self._rules) + len(self._suffixes)

    def find_rule(self, applicant: Applicant) -> str | None:
        """Return the most specific rule that admits the applicant, or None."""
        if applicant.agent_id in self._rules:
            return applicant.agent_id
        if applicant.key_id is not None and (rule := f"key:{applicant.key_id}") in self._rules:
            return rule
        for rule in sorted(self._suffixes) if applicant.names else ():
            if any(_ends_with(name.lower(), rule.removeprefix("san:")) for name in applicant.names):
                return rule
        return ANYONE if ANYONE in self._rules else None


def _ends_with(name: str, suffix: str) -> bool:
    """`example.com` matches itself and its subdomains, but not `badexample.com`."""
    if not name.endswith(suffix):
        return False
    rest = name[: len(name) - len(suffix)]
    return not rest or not suffix[:1].isalnum() or not rest[-1].isalnum()


# A row of the trust store outlives the record. Its keys change in three ways only: the first key is pinned, the active key
# introduces its successor (announce.md P-13), a key is revoked (P-14). Retired and revoked keys stay as tombstones.

KeyState = Literal["active", "retiring", "retired", "revoked"]


class PinnedKey(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    key_id: str
    kind: str
    spki: bytes
    state: KeyState
    first_seen: float
    via: str  # tofu, admin, trust, rotation, ca
    until: float | None = None  # end of a retiring key's grace period
    seq: int | None = None  # highest sequence it has signed
    digest: str | None = None  # of the content it signed with that sequence

    def state_at(self, now: float) -> KeyState:
        if self.state == "retiring" and self.until is not None and now >= self.until:
            return "retired"
        return self.state


class AgentPin(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    agent_id: str
    keys: tuple[PinnedKey, ...] = ()  # newest first
    provisioned: bool = False  # by an admin: needs no allow-list rule
    rotated_at: float | None = None
    digest: str | None = None  # of the last accepted content
    digests: tuple[tuple[str, float], ...] = ()  # contents without a sequence, newest first, with the last time of each
    seen_at: float = 0.0

    @property
    def active(self) -> PinnedKey | None:
        return next((key for key in self.keys if key.state == "active"), None)

    def find_key(self, key_id: str) -> PinnedKey | None:
        return next((key for key in self.keys if key.key_id == key_id), None)


def pin_first_key(pin: AgentPin, key: PinnedKey, *, provisioned: bool) -> AgentPin:
    """Pin a key. Another active key is retired at once, so only an operator may do this to a pin that has one.

    A key that was known before keeps its sequence, so that its old announcements cannot be replayed.
    """
    known = pin.find_key(key.key_id)
    if known is not None:
        key = msgspec.structs.replace(key, seq=known.seq, digest=known.digest)
    others = tuple(
        msgspec.structs.replace(each, state="retired", until=None) if each.state in ("active", "retiring") else each
        for each in pin.keys
        if each.key_id != key.key_id
    )
    return msgspec.structs.replace(
        pin, keys=drop_oldest_retired((key, *others)), provisioned=pin.provisioned or provisioned
    )


def rotate_key(pin: AgentPin, key: PinnedKey, now: float) -> AgentPin:
    """Make `key` the active one, with its own sequence. Its predecessor stays valid for the grace period, but cannot
    rotate."""
    others = tuple(
        msgspec.structs.replace(each, state="retiring", until=now + limits.ROTATION_GRACE_SECONDS)
        if each.state == "active"
        else each
        for each in pin.keys
    )
    return msgspec.structs.replace(pin, keys=drop_oldest_retired((key, *others)), rotated_at=now)


def revoke_pinned_key(pin: AgentPin, key_id: str) -> AgentPin:
    keys = tuple(
        msgspec.structs.replace(key, state="revoked", until=None) if key.key_id == key_id else key for key in pin.keys
    )
    return msgspec.structs.replace(pin, keys=keys)


def drop_oldest_retired(keys: tuple[PinnedKey, ...]) -> tuple[PinnedKey, ...]:
    """Drop the oldest retired keys beyond the limit; other keys are never dropped."""
    excess = len(keys) - limits.PINNED_KEYS
    remaining: list[PinnedKey] = []
    for key in reversed(keys):
        if excess > 0 and key.state == "retired":
            excess -= 1
        else:
            remaining.append(key)
    return tuple(reversed(remaining))


def is_evictable(pin: AgentPin, now: float) -> bool:
    """Return whether the pin may be dropped: bound by first use only, unused for long, and without a revoked key."""
    if pin.provisioned or now - pin.seen_at < limits.PIN_UNUSED_SECONDS:
        return False
    return all(key.state != "revoked" for key in pin.keys)


_encode = msgspec.json.Encoder().encode

_decoder = msgspec.json.Decoder(AgentPin)


def pin_note_key(agent_id: str) -> str:
    """Return the key of the note that stores the pin."""
    return f"pin:{agent_id}"


def dump_pin(pin: AgentPin) -> bytes:
    return _encode(pin)


def load_pin(data: bytes | None) -> AgentPin | None:
    return None if data is None else decode_pin(data)


def decode_pin(data: bytes) -> AgentPin:
    return _decoder.decode(data)

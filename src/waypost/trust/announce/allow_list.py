"""The allow-list of announcements (announce.md P-12). A rule is an agent id, a key, a name in a certificate, or `*`.

Names and capabilities are self-asserted, so there are no rules for them. An empty list admits no agent; `admission.py`
decides what follows from that in each mode.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import msgspec

from waypost import limits
from waypost.errors import InvalidParameter

ANYONE = "*"
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[1-8][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}\Z")
_KEY = re.compile(r"key:sha256:[0-9a-f]{64}\Z")
_SAN = re.compile(r"san:[a-z0-9._:/@-]+\Z")
_FORMS = "A rule is an agent_id, key:sha256:<64 hex digits>, san:<suffix> or *."


def find_agent_id(text: str) -> str | None:
    """Return the UUID in lower case, without a leading `urn:uuid:`; None if the text is not a UUID."""
    folded = text.strip().lower().removeprefix("urn:uuid:")
    return folded if _UUID.match(folded) else None


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

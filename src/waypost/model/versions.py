"""Semantic versions 2.0, version ranges (`>=1.2.0 <2.0.0`, `^1.2`, `1.2 - 2.3`, `1.x || 3.*`; rtfs.md §6), and
freshness.

Versions of agents are parsed leniently (`1.2`, `v1.2.0`), ranges strictly. A pre-release matches a range only if the
range names a pre-release of the same release.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import total_ordering
from typing import NamedTuple

import msgspec

from waypost import limits
from waypost.errors import InvalidParameter

_NUMBER = r"(?:0|[1-9][0-9]*)"
_IDENTIFIER = r"(?:0|[1-9][0-9]*|[0-9]*[A-Za-z-][0-9A-Za-z-]*)"
_PRE = rf"{_IDENTIFIER}(?:\.{_IDENTIFIER})*"
_BUILD = r"[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*"
_VERSION = re.compile(rf"\s*[vV=]?\s*({_NUMBER})(?:\.({_NUMBER})(?:\.({_NUMBER}))?)?(?:-({_PRE}))?(?:\+{_BUILD})?\s*\Z")
_WILD = rf"(?:[xX*]|{_NUMBER})"
_PARTIAL = rf"v?({_WILD})(?:\.({_WILD})(?:\.({_WILD})(?:-({_PRE}))?(?:\+{_BUILD})?)?)?"
_HYPHEN = re.compile(rf"{_PARTIAL} +- +{_PARTIAL}\Z")
_SIMPLE = re.compile(rf"(>=|<=|==|[<>=~^])? *{_PARTIAL}(?= |,|\Z)")
_BETWEEN = re.compile(r" *, *| +")


@total_ordering
@dataclass(frozen=True, slots=True)
class Version:
    """Ordered by precedence. Build metadata is left out: it has no precedence."""

    major: int
    minor: int
    patch: int
    pre: tuple[str, ...] = ()

    @property
    def release(self) -> tuple[int, int, int]:
        return (self.major, self.minor, self.patch)

    def __lt__(self, other: Version) -> bool:
        return self._rank() < other._rank()

    def _rank(self) -> tuple[tuple[int, int, int], bool, tuple[tuple[bool, int, str], ...]]:
        """A release ranks above its pre-releases, words above numbers, a longer list above its own prefix."""
        identifiers = tuple((False, int(part), "") if part.isdigit() else (True, 0, part) for part in self.pre)
        return (self.release, not self.pre, identifiers)

    def __str__(self) -> str:
        text = ".".join(map(str, self.release))
        return f"{text}-{'.'.join(self.pre)}" if self.pre else text


def find_version(text: str | None) -> Version | None:
    """Parse a version leniently: missing parts are 0, a leading `v` is ignored. None if it is not a version."""
    if text is None or len(text) > limits.VERSION_CHARS:
        return None
    found = _VERSION.match(text)
    if found is None:
        return None
    numbers = [int(part or 0) for part in found.groups()[:3]]
    if max(numbers) > limits.JSON_INTEGER_MAX:
        return None
    return Version(numbers[0], numbers[1], numbers[2], _identifiers(found.group(4)))


def compare_versions(left: str | None, right: str | None) -> int | None:
    """Return -1, 0 or 1 by precedence; None if either is not a version."""
    a, b = find_version(left), find_version(right)
    if a is None or b is None:
        return None
    return (a > b) - (a < b)


def _identifiers(pre: str | None) -> tuple[str, ...]:
    return tuple(pre.split(".")) if pre else ()


class Comparator(NamedTuple):
    operator: str  # one of < <= > >= =
    version: Version

    def allows(self, version: Version) -> bool:
        match self.operator:
            case "<":
                return version < self.version
            case "<=":
                return version <= self.version
            case ">":
                return version > self.version
            case ">=":
                return version >= self.version
            case _:
                return version == self.version


@dataclass(frozen=True, slots=True)
class Range:
    """Alternatives, each a group of comparators that must all match. An empty group matches any release."""

    groups: tuple[tuple[Comparator, ...], ...]

    def allows(self, version: Version | str) -> bool:
        found = find_version(version) if isinstance(version, str) else version
        return found is not None and any(_group_allows(group, found) for group in self.groups)


def _group_allows(group: tuple[Comparator, ...], version: Version) -> bool:
    if not all(comparator.allows(version) for comparator in group):
        return False
    return not version.pre or any(
        comparator.version.pre and comparator.version.release == version.release for comparator in group
    )


_LOWEST_PRE = ("0",)  # `-0` sorts below all pre-releases, so `<2.0.0-0` excludes those of 2.0.0
_NOTHING = (Comparator("<", Version(0, 0, 0, _LOWEST_PRE)),)


def parse_range(text: str, path: str = "version_constraint") -> Range:
    """Parse a version range."""
    if len(text) > limits.VERSION_RANGE_CHARS:
        raise InvalidParameter(
            f"The version range has {len(text)} characters; at most {limits.VERSION_RANGE_CHARS} are allowed.",
            path=path,
        )
    groups: list[tuple[Comparator, ...]] = []
    column, terms = 1, 0
    for part in text.split("||"):
        if len(groups) == limits.VERSION_RANGES:
            raise InvalidParameter(f"More than {limits.VERSION_RANGES} ranges are joined by `||`.", path=path)
        lead = len(part) - len(part.lstrip(" "))
        group, named = _parse_group(part.strip(" "), column + lead, path)
        terms += named
        if terms > limits.VERSION_TERMS:
            raise InvalidParameter(
                f"The version range names more than {limits.VERSION_TERMS} versions.",
                path=path,
                hint="Use two bounds: `>=1.2.0 <2.0.0`.",
            )
        groups.append(group)
        column += len(part) + 2
    return Range(tuple(groups))


def _parse_group(text: str, column: int, path: str) -> tuple[tuple[Comparator, ...], int]:
    """Return the comparators of a group, and the number of versions that it names."""
    hyphen = _HYPHEN.match(text)
    if hyphen:
        low = _Partial.of(hyphen.groups()[:4], column, path)
        high = _Partial.of(hyphen.groups()[4:], column + hyphen.start(5), path)
        return (*_at_least(low), *_at_most(high)), 2
    comparators: list[Comparator] = []
    at, named = 0, 0
    while at < len(text):
        simple = _SIMPLE.match(text, at)
        if simple is None:
            raise _unreadable(text, column, at, path)
        partial = _Partial.of(simple.groups()[1:], column + simple.start(2), path)
        comparators.extend(_COMPARE[simple.group(1) or "="](partial))
        named += 1
        at = simple.end()
        between = _BETWEEN.match(text, at)
        if between and between.end() == len(text):
            raise _unreadable(text, column, at, path)
        at = between.end() if between else at
    return tuple(comparators), named


def _unreadable(text: str, column: int, at: int, path: str) -> InvalidParameter:
    return InvalidParameter(
        f"The version range cannot be parsed at column {column + at}: {text[at : at + 24]!r}.",
        path=path,
        hint="Write it like `>=1.2.0 <2.0.0`, `^1.2`, `1.2 - 2.3` or `1.x || 2.x`.",
        details={"column": column + at},
    )


class _Partial(NamedTuple):
    """The numbers up to the first wildcard: none to three."""

    numbers: tuple[int, ...]
    pre: tuple[str, ...]

    @classmethod
    def of(cls, parts: tuple[str | None, ...], column: int, path: str) -> _Partial:
        numbers: list[int] = []
        for part in parts[:3]:
            if part is None or part in "xX*":
                break
            if len(part) > 16 or int(part) > limits.JSON_INTEGER_MAX:
                raise InvalidParameter(
                    f"A version number at column {column} is beyond 2^53−1.", path=path, details={"column": column}
                )
            numbers.append(int(part))
        return cls(tuple(numbers), _identifiers(parts[3]) if len(numbers) == 3 else ())

    @property
    def low(self) -> Version:
        major, minor, patch = (*self.numbers, 0, 0, 0)[:3]
        return Version(major, minor, patch, self.pre)

    def next(self, at: int) -> Version:
        """Return the first release after those that share the numbers up to index `at`."""
        numbers = [*self.numbers[:at], self.numbers[at] + 1, 0, 0][:3]
        return Version(numbers[0], numbers[1], numbers[2])

    def beyond(self, at: int) -> Version:
        """Return the same without pre-releases of that release, as an exclusive bound."""
        major, minor, patch = self.next(at).release
        return Version(major, minor, patch, _LOWEST_PRE)


def _exactly(partial: _Partial) -> tuple[Comparator, ...]:
    if len(partial.numbers) == 3:
        return (Comparator("=", partial.low),)
    return _span(partial, len(partial.numbers) - 1)


def _span(partial: _Partial, at: int) -> tuple[Comparator, ...]:
    if not partial.numbers:
        return ()
    return (Comparator(">=", partial.low), Comparator("<", partial.beyond(at)))


def _tilde(partial: _Partial) -> tuple[Comparator, ...]:
    return _span(partial, min(1, len(partial.numbers) - 1))


def _caret(partial: _Partial) -> tuple[Comparator, ...]:
    """Match up to the first number that is not zero, or the last one given."""
    nonzero = (at for at, number in enumerate(partial.numbers) if number)
    return _span(partial, next(nonzero, len(partial.numbers) - 1))


def _at_least(partial: _Partial) -> tuple[Comparator, ...]:
    return (Comparator(">=", partial.low),) if partial.numbers else ()


def _at_most(partial: _Partial) -> tuple[Comparator, ...]:
    if len(partial.numbers) == 3:
        return (Comparator("<=", partial.low),)
    return (Comparator("<", partial.beyond(len(partial.numbers) - 1)),) if partial.numbers else ()


def _above(partial: _Partial) -> tuple[Comparator, ...]:
    if not partial.numbers:
        return _NOTHING
    if len(partial.numbers) == 3:
        return (Comparator(">", partial.low),)
    return (Comparator(">=", partial.next(len(partial.numbers) - 1)),)


def _below(partial: _Partial) -> tuple[Comparator, ...]:
    if not partial.numbers:
        return _NOTHING
    if len(partial.numbers) == 3:
        return (Comparator("<", partial.low),)
    major, minor, patch = partial.low.release
    return (Comparator("<", Version(major, minor, patch, _LOWEST_PRE)),)


_COMPARE = {
    "=": _exactly,
    "==": _exactly,
    "~": _tilde,
    "^": _caret,
    ">=": _at_least,
    "<=": _at_most,
    ">": _above,
    "<": _below,
}


# --- Freshness: which of two versions of a record is newer ----------------------------------------


class FreshnessMarks(msgspec.Struct, frozen=True):
    sequence: int | None = None
    updated_at: float | None = None
    version: str | None = None


class Staleness(msgspec.Struct, frozen=True):
    mark: str
    reason: str


def find_staleness(incoming: FreshnessMarks, current: FreshnessMarks) -> Staleness | None:
    """Return what makes the incoming version older than the current one, or None.

    Order: sequence, then `updated_at`, then `version` (PRO-40…42). Only marks that both sides have are compared; the
    first that differs decides. A newer `updated_at` with a lower version is a deliberate rollback, not stale.
    """
    if incoming.sequence is not None and current.sequence is not None and incoming.sequence != current.sequence:
        if incoming.sequence < current.sequence:
            return Staleness("sequence", f"its sequence {incoming.sequence} is below {current.sequence}")
        return None
    if incoming.updated_at is not None and current.updated_at is not None and incoming.updated_at != current.updated_at:
        return Staleness("updated_at", "its updated_at is older") if incoming.updated_at < current.updated_at else None
    if incoming.version is not None and current.version is not None:
        order = compare_versions(incoming.version, current.version)
        if order is not None and order < 0:
            return Staleness("version", f"its version {incoming.version} is below {current.version}")
    return None


class Release(msgspec.Struct, frozen=True):
    """One of several versions of an agent that a registry lists, each as a document of its own."""

    version: str
    is_latest: bool = False  # as the registry says
    published_at: float | None = None

    def is_superseded_by(self, other: Release) -> bool:
        """Whether the other version is the current one of the two: by the registry's word, else the higher version, else
        the later. A semantic version ranks above other texts, so that the order of arrival never matters."""
        return self._rank() < other._rank()

    def _rank(self) -> tuple[bool, bool, Version, float]:
        version = find_version(self.version)
        return (self.is_latest, version is not None, version or Version(0, 0, 0), self.published_at or 0.0)

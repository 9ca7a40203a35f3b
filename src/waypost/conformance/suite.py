"""A table of checks per specification: which requirement is judged by which function, and which cannot be judged.

A check is a coroutine function over a `Prober`. It returns if the requirement is met, raises `Violation` if it is not, and
`Untestable` if this service gives no way to tell. One requirement may have several checks: it passes if none fails and at
least one passes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from waypost.conformance.report import Cause

if TYPE_CHECKING:
    from waypost.conformance.prober import Prober

CheckFunction: TypeAlias = Callable[["Prober"], Awaitable[None]]
Recognition: TypeAlias = Callable[["Prober"], Awaitable[str]]


# What a check raises that meets a member of another type than it expects. Strangers send anything: this is a failure of theirs.
MALFORMED = (AttributeError, LookupError, TypeError, ValueError)


class Violation(Exception):
    """The service does not meet the requirement."""


class Untestable(Exception):
    """This service, or this run, gives no way to judge the requirement."""

    def __init__(self, cause: Cause, reason: str) -> None:
        super().__init__(reason)
        self.cause: Cause = cause
        self.reason = reason


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One check of one requirement. `write`: it changes something at the service."""

    requirement: str
    function: CheckFunction
    write: bool = False


class Suite:
    """The checks of one specification.

    `recognise` tells where the specification was found, or raises `Untestable` if it was not.
    """

    def __init__(self, name: str, aliases: tuple[str, ...], recognise: Recognition) -> None:
        self.name = name
        self.aliases = aliases
        self.recognise = recognise
        self.checks: list[Check] = []
        self.unobservable: dict[str, str] = {}

    def check(self, *requirements: str, write: bool = False) -> Callable[[CheckFunction], CheckFunction]:
        """Register a function as a check of these requirements."""

        def register(function: CheckFunction) -> CheckFunction:
            self.checks.extend(Check(requirement=row, function=function, write=write) for row in requirements)
            return function

        return register

    def cannot_observe(self, reasons: Mapping[str, str]) -> None:
        """Name requirements that no request from outside can judge, each with the reason."""
        self.unobservable.update(reasons)


def expect(condition: object, message: str) -> None:
    """The requirement is violated unless the condition holds."""
    if not condition:
        raise Violation(message)


def no_data(reason: str) -> Untestable:
    """The registry holds nothing that would show it."""
    return Untestable("no_data", reason)


def not_offered(reason: str) -> Untestable:
    """The service does not have the optional part."""
    return Untestable("not_offered", reason)

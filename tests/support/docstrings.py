"""The examples in the docstrings of the public names."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Iterator
from typing import Any

import waypost

# Public because another module of the package calls them; programs have no use for them.
INTERNAL = {
    "KeptAgent": {"seconds_to_renewal", "note_renewal", "note_failure"},
    "LiveAgent": {"key_of"},
    "Change": {"from_event"},
    "Page": {"parse"},
    "SearchResult": {"parse"},
}


def public_methods(kind: type) -> Iterator[tuple[str, Any]]:
    """Name and function of each public method that a class defines itself."""
    for name, member in vars(kind).items():
        method = getattr(member, "__func__", member)
        is_internal = name in INTERNAL.get(kind.__name__, ())
        if inspect.isfunction(method) and not name.startswith("_") and not is_internal:
            yield name, method


def example_of(thing: Any) -> str | None:
    """The code after `Example:`, which is the last part of a docstring."""
    _, mark, code = (inspect.getdoc(thing) or "").partition("Example:\n")
    return textwrap.dedent(code) if mark else None


def as_function(code: str, *, is_async: bool = True) -> str:
    """The code as a function `example`, in which it may await."""
    return f"{'async ' if is_async else ''}def example():\n{textwrap.indent(code, '    ')}"


def public_classes() -> list[type]:
    return [kind for name in waypost.__all__ if inspect.isclass(kind := getattr(waypost, name))]

"""What is loaded when somebody first needs it, so that a start does not wait for what it may never use.

A module or a part that is late stands in for itself until then: whoever holds it does not know.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache, partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar, cast

Loaded = TypeVar("Loaded")


class _Lazy:
    def __init__(self, load: Callable[[], Any]) -> None:
        self._load = load

    def __getattr__(self, name: str) -> Any:
        """Asked for once; then it is an attribute like any other."""
        value = getattr(self._load(), name)
        setattr(self, name, value)
        return value


def lazy_module(name: str) -> Any:
    """The module of this name. For types, import it under TYPE_CHECKING."""
    return _Lazy(partial(import_module, name))


def lazy_object(make: Callable[[], Loaded]) -> Loaded:
    """What `make` makes, once, when the first of its methods is asked for. `make` imports what it needs, and its settings are
    checked already: nobody would hear of a mistake in them any more."""
    return cast(Loaded, _Lazy(cache(make)))


def lazy_pattern(pattern: str, flags: int = 0) -> re.Pattern[str]:
    """For patterns that take a while to compile and that no start needs: its methods can be called, and nothing else."""
    return lazy_object(partial(re.compile, pattern, flags))


if TYPE_CHECKING:
    from cryptography import x509 as x509
else:
    x509 = lazy_module("cryptography.x509")  # certificates, which few agents and few services have

"""Inner loops in compiled code: arrays in, arrays out, no rules of the domain.

A kernel is a `.pyx` (Cython) with a `.pyi` for its types. `hatch_build.py` compiles it when the package is installed and a C
compiler is available. Callers import it with a fallback in Python that has the same signature and the same results:

    try:
        from waypost.search.kernels.loops import add_impacts
    except ImportError:
        from waypost.search.kernels.loops_fallback import add_impacts

Tests compare every kernel with its fallback; `scripts/sanitize` runs them under ASan and UBSan. After a change:
`python hatch_build.py`.
"""

from __future__ import annotations

from importlib import import_module
from typing import Final

KERNELS: Final = ("loops",)


def find_missing_kernels() -> list[str]:
    """The kernels that cannot be loaded, so that their fallbacks are in use."""
    return [name for name in KERNELS if not _is_loadable(name)]


def _is_loadable(name: str) -> bool:
    try:
        import_module(f"{__name__}.{name}")
    except ImportError:
        return False
    return True

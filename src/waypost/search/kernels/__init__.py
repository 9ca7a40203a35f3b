"""Inner loops in compiled code: arrays in, arrays out, and no rule of the domain that its caller does not also have in Python.

A kernel is a `.pyx` (Cython) with a `.pyi` that says its types. `hatch_build.py` compiles it when the package is installed,
where a compiler is at hand. Whoever calls one imports it so that its twin in Python, with the same signature and the same
answers, takes its place where it was not compiled:

    try:
        from waypost.search.kernels.bits import distances
    except ImportError:
        from waypost.search.kernels.bits_fallback import distances

A test holds every kernel to its twin. After a change: `python hatch_build.py`.
"""

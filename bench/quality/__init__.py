"""How well the right agent is found. `python -m bench.quality` runs it; the modules of this package say what is measured."""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before numpy: threads that fight double the tail of a query

"""How fast the right agent is found among many. `python -m bench.search` runs it; the modules of this package say how."""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before numpy: threads that fight double the tail of a query

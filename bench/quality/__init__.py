"""Search quality. Run it with `python -m bench.quality`."""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before numpy: threads that fight double the tail of a query

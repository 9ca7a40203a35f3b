"""`python -m support.toy_dialect …`: the command `waypost` with one more row in the table of dialects."""

from __future__ import annotations

from support.toy_dialect.codec import ToyCodec
from waypost.protocols.dialects import DIALECTS, Dialect

DIALECTS["toy"] = Dialect(codec=ToyCodec(), rank=0, title="a toy", members="toy label dial", fragments=("toy label",))

if __name__ == "__main__":
    from waypost.cli.main import run

    run()
